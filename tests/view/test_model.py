"""A model as the page shows it."""

import io

import numpy as np
import pytest
from PIL import Image

import caloric
from caloric.view.model import ShownImage, ShownModel

XYZ = np.random.default_rng(0).uniform(-5, 5, (30, 3))


def shown(name, points, offset=0.0):
    xy = np.stack([points + offset, np.zeros(len(points))], 1)
    return ShownImage(name, (64, 48), 50.0, np.eye(3), np.zeros(3) + offset, xy, points)


@pytest.fixture
def model(tmp_path):
    Image.new("RGB", (64, 48), (9, 99, 200)).save(tmp_path / "a.png")
    images = (
        shown("a.png", np.arange(20)),
        shown("b.png", np.arange(10, 30), 0.5),
        shown("../c.png", np.arange(3)),
    )
    colors = np.full((30, 3), 7, np.uint8)
    up = np.array([0.0, -1, 0])
    return ShownModel(
        "set", "30 points", np.arange(100, 130), XYZ, colors, np.ones(30), images, up, tmp_path
    )


def test_points_are_normalized(model):
    data = model.points()
    xyz = np.frombuffer(data, "<f4", 90).reshape(30, 3)
    colors = np.frombuffer(data, np.uint8, offset=360).reshape(30, 4)
    assert (colors == (7, 7, 7, 255)).all()
    distances = np.linalg.norm(xyz[:, None] - xyz[None], axis=2)
    original = np.linalg.norm(XYZ[:, None] - XYZ[None], axis=2)
    ratio = distances[0, 1] / original[0, 1]
    np.testing.assert_allclose(distances, ratio * original, atol=1e-5)
    assert 0.5 < np.quantile(np.linalg.norm(xyz, axis=1), 0.9) <= 1.01
    assert model.description()["images"][1]["points"] == 20


def test_a_track_has_the_observations_of_a_point(model):
    track = model.track(12)
    assert track["point"] == 112  # as in the files of the model
    assert track["observations"] == [
        {"image": 0, "x": 12.0, "y": 0.0},
        {"image": 1, "x": 12.5, "y": 0.0},
    ]
    with pytest.raises(caloric.InputError, match="from 0 to 29"):
        model.track(30)


def test_images_with_common_points_are_neighbors(model):
    neighbors = model.neighbors(0)
    assert neighbors["neighbors"] == [{"image": 1, "common": 10}, {"image": 2, "common": 3}]
    assert model.matches(0, 1) == [[i, 0, i + 0.5, 0] for i in range(10, 20)]
    assert model.matches(1, 2) == []
    with pytest.raises(caloric.InputError, match="image must be from 0 to 2"):
        model.neighbors(3)


def test_photographs_are_reduced_and_stay_in_the_directory(model, tmp_path):
    assert Image.open(io.BytesIO(model.photograph(0, 32))).size == (32, 24)
    (tmp_path.parent / "c.png").write_bytes((tmp_path / "a.png").read_bytes())
    for number, message in ((1, "cannot be read"), (2, "leads out")):
        with pytest.raises(caloric.InputError, match=message):
            model.photograph(number, 32)
