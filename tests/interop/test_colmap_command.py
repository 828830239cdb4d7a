"""The ``colmap`` executable."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from PIL import Image, features

import caloric
import photographs
from caloric.collection import exporting, matching, pairing, store
from caloric.interop import colmap, colmap_command
from caloric.interop.cameras import Cameras
from caloric.interop.conversion import sift_bytes
from stores import HERE, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_a_database_is_exported_without_pycolmap(plainly_named, monkeypatch):
    """COLMAP's feature importer creates the database."""
    directory, out = plainly_named
    monkeypatch.setattr(colmap, "available", lambda: False)
    with pytest.raises(caloric.InputError, match="--images"):
        exporting.export(out, "colmap")
    (path,) = exporting.export(out, "colmap", directory).paths
    stored = dict(exporting.images(out))
    pairs = [pair for pair in matching.two_views(out) if pair.matrix is not None]
    with closing(sqlite3.connect(path)) as database:
        names = dict(database.execute("select name, image_id from images"))
        assert names.keys() == stored.keys()
        for name, image_id in names.items():
            query = "select rows, cols, data from keypoints where image_id = ?"
            rows, columns, data = database.execute(query, (image_id,)).fetchone()
            keypoints = np.frombuffer(data, np.float32).reshape(rows, columns)
            np.testing.assert_allclose(keypoints[:, :2] - 0.5, stored[name].frames.xy, atol=1e-4)
            query = "select rows, cols, data from descriptors where image_id = ?"
            rows, columns, data = database.execute(query, (image_id,)).fetchone()
            descriptors = np.frombuffer(data, np.uint8).reshape(rows, columns)
            np.testing.assert_array_equal(descriptors, sift_bytes(stored[name]))
        counts = [row[0] for row in database.execute("select rows from two_view_geometries")]
        assert sorted(counts) == sorted(len(pair.inliers) for pair in pairs)


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_cameras_are_shared_as_requested(plainly_named, monkeypatch):
    directory, out = plainly_named
    monkeypatch.setattr(colmap, "available", lambda: False)
    count = len(dict(exporting.images(out)))
    for cameras, shared in (
        (Cameras(), 1),
        (Cameras("per-image"), count),
        (Cameras(model="OPENCV", focal=777), 1),
    ):
        (path,) = exporting.export(out, "colmap", directory, cameras).paths
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute("select model, params, prior_focal_length from cameras")
            models, parameters, known = zip(*rows, strict=True)
            used = database.execute("select count(distinct camera_id) from images").fetchone()
        assert len(models) == used[0] == shared
        if cameras.focal:
            assert (models, known) == ((4,), (1,))
            assert np.frombuffer(parameters[0])[:2].tolist() == [777, 777]


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_images_with_the_same_exif_data_share_a_camera_only_if_requested(tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "available", lambda: False)
    directory, out = tmp_path / "images", tmp_path / "out"
    exif = Image.Exif()
    exif[271], exif[272] = "Maker", "Model"
    exif[0x8769] = {37386: 35.0, 41989: 50}  # focal lengths
    for name, view in zip(("a/1", "a/2", "b/3"), photographs.book(3), strict=True):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(view).resize((200, 150)).save(directory / f"{name}.jpg", exif=exif)
    extract(directory, out)
    for sharing, expected in (
        ("auto", [1, 1, 1]), ("per-folder", [1, 1, 3]), ("per-image", [1, 2, 3]),
    ):  # fmt: skip
        (path,) = exporting.export(out, "colmap", directory, Cameras(sharing)).paths
        with closing(sqlite3.connect(path)) as database:
            ids = [row[0] for row in database.execute("select camera_id from images order by name")]
            focal = {
                np.frombuffer(data)[0] for (data,) in database.execute("select params from cameras")
            }
        assert ids == expected
        assert len(focal) == 1
        assert focal.pop() != 1.2 * 200  # from the EXIF data


def test_failures_of_the_executable_are_errors(plainly_named, tmp_path, monkeypatch):
    directory, out = plainly_named
    monkeypatch.setattr(colmap, "available", lambda: False)
    monkeypatch.setattr(colmap_command, "executable", lambda: "false")
    with pytest.raises(caloric.InputError, match="does not exist; check the image directory"):
        exporting.export(out, "colmap", tmp_path)
    with pytest.raises(caloric.InputError, match="colmap feature_importer failed"):
        exporting.export(out, "colmap", directory)


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_images_that_colmap_cannot_read_have_a_camera(tmp_path, monkeypatch):
    if not features.check("avif"):
        pytest.skip("Pillow was built without AVIF")
    monkeypatch.setattr(colmap, "available", lambda: False)
    directory, out = tmp_path / "images", tmp_path / "out"
    directory.mkdir()
    first, second, third = (Image.fromarray(view) for view in photographs.book(3))
    first.save(directory / "1.png")
    second.save(directory / "2.avif", quality=95)
    third.save(directory / "3.png")
    extract(directory, out)
    matching.match(out, pairing.pairs(out, pairing.Pairing(), HERE), matching.Matching(), HERE)
    matching.verify(out, matching.Matching(), HERE)
    for sharing, number in (("auto", 1), ("per-image", 3)):
        (path,) = exporting.export(out, "colmap", directory, Cameras(sharing)).paths
        with closing(sqlite3.connect(path)) as database:
            rows = database.execute(
                "select name, width, height, params from images join cameras using (camera_id) "
                "order by name"
            ).fetchall()
            assert [row[0] for row in rows] == ["1.png", "2.avif", "3.png"]
            assert len({row[1:] for row in rows}) == 1  # the camera that COLMAP assumes
            count = "select count(*) from "
            assert database.execute(f"{count} cameras").fetchone() == (number,)
            assert database.execute(f"{count} matches").fetchone() == (3,)
            for table in ("keypoints", "descriptors"):
                ((least,),) = database.execute(f"select min(rows) from {table}")
                assert least > 100


def test_the_reason_of_a_failure_is_not_from_the_stack_trace():
    check = "E1116 file.cc:7] Check failed: image.Exists()"
    log = f"{check}\n*** Check failure stack trace: ***\n    @ 0x7f (unknown)"
    assert colmap_command._reason(f"working\n{log}") == check
    assert colmap_command._reason("") == "no message"


def test_the_output_of_the_executable_is_observed_line_by_line(tmp_path, monkeypatch):
    program = tmp_path / "colmap"
    program.write_text(
        "#!/bin/sh\n"
        "echo 'Registering image #7 (3)'\n"
        "echo 'Registering image #9 (num_reg_frames=4)' >&2\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(colmap_command, "executable", lambda: str(program))
    counts = []
    (tmp_path / "models").mkdir()
    models = colmap_command.map_images(
        tmp_path / "database.db", tmp_path, tmp_path / "models", registered=counts.append
    )
    assert (models, counts) == ([], [2, 3])
    with pytest.raises(ZeroDivisionError):  # the process is not left behind
        colmap_command.call("mapper", observe=lambda line: 1 / 0)
