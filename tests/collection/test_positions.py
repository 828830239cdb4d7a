"""GPS positions: local coordinates, nearest images, aligned models."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.collection import positions
from caloric.image.exif import Exif
from caloric.interop import colmap, colmap_command, colmap_model
from colmap_models import write_model

ORIGIN = np.array([50.0, 8.0, 100.0])


def test_a_degree_of_latitude_is_111_kilometers():
    offsets = np.array([[0.001, 0, 0], [0, 0.001, 0], [0, 0, 5]])
    north = positions.local(ORIGIN + offsets, ORIGIN)
    np.testing.assert_allclose(north[0], [0, 111.23, 0], atol=0.02)
    np.testing.assert_allclose(north[1], [71.7, 0, 0], atol=0.02)
    np.testing.assert_allclose(north[2], [0, 0, 5], atol=1e-6)


@settings(deadline=None)
@given(st.floats(-89, 89), st.floats(-180, 180), st.floats(-100, 9000))
def test_distances_do_not_depend_on_the_origin(latitude, longitude, altitude):
    origin = np.array([latitude, longitude, altitude])
    two = origin + np.array([[0, 0, 0], [1e-4, 1e-4, 3]])
    distances = [
        np.linalg.norm(np.diff(positions.local(two, o), axis=0)) for o in (origin, origin + 0.01)
    ]
    assert distances[0] == pytest.approx(distances[1])


def test_the_nearest_images_are_selected():
    exif = {f"{i}": Exif(position=(50.0, 8 + 1e-4 * i**2, 0)) for i in range(5)}
    exif["unknown"] = Exif()
    assert positions.nearest(exif, ["0", "4", "unknown"], 2) == {"0": ["1", "2"], "4": ["3", "2"]}
    assert positions.nearest({"a": Exif(position=(1, 1, 0))}, ["a"], 3) == {}


def located(model, scale, noise=0.0):
    """Return EXIF data with the positions of the images of a model, in a rotated system."""
    random = np.random.default_rng(1)
    rotation, _ = np.linalg.qr(random.normal(size=(3, 3)))
    rotation *= np.sign(np.linalg.det(rotation))
    exif = {}
    for image in colmap_model.registered(model):
        east, north, up = scale * rotation @ image.center + noise * random.normal(size=3)
        angles = np.degrees([north / 6.36e6, east / 4.1e6])  # near enough to meters
        exif[image.name] = Exif(position=(50 + angles[0], 8 + angles[1], 100 + up))
    return exif


@pytest.mark.skipif(
    not colmap.available() and colmap_command.executable() is None, reason="no COLMAP"
)
@pytest.mark.parametrize("start", ["", "image "])
def test_a_model_is_aligned_with_positions(tmp_path, start):
    names = [f"{start}{i}.jpg" for i in range(6)]
    shifts = np.random.default_rng(0).uniform(-2, 2, (6, 3))
    write_model(tmp_path / "0", names, shifts=shifts)
    exif = located(tmp_path / "0", 20)
    model = positions.align(colmap_model.summary(tmp_path / "0"), exif)
    assert model.origin == pytest.approx(
        np.mean([e.position for e in exif.values()], axis=0), abs=1e-5
    )
    origin = json.loads((model.directory / "origin.json").read_text("utf-8"))
    assert origin["latitude"] == model.origin[0]
    assert origin["median error, meters"] < 1
    assert model.images == tuple(names)
    assert colmap_model.summary(model.directory).images == tuple(names)
    for image in colmap_model.registered(model.directory):
        expected = positions.local(np.array([exif[image.name].position]), np.array(model.origin))
        np.testing.assert_allclose(image.center, expected[0], atol=1)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


def test_a_model_is_unchanged_if_positions_do_not_determine_it(tmp_path):
    write_model(tmp_path / "0", [f"{i}.jpg" for i in range(6)])  # centers on a line
    model = colmap_model.summary(tmp_path / "0")
    assert positions.align(model, located(tmp_path / "0", 100)) is model
    assert positions.align(model, {}) is model
    assert positions.align(model, {"0.jpg": Exif(position=(50.0, 8.0, 0.0))}) is model
