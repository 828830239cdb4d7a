"""Exports of a store, new descriptors of a COLMAP database, and COLMAP models."""

import sqlite3
import subprocess
from contextlib import closing

import cv2
import numpy as np
import pytest
from PIL import Image

import caloric
import photographs
from caloric.collection import exporting, extraction, matching, store
from caloric.interop import colmap, colmap_command, conversion
from stores import run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)
needs_colmap = pytest.mark.skipif(
    not colmap.available() and colmap_command.executable() is None, reason="no COLMAP"
)


def test_the_hloc_export_has_the_features_and_inliers_of_the_store(matched):
    h5py = pytest.importorskip("h5py")
    out, verified = matched
    features, matches = exporting.export(out, "hloc").paths
    expected = dict(exporting.images(out))
    with h5py.File(features) as file:
        name = "eins/bild ä 0.png"
        np.testing.assert_allclose(file[name]["keypoints"][:], expected[name].frames.xy, atol=1e-3)
    pairs = [pair for pair in matching.two_views(out) if pair.matrix is not None]
    with h5py.File(matches) as file:
        assert sum(len(group) for group in file.values()) == verified
        for pair in pairs:
            a, b = (n.replace("/", "-") for n in (pair.name_a, pair.name_b))
            nearest = file[a][b]["matches0"][:]
            assert len(nearest) == len(expected[pair.name_a])
            inliers = pair.inlier_matches
            np.testing.assert_array_equal(nearest[inliers[:, 0]], inliers[:, 1])
            assert (nearest >= 0).sum() == len(inliers)


def test_the_text_export_rejects_names_with_spaces(matched):
    out, _ = matched
    with pytest.raises(caloric.InputError, match="up to the first space"):
        exporting.export(out, "text")
    assert not (out / "text").exists()


def test_the_text_export_has_the_features_and_inliers_of_the_store(plainly_named):
    _, out = plainly_named
    blocks = exporting.export(out, "text").paths[1].read_text().strip().split("\n\n")
    name, features = next(iter(exporting.images(out)))
    lines = (out / "text" / f"{name}.txt").read_text().splitlines()
    assert lines[0] == f"{len(features)} 128"
    row = np.array(lines[1].split(), float)
    np.testing.assert_allclose(row[:2] - 0.5, features.frames.xy[0], atol=1e-2)
    np.testing.assert_array_equal(row[4:], conversion.sift_bytes(features)[0])
    pairs = {(p.name_a, p.name_b): p for p in matching.two_views(out) if p.matrix is not None}
    assert len(blocks) == len(pairs) == 3
    for block in blocks:
        names, *rows = block.splitlines()
        pair = pairs[tuple(names.split())]
        expected = pair.matches[pair.inliers]
        np.testing.assert_array_equal(np.array([row.split() for row in rows], int), expected)


def test_image_names_cannot_lead_out_of_the_store(matched, tmp_path):
    out, _ = matched
    shards = extraction.shards(tmp_path)
    row = next(extraction.shards(out).read(extraction.shards(out).all()[0]))
    shards.write(shards.path("0", "0"), [row | {"name": "../../outside"}])
    with pytest.raises(caloric.InputError, match="leads out"):
        exporting.export(tmp_path, "text")
    assert not (tmp_path.parent / "outside.txt").exists()


@needs_colmap
def test_descriptors_of_a_database_are_replaced(matched, originals, tmp_path):
    out, _ = matched
    path = tmp_path / "database.db"
    path.write_bytes(exporting.export(out, "colmap", originals).paths[0].read_bytes())
    result = run("collection", "describe", originals, "--database", path, "--descriptor", "heat")
    assert result.exit_code == 0, result.output
    stored, frames = dict(exporting.images(out)), colmap.read_frames(path)
    assert frames.keys() == stored.keys()
    with closing(sqlite3.connect(path)) as database:
        for table in ("matches", "two_view_geometries"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        query = "SELECT name, rows, data FROM images JOIN descriptors USING (image_id)"
        rows = database.execute(query).fetchall()
    assert len(rows) == len(stored)
    for name, count, data in rows:
        pixels = caloric.read_image(originals / name)
        values = caloric.describe(pixels, frames[name], "heat")
        described = caloric.Features(frames[name], values, pixels.shape[:2], "heat", "")
        assert data == conversion.sift_bytes(described).tobytes()
        assert count == len(stored[name])
    arguments = ("collection", "describe", originals, "--database")
    assert run(*arguments, tmp_path / "no").exit_code != 0
    assert run(*arguments, path, "--white-level", 0).exit_code != 0
    (tmp_path / "bad.db").write_bytes(b"not a database, but long enough to look at" * 50)
    assert "not a COLMAP database" in str(run(*arguments, tmp_path / "bad.db").exception)


@needs_colmap
def test_unreadable_images_of_a_database_are_skipped(matched, originals, tmp_path):
    out, _ = matched
    photos = tmp_path / "photos"
    subprocess.run(["cp", "-r", str(originals), str(photos)], check=True)
    path = tmp_path / "database.db"
    path.write_bytes(exporting.export(out, "colmap", originals).paths[0].read_bytes())
    (photos / "eins" / "bild ä 2.png").write_bytes(b"not an image")
    result = run("collection", "describe", photos, "--database", path, "--white-level", 255)
    assert result.exit_code == 1
    assert "descriptors of 5 images replaced" in result.output
    assert "bild ä 2.png" in result.output
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT count(*) FROM descriptors").fetchone() == (5,)


def test_colmaps_matchers_match_our_descriptors(matched, originals, tmp_path):
    """The brute-force matcher uses dot products, as the GPU matcher does: no negative entries."""
    pycolmap = pytest.importorskip("pycolmap")

    out, _ = matched
    (exported,) = exporting.export(out, "colmap", originals).paths
    path = tmp_path / "database.db"
    path.write_bytes(exported.read_bytes())
    result = run("collection", "describe", originals, "--database", path)
    assert result.exit_code == 0, result.output
    for brute_force in (True, False):
        options = pycolmap.FeatureMatchingOptions()
        options.use_gpu = False
        options.sift.cpu_brute_force_matcher = brute_force
        database = pycolmap.Database.open(str(path))
        database.clear_matches()
        database.clear_two_view_geometries()
        database.close()
        pycolmap.match_exhaustive(str(path), matching_options=options)
        database = pycolmap.Database.open(str(path))
        ids = {i.name: i.image_id for i in database.read_all_images()}
        a, b = (ids[f"eins/bild ä {k}.png"] for k in (0, 1))
        assert len(database.read_matches(a, b)) > 30
        database.close()


@pytest.mark.parametrize("by", ["pycolmap", "executable"])
def test_colmap_reconstructs_a_model(by, tmp_path, monkeypatch):
    """Run all steps on five views of an open book, with default options.

    The names have spaces. One view has an EXIF orientation, which COLMAP ignores.
    """
    if by == "pycolmap":
        pytest.importorskip("pycolmap")
    elif colmap_command.executable() is None:
        pytest.skip("no colmap executable on the PATH")
    else:
        monkeypatch.setattr(colmap, "available", lambda: False)
    (tmp_path / "views").mkdir()
    for i, view in enumerate(photographs.book(5)):
        cv2.imwrite(str(tmp_path / "views" / f"view {i}.png"), view)
    (tmp_path / "views" / "view 2.png").unlink()
    rotated, exif = Image.fromarray(np.rot90(photographs.book(5)[2])), Image.Exif()
    exif[274] = 6
    rotated.save(tmp_path / "views" / "view 2.jpg", exif=exif, quality=95)
    out = tmp_path / "out"
    result = run("collection", "run", tmp_path / "views", "-o", out, "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "5 images registered" in result.output
    assert (out / "colmap" / "sparse" / "0" / "points3D.bin").exists()
    stored = dict(exporting.images(out))
    with closing(sqlite3.connect(out / "colmap" / "database.db")) as database:
        query = (
            "select name, width, height, rows, cols, data from images "
            "join cameras using (camera_id) join keypoints using (image_id)"
        )
        for name, w, h, rows, columns, data in database.execute(query).fetchall():
            assert stored[name].image_size == (h, w)
            keypoints = np.frombuffer(data, np.float32).reshape(rows, columns)
            assert (keypoints[:, :2] <= (w, h)).all()
            np.testing.assert_allclose(keypoints, stored[name].frames.to_colmap(), atol=1e-4)
    assert stored["view 2.jpg"].image_size == stored["view 1.png"].image_size[::-1]
