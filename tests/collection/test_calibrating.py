"""Principal points, refined by COLMAP's bundle adjustment if the images determine them."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from caloric.collection import calibrating
from caloric.errors import InputError
from caloric.interop import colmap, colmap_command, colmap_model
from colmap_models import write_model

NAMES = "abcdefgh"
needs_colmap = pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap")


def principal_point(directory):
    (camera,) = colmap_model.cameras(directory).values()
    return np.array(camera.parameters[1:3])


def adjusted(tmp_path, **options):
    """Return a model that is optimal with the principal point at the center."""
    write_model(tmp_path / "start", NAMES, 200, noise=0.2, **options)
    (tmp_path / "0").mkdir()
    paths = ("--input_path", tmp_path / "start", "--output_path", tmp_path / "0")
    colmap_command.call("bundle_adjuster", *paths)
    return colmap_model.summary(tmp_path / "0")


@needs_colmap
def test_views_from_different_directions_determine_it(tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "available", lambda: False)
    angles = np.random.default_rng(2).uniform(-40, 40, (len(NAMES), 3)) * (1, 1, 4)
    rotations = Rotation.from_euler("xyz", angles, degrees=True)
    model = adjusted(
        tmp_path, offset=(6, -4), rotations=rotations, shifts=np.zeros((len(NAMES), 3))
    )
    before = calibrating._residuals(model.directory)
    assert calibrating.calibrate(model) == model
    np.testing.assert_allclose(principal_point(model.directory), [326, 236], atol=1)
    assert (calibrating._residuals(model.directory) ** 2).sum() < (before**2).sum()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "start"]


@needs_colmap
def test_parallel_views_do_not_determine_it(tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "available", lambda: False)
    model = adjusted(tmp_path, offset=(6, -4))
    calibrating.calibrate(model)
    np.testing.assert_allclose(principal_point(model.directory), [320, 240], atol=1e-6)


@pytest.mark.parametrize(("x", "accepted"), [(325, True), (345, False)])
def test_a_principal_point_far_from_the_center_is_rejected(tmp_path, monkeypatch, x, accepted):
    write_model(tmp_path / "0", NAMES, offset=(x - 320, 0))

    def adjust(model, output, options):
        write_model(output, NAMES, offset=(x - 320, 0), noise=0.1)
        data = (output / "cameras.bin").read_bytes()
        moved = np.array([500, x, 240, 0], "<f8").tobytes()
        (output / "cameras.bin").write_bytes(data[:-32] + moved)

    monkeypatch.setattr(colmap, "adjust", adjust)
    calibrating.calibrate(colmap_model.summary(tmp_path / "0"))
    assert (principal_point(tmp_path / "0")[0] == x) == accepted


def test_few_images_and_failures_leave_the_model_unchanged(tmp_path, monkeypatch):
    def fail(model, output, options):
        raise InputError("no points")

    monkeypatch.setattr(colmap, "adjust", fail)
    for name, images in (("few", NAMES[:4]), ("many", NAMES)):
        write_model(tmp_path / name, images)
        model = colmap_model.summary(tmp_path / name)
        assert calibrating.calibrate(model) == model
