"""Propagation of the tracks of a store."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
import stores
from caloric import collection
from caloric.collection import (
    completing,
    engines,
    exporting,
    extraction,
    matching,
    observations,
    propagating,
    refining,
    store,
)
from caloric.matching.two_views import TwoViews
from caloric.options import ExtractOptions
from tools.drills import kills

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)

HERE = engines.InProcess()
OPTIONS = matching.Matching(model="homography")
CHANGES = ((1.0, 0), (0.95, 6), (1.05, -8), (0.97, 12))
HIDDEN = (slice(100, 190), slice(120, 220))  # rows and columns of the last view


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Four views of a photograph, a part of which is hidden in the last, and the maps to them."""
    directory = tmp_path_factory.mktemp("views")
    whole, maps = photographs.gray("astronaut", (320, 320)), {}
    for i, (scale, degrees) in enumerate(CHANGES):
        moved = photographs.similarity(scale, degrees, (2.3 * i, -1.7 * i), (160, 160))
        view = photographs.warp(whole, moved)
        if i == 3:
            view[HIDDEN] = photographs.gray("brick", (320, 320))[HIDDEN]
        cv2.imwrite(str(directory / f"{i}.png"), view)
        maps[f"{i}.png"] = moved
    return directory, maps


@pytest.fixture(scope="module")
def verified(scene, tmp_path_factory):
    return stores.verified(scene[0], tmp_path_factory.mktemp("propagated"), OPTIONS, 400)


@pytest.fixture(scope="module")
def propagated(scene, verified, tmp_path_factory):
    """Return a store with propagated and refined tracks, and the result of propagation."""
    out = stores.copied(verified, tmp_path_factory.mktemp("done") / "out")
    return out, propagate(scene[0], out)


@pytest.fixture
def out(verified, tmp_path):
    return stores.copied(verified, tmp_path / "out")


@pytest.fixture
def done(propagated, tmp_path):
    return stores.copied(propagated[0], tmp_path / "done")


def propagate(directory, out, engine=HERE):
    result = propagating.propagate(str(directory), out, engine)
    refining.refine(str(directory), out, engine)
    return result


def observed(out, maps):
    """Return the position (2,) in the photograph and the images of each track of inliers."""
    tracks, xy = observations.tracks(out), {n: f.frames.xy for n, f in exporting.images(out)}
    rows = {
        (tracks.names[i], int(f)): int(t)
        for i, f, t in zip(tracks.image, tracks.feature, tracks.track, strict=True)
    }
    images, positions = {}, {}
    for pair in exporting.two_views(out):
        for column, name in enumerate((pair.name_a, pair.name_b)):
            back = cv2.invertAffineTransform(maps[name])
            for feature in pair.inlier_matches[:, column].tolist():
                track = rows[name, feature]
                images.setdefault(track, {}).setdefault(name, set()).add(feature)
                positions[track] = photographs.apply(back, xy[name][feature][None])[0]
    return images, positions


def is_hidden(xy, margin):
    rows, columns = HIDDEN
    inside = (xy[:, 0] > columns.start - margin) & (xy[:, 0] < columns.stop + margin)
    return inside & (xy[:, 1] > rows.start - margin) & (xy[:, 1] < rows.stop + margin)


def test_points_are_observed_once_in_every_image_that_shows_them(verified, propagated, scene):
    (out, result), maps = propagated, scene[1]
    before = sum(len(pair.inliers) for pair in exporting.two_views(verified))
    assert result.skipped == {}
    assert result.observations >= result.features > 200
    images, positions = observed(out, maps)
    assert all(len(features) == 1 for track in images.values() for features in track.values())
    assert sum(len(pair.inliers) for pair in exporting.two_views(out)) > 1.25 * before
    complete = []
    for track, xy in positions.items():
        views = [photographs.apply(maps[name], xy[None]) for name in maps]
        visible = all(((v > 25) & (v < 295)).all() for v in views)
        if visible and not is_hidden(views[-1], 25)[0]:
            complete.append(len(images[track]) == len(maps))
    assert len(complete) > 150
    assert np.mean(complete) > 0.85


def test_positions_are_correct_and_hidden_points_are_not_found(propagated, scene):
    out, maps = propagated[0], scene[1]
    features = dict(exporting.images(out))
    stored = {name: image.count for name, image in extraction.stored_images(out).items()}
    assert not is_hidden(features["3.png"].frames.xy[stored["3.png"] :], -2).any()
    for pair in exporting.two_views(out):
        p, q = (
            photographs.apply(cv2.invertAffineTransform(maps[name]), features[name].frames.xy[rows])
            for name, rows in zip((pair.name_a, pair.name_b), pair.inlier_matches.T, strict=True)
        )
        errors = np.linalg.norm(p - q, axis=1)
        assert np.median(errors) < 0.05
        assert np.quantile(errors, 0.98) < 0.5
        codes = pair.matches[:, 0].astype(np.int64) << 32 | pair.matches[:, 1]
        assert len(np.unique(codes)) == len(codes)
        assert len(pair.distances) == len(pair.matches)
        for side in range(2):
            assert len(np.unique(pair.inlier_matches[:, side])) == len(pair.inliers)


def test_new_descriptors_are_those_of_their_frames(propagated, scene):
    name, image = "1.png", caloric.read_image(scene[0] / "1.png")
    shard = extraction.stored_images(propagated[0])[name].path
    new = observations.added(propagated[0], shard)[name]
    frames = caloric.Frames(new.maps, np.zeros(len(new.maps), np.float32))
    expected = caloric.describe(image, frames, dtype="uint8")
    assert np.abs(new.descriptors.astype(int) - expected).max() <= 2


def test_all_engines_write_the_same_store_and_each_shard_once(out, done, scene):
    with engines.Processes(2) as engine:
        propagating.propagate(str(scene[0]), out, engine)
    expected = kills.content(done / "propagated")
    assert kills.content(out / "propagated") == expected
    shards = propagating.shards(done).all() + refining.shards(done).all()
    before = {path: path.stat().st_mtime_ns for path in shards}
    # As after a kill: the next run writes the missing shard only.
    shards[0].unlink()
    propagate(scene[0], done)
    assert kills.content(done / "propagated") == expected
    assert {p: p.stat().st_mtime_ns for p in shards[1:]} == {p: before[p] for p in shards[1:]}


def test_a_missing_image_is_skipped_and_retried(out, done, scene, tmp_path):
    directory = stores.copied(scene[0], tmp_path / "views")
    (directory / "1.png").unlink()
    result = propagating.propagate(str(directory), out, HERE)
    assert list(result.skipped) == ["1.png"]
    assert result.features > 0
    again = propagate(scene[0], out)
    assert again.skipped == {}
    assert again.features > result.features
    assert kills.content(out) == kills.content(done)


def test_outdated_observations_are_not_exported(done, scene):
    out = done
    matching.verify(out, matching.Matching(model="homography", threshold=1.0), HERE)
    with pytest.raises(caloric.InputError, match="refine again"):
        list(exporting.images(out))
    collection.refine(scene[0], out, propagate=False, workers=collection.Workers(1))
    assert propagating.shards(out).all() == []
    stored = {name: image.count for name, image in extraction.stored_images(out).items()}
    assert {name: len(features) for name, features in exporting.images(out)} == stored


def test_bad_input(out, scene, tmp_path):
    with pytest.raises(caloric.InputError, match="propagate=False"):
        propagating.propagate(str(scene[0]), out, HERE, options=ExtractOptions(descriptor="heat"))
    with pytest.raises(caloric.InputError, match="no such directory"):
        propagating.propagate(str(tmp_path / "none"), out, HERE)
    (tmp_path / "empty").mkdir()
    with pytest.raises(caloric.InputError, match="verify first"):
        propagating.propagate(str(scene[0]), tmp_path / "empty", HERE)
    with pytest.raises(caloric.InputError, match="propagate"):
        collection.refine(scene[0], out, propagate="no")


def test_features_of_simulated_views_follow_the_new_features(propagated):
    out, name = propagated[0], "3.png"
    rows = extraction.shards(out)
    stored = next(
        extraction.features_of(row)
        for path in rows.all()
        for row in rows.read(path)
        if row["name"] == name
    )
    count = len(stored)
    views = stored[[*range(count), 5, 6]]
    matches = np.array([[5, 0], [count, 1], [count + 1, 2]], np.uint32)
    inliers = np.tile(np.arange(3, dtype=np.uint32), 2000)
    pair = TwoViews(
        name, "0.png", matches, np.zeros(3, np.float32), inliers, np.eye(3), "homography"
    )
    completed = {name: completing.Completed(name, views, [pair], [])}
    features = dict(completing.images(out, completed))[name]
    exported = dict(exporting.images(out))[name]
    assert len(features) == len(exported) + 2
    np.testing.assert_array_equal(features.frames.maps[: len(exported)], exported.frames.maps)
    (new,) = (p for p in completing.two_views(out, completed) if p.name_a == name)
    shifted = new.matches[1:, 0]
    np.testing.assert_array_equal(features.frames.maps[shifted], stored.frames.maps[[5, 6]])
    assert new.matches[0].tolist() == [5, 0]
