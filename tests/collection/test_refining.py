"""Refinement of the tracks of a store."""

import subprocess

import cv2
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import caloric
import photographs
import stores
from caloric import cli
from caloric.collection import (
    engines,
    exporting,
    matching,
    refining,
    store,
)
from tools.drills import kills

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)

HERE = engines.InProcess()
OPTIONS = matching.Matching(model="homography")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Four views of a photograph, one with an EXIF orientation, and the maps to them."""
    directory = tmp_path_factory.mktemp("views")
    whole = photographs.gray("astronaut", (320, 320))
    maps = {}
    for i, (scale, degrees) in enumerate(((1.0, 0), (0.9, 8), (1.1, -10), (0.95, 17))):
        moved = photographs.similarity(scale, degrees, (2.3 * i, -1.7 * i), (160, 160))
        view = photographs.warp(whole, moved)
        name = f"view {i}.png"
        if i == 2:
            exif = Image.Exif()
            exif[274] = 6  # displayed rotated clockwise, so stored rotated counterclockwise
            name = "view 2.jpg"
            Image.fromarray(np.rot90(view)).save(directory / name, exif=exif, quality=97)
            rotation = np.array([[0, 1, 0], [-1, 0, 319]], float)
            moved = rotation[:, :2] @ moved + [[0, 0, rotation[0, 2]], [0, 0, rotation[1, 2]]]
        else:
            cv2.imwrite(str(directory / name), view)
        maps[name] = moved
    return directory, maps


@pytest.fixture(scope="module")
def verified(scene, tmp_path_factory):
    return stores.verified(scene[0], tmp_path_factory.mktemp("refined"), OPTIONS, 300)


@pytest.fixture
def out(verified, tmp_path):
    return stores.copied(verified, tmp_path / "out")


def errors(out, maps):
    """Return the distances of all inliers, mapped to the original photograph, in pixels."""
    frames = {name: features.frames for name, features in exporting.images(out)}
    distances = []
    for pair in matching.two_views(out):
        p, q = (
            photographs.apply(cv2.invertAffineTransform(maps[name]), frames[name].xy[rows])
            for name, rows in zip(
                (pair.name_a, pair.name_b), pair.matches[pair.inliers].T, strict=True
            )
        )
        distances.append(np.linalg.norm(p - q, axis=1))
    return np.concatenate(distances)


def test_refinement_reduces_the_errors_of_inliers(out, scene):
    before = errors(out, scene[1])
    result = refining.refine(str(scene[0]), out, HERE)
    assert result.skipped == {}
    assert result.moved > 0.9 * result.features > 200
    after = errors(out, scene[1])
    assert np.median(after) < 0.35 * np.median(before)
    assert np.median(after) < 0.1


def test_positions_that_do_not_agree_better_are_not_used_if_there_are_few_matches(
    out, scene, monkeypatch
):
    monkeypatch.setattr(refining, "_FEW", 10**6)
    refining.refine(str(scene[0]), out, HERE)
    refined = refining.positions(out)
    assert sum(len(rows) for rows, _ in refined.values()) > 200
    rng = np.random.default_rng(0)
    for path in refining.shards(out).all():
        rows = list(refining.shards(out).read(path))
        for row in rows:
            row["positions"] = row["positions"] + rng.normal(0, 1.5, len(row["positions"]))
        refining.shards(out).write(path, rows)
    assert sum(len(rows) for rows, _ in refining.positions(out).values()) == 0
    monkeypatch.setattr(refining, "_FEW", 10)
    assert refining.positions(out).keys() == refined.keys()


def test_all_engines_write_the_same_store_and_each_shard_once(out, scene, tmp_path):
    directory = str(scene[0])
    subprocess.run(["cp", "-r", str(out), str(tmp_path / "two")], check=True)
    refining.refine(directory, out, HERE)
    with engines.Processes(2) as engine:
        refining.refine(directory, tmp_path / "two", engine)
    assert kills.content(out) == kills.content(tmp_path / "two")
    before = {path: path.stat().st_mtime_ns for path in refining.shards(out).all()}
    assert len(before) >= 1
    refining.refine(directory, out, HERE)
    assert {p: p.stat().st_mtime_ns for p in refining.shards(out).all()} == before


def test_outdated_positions_are_not_exported(out, scene):
    refining.refine(str(scene[0]), out, HERE)
    refined = {n: f.frames.xy for n, f in exporting.images(out)}
    matching.verify(out, matching.Matching(model="homography", threshold=1.0), HERE)
    with pytest.raises(caloric.InputError, match="refine again"):
        list(exporting.images(out))
    refining.clear(out)
    detected = {n: f.frames.xy for n, f in exporting.images(out)}
    assert any((detected[name] != refined[name]).any() for name in detected)


def test_a_missing_image_is_skipped_and_retried(out, scene, tmp_path):
    directory = tmp_path / "views"
    subprocess.run(["cp", "-r", str(scene[0]), str(directory)], check=True)
    (directory / "view 1.png").unlink()
    result = refining.refine(str(directory), out, HERE)
    assert list(result.skipped) == ["view 1.png"]
    assert 0 < result.moved < result.features
    (directory / "view 1.png").write_bytes((scene[0] / "view 1.png").read_bytes())
    again = refining.refine(str(directory), out, HERE)
    assert again.skipped == {}
    assert again.moved > result.moved
    subprocess.run(["cp", "-r", str(out), str(tmp_path / "other")], check=True)
    refining.clear(tmp_path / "other")
    refining.refine(str(directory), tmp_path / "other", HERE)
    assert kills.content(out) == kills.content(tmp_path / "other")
    with pytest.raises(caloric.InputError, match="no such directory"):
        refining.refine(str(tmp_path / "none"), out, HERE)


def test_an_image_that_changed_after_extraction_is_skipped(out, scene, tmp_path):
    directory = tmp_path / "views"
    subprocess.run(["cp", "-r", str(scene[0]), str(directory)], check=True)
    cv2.imwrite(str(directory / "view 1.png"), np.zeros((320, 320), np.uint8))
    result = refining.refine(str(directory), out, HERE)
    assert "has changed" in result.skipped["view 1.png"]


def test_the_command_needs_a_verified_store(out, scene, tmp_path):
    def run(*words):
        return CliRunner().invoke(cli.app, ["collection", "refine", *map(str, words)])

    result = run(scene[0], "-o", out, "--workers", 1)
    assert result.exit_code == 0, result.output
    assert "tracks; " in result.output
    result = run(scene[0], "-o", tmp_path / "none")
    assert result.exit_code != 0
    (tmp_path / "empty").mkdir()
    result = run(scene[0], "-o", tmp_path / "empty")
    assert "verify first" in str(result.exception)
