"""PoseLib as an estimator: with a stub of its interface and, if installed, with itself."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import caloric
from caloric.errors import InputError
from caloric.interop import poselib

K = np.array([[500.0, 0, 200], [0, 510.0, 150], [0, 0, 1]])


@pytest.fixture(scope="module")
def views():
    """Return matched points of a scene with depth, and the true rotation and translation."""
    rng = np.random.default_rng(0)
    points = rng.uniform((-1, -1, 4), (1, 1, 8), (60, 3))
    angle = 0.1
    rotation = np.array(
        [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    )
    translation = np.array([-1.0, 0.2, 0.1])
    sides = points, points @ rotation.T + translation
    p, q = ((side @ K.T)[:, :2] / side[:, 2:] for side in sides)
    return p, q, rotation, translation


def stub(calls, rotation, translation, num_inliers=60):
    """Return a module with the functions of PoseLib that the estimator calls."""
    info = {"num_inliers": num_inliers}

    def homography(p, q, options, bundle):
        calls.append(options)
        return np.array([[1, 0, 5.0], [0, 1, 7], [0, 0, 1]]), info

    def relative_pose(p, q, camera_a, camera_b, options, bundle):
        calls.append(options | {"camera": camera_b})
        return SimpleNamespace(R=rotation, t=translation), info

    return SimpleNamespace(estimate_homography=homography, estimate_relative_pose=relative_pose)


def test_calls(monkeypatch, views):
    p, q, rotation, translation = views
    calls = []
    monkeypatch.setitem(sys.modules, "poselib", stub(calls, rotation, translation))
    plane = caloric.verify(
        p, p + np.array([5, 7]), threshold=1.5, seed=3, estimator=poselib.estimate
    )
    assert plane
    assert len(plane) == 60
    assert calls == [{"seed": 3, "max_reproj_error": 1.5}]
    options = {"model": "essential", "intrinsics": (K, K), "estimator": poselib.estimate}
    epipolar = caloric.verify(p, q, **options)
    assert epipolar
    assert epipolar.residuals.max() < 1e-6
    camera = {"model": "PINHOLE", "params": [500, 510, 200, 150], "width": 400, "height": 300}
    assert calls[1] == {"seed": 0, "max_epipolar_error": 2.0, "camera": camera}
    with pytest.raises(InputError, match="does not estimate 'affine'"):
        caloric.verify(p, q, model="affine", estimator=poselib.estimate)


def test_no_inliers_are_no_model(monkeypatch, views):
    p, q, *pose = views
    monkeypatch.setitem(sys.modules, "poselib", stub([], *pose, num_inliers=0))
    geometry = caloric.verify(p, q, estimator=poselib.estimate)
    assert geometry.matrix is None
    assert "no sample" in geometry.reason


def test_a_missing_library_is_named(monkeypatch, views):
    monkeypatch.setitem(sys.modules, "poselib", None)
    with pytest.raises(InputError, match="pip install poselib"):
        caloric.verify(*views[:2], estimator=poselib.estimate)


@pytest.mark.parametrize("model", ["fundamental", "essential", "homography"])
def test_the_library_itself(model, views):
    pytest.importorskip("poselib")
    p, q, *_ = views
    if model == "homography":
        q = p + np.array([5, 7])
    intrinsics = (K, K) if model == "essential" else None
    geometry = caloric.verify(p, q, model=model, intrinsics=intrinsics, estimator=poselib.estimate)
    assert geometry
    assert len(geometry) == 60
