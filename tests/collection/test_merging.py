"""``caloric merge``: keypoints and matches of several sources become one set of tracks."""

import sqlite3
from contextlib import closing
from itertools import combinations
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.collection import consistency, match_files, merging, tracks
from caloric.collection.tracks import PairMatches
from caloric.interop import colmap_command, colmap_tables
from caloric.interop.colmap_tables import CameraRow, PairGeometry
from caloric.matching.models import residual

SIZE = (640, 480)
FOCAL = 600.0
NAMES = ("a.png", "day/b.png", "c d.png", "e.png")
CAMERA = CameraRow(2, *SIZE, np.array([FOCAL, *np.array(SIZE) / 2, 0]).tobytes(), 1)


def projections(count, names=NAMES, seed=0):
    """Return positions (n, 2) by image of points on a curved surface, at least 8 px apart."""
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 24), np.linspace(-0.7, 0.7, 18)), -1)
    xy = random.permutation(grid.reshape(-1, 2))[:count]
    points = np.column_stack([xy, 4 + 0.4 * np.sin(3 * xy[:, 0]) + 0.3 * xy[:, 1] ** 2])
    result = {}
    for i, name in enumerate(names):
        angle = 0.12 * (i - 1)
        rotation = np.array(
            [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
        )
        local = points @ rotation.T - [0.45 * (i - 1), 0.1 * i, 0]
        result[name] = FOCAL * local[:, :2] / local[:, 2:] + np.array(SIZE) / 2 - 0.5
    return result


def fundamental(p, q):
    """Return the fundamental matrix of points in COLMAP's coordinates (eight-point algorithm)."""
    scale = np.diag([1 / FOCAL, 1 / FOCAL, 1])
    a, b = (np.column_stack([v + 0.5, np.ones(len(v))]) @ scale for v in (p, q))
    rows = np.einsum("ni,nj->nij", b, a).reshape(-1, 9)
    return scale @ np.linalg.svd(rows)[2][-1].reshape(3, 3) @ scale


def write_database(path, positions, matches, verified=True, sigma=2.0, camera=CAMERA):
    """Write positions (n, 2) by image, and matches (m, 2) by pair of images."""
    with colmap_tables.created(path) as tables:
        number = tables.add_camera(camera)
        for name, xy in positions.items():
            maps = match_files.circular(xy, sigma, 0.3)
            frames = caloric.Frames(maps, np.zeros(len(xy)))
            tables.add_image(name, number, frames.to_colmap())
        for (a, b), rows in matches.items():
            indices = np.asarray(rows, np.uint32)
            tables.add_matches(a, b, indices)
            if verified:
                f = fundamental(positions[a][indices[:, 0]], positions[b][indices[:, 1]])
                tables.add_geometry(a, b, indices, PairGeometry(3, {"F": f}))
    return path


def write_hloc(directory, positions, matches, **values):
    h5py = pytest.importorskip("h5py")
    directory.mkdir()
    features, pairs = directory / "feats.h5", directory / "matches.h5"
    with h5py.File(features, "w") as file:
        for name, xy in positions.items():
            file[f"{name}/keypoints"] = xy.astype(np.float32)
            for key, value in values.items():
                file[f"{name}/{key}"] = np.broadcast_to(
                    value, (2,) if key == "image_size" else len(xy)
                )
    with h5py.File(pairs, "w") as file:
        for (a, b), rows in matches.items():
            nearest = np.full(len(positions[a]), -1, np.int32)
            nearest[rows[:, 0]] = rows[:, 1]
            file[f"{a.replace('/', '-')}/{b.replace('/', '-')}/matches0"] = nearest
    return features, pairs


def source(exact, points, noise, seed):
    """Return noisy positions of some points, in random order, and matches of all pairs."""
    random = np.random.default_rng(seed)
    orders = {name: random.permutation(points) for name in exact}
    positions = {
        name: exact[name][order] + noise * random.uniform(-1, 1, (len(order), 2)) / 2**0.5
        for name, order in orders.items()
    }
    matches = {}
    for a, b in combinations(exact, 2):
        other = np.argsort(orders[b])[np.searchsorted(np.sort(orders[b]), orders[a])]
        matches[a, b] = np.column_stack([np.arange(len(points)), other]).astype(np.uint32)
    return positions, matches


def content(path):
    """Return keypoints by image, and sorted matches and verified matches by pair."""
    with match_files.opened((Path(path),)) as file:
        keypoints = {name: file.keypoints(name, 2.5).maps for name in file.counts}
        pairs = {pair: file.pair(*pair) for pair in sorted(file.pairs)}
    return keypoints, {
        pair: tuple(sorted(map(tuple, rows.tolist())) for rows in (c.matches, c.inliers))
        for pair, c in pairs.items()
    }


def joined_tracks(path):
    """Return the number of observations of each track."""
    keypoints, pairs = content(path)
    result = tracks.join(
        {name: len(maps) for name, maps in keypoints.items()},
        [
            PairMatches(a, b, np.array(inliers, np.uint32), np.zeros(len(inliers), np.float32))
            for (a, b), (_, inliers) in pairs.items()
        ],
    )
    return np.bincount(result.track)


@pytest.fixture
def two(tmp_path):
    """Two databases with 0.5 px noise: points 0 to 299, and points 200 to 431."""
    exact = projections(432)
    one = source(exact, np.arange(300), 0.5, 1)
    other = source(exact, np.arange(200, 432), 0.5, 2)
    return (
        write_database(tmp_path / "one.db", *one),
        write_database(tmp_path / "other.db", *other),
    )


def test_a_point_of_two_sources_is_one_observation(two, tmp_path):
    result = caloric.merge(two, tmp_path / "out.db")
    keypoints, pairs = content(tmp_path / "out.db")
    assert {name: len(maps) for name, maps in keypoints.items()} == dict.fromkeys(NAMES, 432)
    assert (result.keypoints, result.shared) == (4 * 432, 4 * 100)
    assert (result.pairs, result.verified, result.images_of_one_source) == (6, 6, 0)
    exact = projections(432)
    for name, maps in keypoints.items():
        nearest = np.linalg.norm(exact[name][:, None] - maps[None, :, :, 2], axis=2).min(1)
        assert nearest.max() <= 0.51
    assert all(len(matches) == len(inliers) == 432 for matches, inliers in pairs.values())
    assert joined_tracks(tmp_path / "out.db").tolist() == [4] * 432


def test_positions_and_shapes_are_those_of_the_first_source(two, tmp_path):
    first = content(two[0])[0]
    caloric.merge(two, tmp_path / "out.db")
    for name, maps in content(tmp_path / "out.db")[0].items():
        np.testing.assert_array_equal(maps[:300], first[name])


def test_sources_that_share_nothing_else_are_both_kept(tmp_path):
    exact = projections(200)
    paths = [
        write_database(tmp_path / f"{i}.db", *source(exact, np.arange(100) + 100 * i, 0.5, i))
        for i in range(2)
    ]
    result = caloric.merge(paths, tmp_path / "out.db")
    assert (result.keypoints, result.shared) == (4 * 200, 0)
    assert joined_tracks(tmp_path / "out.db").tolist() == [4] * 200


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**16), st.integers(8, 40), st.booleans())
def test_merging_a_source_with_itself_changes_nothing(tmp_path_factory, seed, count, repeated):
    directory = tmp_path_factory.mktemp("merge")
    positions, matches = source(projections(count, NAMES[:3]), np.arange(count), 1, seed)
    if repeated:  # SIFT has several features at a position, with different orientations
        for xy in positions.values():
            xy[1] = xy[0]
    path = write_database(directory / "one.db", positions, matches)
    caloric.merge([path, path], directory / "out.db")
    before, after = content(path), content(directory / "out.db")
    assert before[1] == after[1]
    for name, maps in before[0].items():
        np.testing.assert_array_equal(after[0][name], maps)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**16), st.permutations(range(3)))
def test_the_order_of_sources_changes_only_positions(tmp_path_factory, seed, order):
    directory = tmp_path_factory.mktemp("merge")
    exact, random = projections(60, NAMES[:3]), np.random.default_rng(seed)
    paths = [
        write_database(
            directory / f"{i}.db",
            *source(exact, np.sort(random.choice(60, 30, replace=False)), 0.5, seed + i),
        )
        for i in range(3)
    ]
    results = []
    for name, chosen in (("out", paths), ("again", [paths[i] for i in order])):
        result = caloric.merge(chosen, directory / f"{name}.db")
        pairs = content(directory / f"{name}.db")[1]
        sizes = {pair: [len(rows) for rows in both] for pair, both in pairs.items()}
        lengths = sorted(joined_tracks(directory / f"{name}.db").tolist())
        results.append((result.keypoints, result.shared, sizes, lengths))
    assert results[0] == results[1]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=4), st.integers(0, 2**16))
@settings(max_examples=50, deadline=None)
def test_a_merged_keypoint_has_one_keypoint_of_each_source(counts, seed):
    random = np.random.default_rng(seed)
    positions = [random.uniform(0, 12, (n, 2)) for n in counts]
    indices = merging.join(positions, 1.5)
    for rows, n in zip(indices, counts, strict=True):
        assert len(rows) == n == len(np.unique(rows))
    total = len(np.unique(np.concatenate(indices)))
    assert max(counts) <= total <= sum(counts)
    assert np.concatenate(indices).max(initial=-1) == total - 1
    np.testing.assert_array_equal(indices[0], np.arange(counts[0]))


def test_matches_without_geometry_are_verified_by_that_of_another_source(tmp_path):
    exact = projections(200, NAMES[:3])
    database = write_database(tmp_path / "a.db", *source(exact, np.arange(100), 0.3, 1))
    positions, matches = source(exact, np.arange(100, 200), 0.3, 2)
    for rows in matches.values():
        rows[:10, 1] = np.roll(rows[:10, 1], 1)  # incorrect matches
    write_hloc(tmp_path / "hloc", positions, matches)
    result = caloric.merge([database, tmp_path / "hloc"], tmp_path / "out.db")
    assert result.verified == result.pairs == 3
    assert result.unverified is None
    assert not list(tmp_path.glob("*.txt"))
    keypoints, pairs = content(tmp_path / "out.db")
    for all_matches, inliers in pairs.values():
        assert len(all_matches) == 200
        assert 190 <= len(inliers) < 200
    # hloc's keypoints have no scale: it is assumed.
    sigma = caloric.Frames(keypoints["a.png"], np.zeros(200)).sigma
    np.testing.assert_allclose(sigma, [2.0] * 100 + [2.5] * 100, rtol=1e-5)


def test_hloc_files_get_cameras_from_images(tmp_path):
    if colmap_command.executable() is None and not merging.colmap.available():
        pytest.skip("needs COLMAP")
    cv2 = pytest.importorskip("cv2")
    exact = projections(40, ("a.png", "b.png"))
    paths = []
    for i in range(2):
        paths += write_hloc(tmp_path / str(i), *source(exact, np.arange(40), 0.3, i))
    with pytest.raises(caloric.InputError, match="no source has a camera of 2 images"):
        caloric.merge(paths, tmp_path / "out.db")
    (tmp_path / "images").mkdir()
    for name in exact:
        image = photographs.gray("astronaut", SIZE)
        cv2.imwrite(str(tmp_path / "images" / name), image)
    result = caloric.merge(paths, tmp_path / "out.db", images=tmp_path / "images")
    assert (result.keypoints, result.pairs, result.verified) == (80, 1, 0)
    assert "not verified by any source: 1 pair;" in str(result)
    assert result.unverified == tmp_path / "out.unverified.txt"
    assert f"listed in {result.unverified}" in str(result)
    assert result.unverified.read_text("utf-8") == "a.png b.png\n"
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert database.execute("SELECT width, height FROM cameras").fetchall() == [SIZE]
        assert database.execute("SELECT DISTINCT cols FROM keypoints").fetchall() == [(2,)]
    (tmp_path / "out.db").unlink()
    with pytest.raises(caloric.InputError, match="the list of unverified pairs, already exists"):
        caloric.merge(paths, tmp_path / "out.db", images=tmp_path / "images")


def test_merged_tracks_are_refined(tmp_path):
    cv2 = pytest.importorskip("cv2")
    whole, images = photographs.gray("astronaut", (320, 320)), tmp_path / "images"
    images.mkdir()
    maps = {
        f"{i}.png": photographs.similarity(1 + 0.05 * i, 4 * i, (2.3 * i, -1.2), (160, 160))
        for i in range(3)
    }
    for name, moved in maps.items():
        cv2.imwrite(str(images / name), photographs.warp(whole, moved))
    grid = np.stack(np.meshgrid(*[np.linspace(80, 240, 9)] * 2), -1).reshape(-1, 2)
    exact = {name: photographs.apply(moved, grid) for name, moved in maps.items()}
    camera = CameraRow(2, 320, 320, CAMERA.parameters, 1)
    points = np.arange(50), np.arange(31, 81)
    paths = [
        write_database(
            tmp_path / f"{i}.db", *source(exact, part, 1.0, i), verified=False, camera=camera
        )
        for i, part in enumerate(points)
    ]
    errors = []
    for refine in (False, True):
        out = tmp_path / f"{refine}.db"
        result = caloric.merge(paths, out, radius=2.1, refine=refine, images=images)
        assert result.keypoints == 3 * 81
        keypoints, pairs = content(out)
        a, b = (
            photographs.apply(cv2.invertAffineTransform(maps[name]), keypoints[name][rows][:, :, 2])
            for name, rows in zip(
                ("0.png", "1.png"), np.array(pairs["0.png", "1.png"][0]).T, strict=True
            )
        )
        errors.append(np.median(np.linalg.norm(a - b, axis=1)))
    assert result.refined > 60
    assert "keypoints refined" in str(result)
    assert errors[1] < 0.5 * errors[0]
    (images / "2.png").unlink()
    result = caloric.merge(paths, tmp_path / "less.db", refine=True, images=images)
    assert list(result.skipped) == ["2.png"]


def matched(cv2, detector, images):
    """Return OpenCV's keypoints by image, and their matches by pair; some are incorrect."""
    keypoints, matches = {}, {}
    features = {name: detector.detectAndCompute(image, None) for name, image in images.items()}
    for name, (points, _) in features.items():
        keypoints[name] = np.array([point.pt for point in points])
    matcher = cv2.BFMatcher(detector.defaultNorm(), crossCheck=True)
    for a, b in combinations(images, 2):
        rows = [(m.queryIdx, m.trainIdx) for m in matcher.match(features[a][1], features[b][1])]
        matches[a, b] = np.array(rows, np.uint32)
    return keypoints, matches


def test_three_detectors_are_merged_and_refined(tmp_path):
    """Caloric, OpenCV's SIFT with verified pairs, and OpenCV's ORB in hloc files."""
    cv2 = pytest.importorskip("cv2")
    whole = photographs.gray("astronaut", (320, 320))
    maps = {
        f"{i}.png": photographs.similarity(1 + 0.05 * i, 4 * i, (2.3 * i, -1.2), (160, 160))
        for i in range(3)
    }
    images = {name: photographs.warp(whole, moved) for name, moved in maps.items()}
    (tmp_path / "images").mkdir()
    for name, image in images.items():
        cv2.imwrite(str(tmp_path / "images" / name), image)
    sift, orb = (
        matched(cv2, detector, images) for detector in (cv2.SIFT_create(400), cv2.ORB_create(400))
    )
    features = {name: caloric.extract(image, max_features=400) for name, image in images.items()}
    ours = (
        {name: each.frames.maps[:, :, 2] for name, each in features.items()},
        {(a, b): caloric.match(features[a], features[b]).indices for a, b in combinations(maps, 2)},
    )
    camera = CameraRow(2, 320, 320, CAMERA.parameters, 1)
    paths = [
        write_database(tmp_path / "ours.db", *ours, verified=False, camera=camera),
        write_database(tmp_path / "sift.db", *sift, verified=False, camera=camera),
        tmp_path / "hloc",
    ]
    with colmap_tables.opened(paths[1]) as tables:
        for (a, b), rows in sift[1].items():
            p, q = sift[0][a][rows[:, 0]], sift[0][b][rows[:, 1]]
            matrix, inliers = cv2.findHomography(p + 0.5, q + 0.5, cv2.RANSAC, 2.0)
            tables.add_geometry(a, b, rows[inliers[:, 0] > 0], PairGeometry(6, {"H": matrix}))
    write_hloc(tmp_path / "hloc", *orb, image_size=(320, 320))
    results = {}
    for refine in (False, True):
        out = tmp_path / f"{refine}.db"
        result = caloric.merge(paths, out, refine=refine, images=tmp_path / "images")
        keypoints, pairs = content(out)
        distances = {}
        for (a, b), (_, inliers) in pairs.items():
            rows = np.array(inliers).T
            p, q = (
                photographs.apply(cv2.invertAffineTransform(maps[name]), keypoints[name][i][..., 2])
                for name, i in zip((a, b), rows, strict=True)
            )
            distances[a, b] = np.linalg.norm(p - q, axis=1)
        results[refine] = {pair: np.median(values) for pair, values in distances.items()}
        assert (result.pairs, result.verified) == (3, 3)
        separate = sum(len(xy) for part in (sift, ours, orb) for xy in part[0].values())
        assert 0.5 * separate < result.keypoints < separate
        assert result.keypoints + result.shared <= separate
        for pair, values in distances.items():
            assert len(values) > max(len(part[1][pair]) for part in (sift, ours, orb))
            assert (values < 4.5).mean() > 0.95
    assert all(results[True][pair] < 0.5 * results[False][pair] for pair in results[True])


def test_inconsistent_matches_are_removed(tmp_path):
    positions, matches = source(projections(200), np.arange(200), 0, 1)
    moved = positions["a.png"][:20]
    moved += [0, 6]  # across the epipolar lines
    path = write_database(tmp_path / "a.db", positions, matches, verified=False)
    with colmap_tables.opened(path) as tables:
        for (a, b), rows in matches.items():
            f = fundamental(positions[a][rows[20:, 0]], positions[b][rows[20:, 1]])
            if a != "a.png":
                f = fundamental(positions[a][rows[:, 0]], positions[b][rows[:, 1]])
            tables.add_geometry(a, b, rows, PairGeometry(3, {"F": f}))
    removed = consistency.filter_matches(path, 2.5)
    pairs = content(path)[1]
    assert removed == sum(200 - len(inliers) for _, inliers in pairs.values())
    for (a, _), (all_matches, inliers) in pairs.items():
        assert len(all_matches) == 200
        assert len(inliers) == (180 if a == "a.png" else 200)


def test_a_pair_without_precise_geometry_keeps_its_matches(tmp_path):
    positions, matches = source(projections(60), np.arange(60), 0, 1)
    path = write_database(tmp_path / "a.db", positions, matches, verified=False)
    with colmap_tables.opened(path) as tables:
        for (a, b), rows in matches.items():
            tables.add_geometry(a, b, rows, PairGeometry(6, {"H": np.diag([9.0, 9, 1])}))
    assert consistency.filter_matches(path, 2.5) == 0


def test_images_of_one_source_are_kept_with_a_warning(tmp_path, caplog):
    exact = projections(50)
    positions, matches = source(exact, np.arange(50), 0.3, 1)
    whole = write_database(tmp_path / "whole.db", positions, matches)
    part = write_database(
        tmp_path / "part.db",
        {name: positions[name] for name in NAMES[:3]},
        {pair: rows for pair, rows in matches.items() if "e.png" not in pair},
    )
    result = caloric.merge([part, whole], tmp_path / "out.db")
    assert (result.image_count, result.images_of_one_source) == (4, 1)
    assert "1 of 4 images are in one source only, such as e.png" in caplog.text


def test_pairs_in_the_opposite_order_are_the_same_pair(tmp_path):
    exact = projections(60, ("z.png", "a.png"))  # the ids are not in the order of names
    positions, matches = source(exact, np.arange(60), 0.3, 1)
    path = write_database(tmp_path / "one.db", positions, matches)
    swapped = {name: positions[name] for name in ("a.png", "z.png")}
    other = write_database(
        tmp_path / "two.db", swapped, {("a.png", "z.png"): matches["z.png", "a.png"][:, ::-1]}
    )
    caloric.merge([path, other], tmp_path / "out.db")
    assert content(tmp_path / "out.db")[1] == content(path)[1] == content(other)[1]
    with match_files.opened((tmp_path / "out.db",)) as file:
        pair = file.pair("a.png", "z.png")
        xy = [file.keypoints(name, 1).maps[:, :, 2] for name in ("a.png", "z.png")]
    p, q = xy[0][pair.inliers[:, 0]] + 0.5, xy[1][pair.inliers[:, 1]] + 0.5
    assert np.median(residual(p, q, "fundamental", pair.geometry.matrices["F"])) < 0.5


def test_bad_input(two, tmp_path):
    def fails(reason, *sources, out=tmp_path / "out.db", **options):
        with pytest.raises(caloric.InputError, match=reason):
            caloric.merge(sources, out, **options)
        assert not (tmp_path / "out.db").exists()

    one, other = two
    fails("pass at least two", one)
    fails("no such file", one, tmp_path / "missing.db")
    fails("already exists", *two, out=other)
    fails("does not exist", *two, out=tmp_path / "missing" / "out.db")
    fails("radius must be", *two, radius=0)
    fails("radius must be", *two, radius=float("nan"))
    fails("--refine needs --images", *two, refine=True)
    fails("no such directory", *two, refine=True, images=tmp_path / "missing")
    (tmp_path / "others").mkdir()
    fails("others: contains none of the images", *two, refine=True, images=tmp_path / "others")
    (tmp_path / "text.db").write_text("not a database, but a text that is long enough")
    fails("text.db: not a COLMAP database", one, tmp_path / "text.db")
    (tmp_path / "empty").mkdir()
    fails("neither a collection nor", one, tmp_path / "empty")
    (tmp_path / "empty" / "features").mkdir()
    fails("caloric collection export", one, tmp_path / "empty")
    positions, matches = source(projections(20), np.arange(20), 0, 0)
    larger = CameraRow(2, 1280, 960, CAMERA.parameters, 1)
    sized = write_database(tmp_path / "sized.db", positions, matches, camera=larger)
    fails(r"a.png: 1280x960 pixels in .*sized.db, but 640x480 in .*one.db", one, sized)
    renamed = {f"images/{name}": xy for name, xy in positions.items()}
    pairs = {tuple(f"images/{n}" for n in pair): rows for pair, rows in matches.items()}
    fails("no two sources", one, write_database(tmp_path / "renamed.db", renamed, pairs))
    fails("contains no matches", one, write_database(tmp_path / "none.db", positions, {}))
    matches["a.png", "e.png"][3, 1] = 20
    invalid = write_database(tmp_path / "invalid.db", positions, matches, verified=False)
    fails("invalid.db: a match index exceeds the keypoints of e.png", one, invalid)
    with pytest.raises(caloric.InputError, match="sequence of paths"):
        caloric.merge(str(one), tmp_path / "out.db")


def test_verified_matches_are_kept_if_no_image_can_be_read(two, tmp_path):
    for name in NAMES:
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not an image")
    plain, refined = tmp_path / "plain.db", tmp_path / "refined.db"
    caloric.merge(two, plain)
    result = caloric.merge(two, refined, refine=True, images=tmp_path / "images")
    assert result.refined == 0
    assert result.skipped
    assert content(refined)[1] == content(plain)[1]


def test_the_command(two, tmp_path):
    arguments = [*map(str, two), "-o", str(tmp_path / "out.db"), "--radius", "1"]
    result = CliRunner().invoke(cli.app, ["merge", *arguments])
    assert result.exit_code == 0, result.output
    assert "1,728 keypoints (400 of several sources), 6 pairs (6 verified)" in result.output
    again = CliRunner().invoke(cli.app, ["merge", *arguments])
    assert "already exists" in str(again.exception)


@pytest.mark.slow
@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_colmap_maps_a_merged_database(tmp_path):
    """The mapper uses the geometries; pairs without one are verified, without descriptors."""
    exact = projections(432)
    one = write_database(tmp_path / "one.db", *source(exact, np.arange(300), 0.5, 1))
    positions, matches = source(exact, np.arange(200, 432), 0.5, 2)
    for verified in (True, False):
        directory = tmp_path / str(verified)
        directory.mkdir()
        other = write_database(directory / "other.db", positions, matches, verified)
        first = one
        if not verified:
            first = write_database(
                directory / "one.db", *source(exact, np.arange(300), 0.5, 1), False
            )
        result = caloric.merge([first, other], directory / "out.db")
        if not verified:
            assert result.verified == 0
            # A line has the two names, separated by a space: not for names with spaces.
            colmap_command.call(
                "exhaustive_matcher", "--database_path", directory / "out.db",
                *colmap_command.without_gpu("exhaustive_matcher"),
            )  # fmt: skip
        (model,) = colmap_command.map_images(directory / "out.db", tmp_path, directory)
        assert len(model.images) == 4
        assert model.points > 420
        assert model.track_length > 3.9
