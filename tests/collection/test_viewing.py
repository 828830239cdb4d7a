"""Models of a store, and other COLMAP models, for ``caloric view``."""

import json

import numpy as np
import pytest

import caloric
from caloric.collection import viewing
from colmap_models import write_model


def test_the_model_of_a_store_is_loaded(tmp_path):
    xyz = write_model(tmp_path / "out" / "colmap" / "sparse" / "0")
    photos = tmp_path / "photos"
    photos.mkdir()
    (tmp_path / "out" / "report.json").write_text(json.dumps({"directory": str(photos)}))
    model = viewing.load(tmp_path / "out")
    assert (model.title, model.directory) == ("photos", photos)
    assert [image.name for image in model.images] == ["a.jpg", "b.jpg", "c.jpg"]
    image = model.images[0]
    np.testing.assert_array_equal(model.xyz[image.points], xyz)
    projected = (image.rotation @ (xyz - image.center).T)[:2] * 500
    depth = (image.rotation @ (xyz - image.center).T)[2]
    np.testing.assert_allclose(image.xy + 0.5, (projected / depth).T + np.array((320, 240)))
    assert model.colors[image.points[6]].tolist() == [200, 7, 30]
    np.testing.assert_allclose(model.up, (0, -1, 0))
    assert model.summary.startswith("3 images, 40 points, mean track length 3.00")
    with pytest.raises(caloric.InputError, match="no model 1; number of models: 1"):
        viewing.load(tmp_path / "out", 1)


def test_a_directory_without_a_model_is_an_error(tmp_path):
    with pytest.raises(caloric.InputError, match="contains no COLMAP model"):
        viewing.load(tmp_path)
    write_model(tmp_path / "0", points=0)
    with pytest.raises(caloric.InputError, match="has no points"):
        viewing.load(tmp_path)


def test_points_are_written_to_a_ply_file(tmp_path, command):
    write_model(tmp_path / "0")
    code, out, _ = command("view", tmp_path, "--ply", tmp_path / "points.ply")
    assert (code, out) == (0, f"written: {tmp_path / 'points.ply'}\n")
    assert (tmp_path / "points.ply").read_bytes().startswith(b"ply\nformat binary_little_endian")
    code, _, error = command("view", "--ply", tmp_path / "other.ply")
    assert (code, "for a directory with a model" in error) == (2, True)
