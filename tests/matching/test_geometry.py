"""Geometry of matches: each model from exact and from incorrect matches."""

import cv2
import numpy as np
import pytest

import caloric
from caloric.matching import geometry


def scene(model, outliers=0.4, seed=0):
    """Matched points of a known geometry, with noise and outliers."""
    rng = np.random.default_rng(seed)
    n = 300
    K = np.array([[500.0, 0, 320], [0, 500, 240], [0, 0, 1]])
    world = np.column_stack([rng.uniform(-2, 2, (n, 2)), rng.uniform(4, 9, n)])
    R = cv2.Rodrigues(np.array([0.05, 0.2, 0.03]))[0]
    t = np.array([0.6, 0.05, 0.1])
    if model == "homography":
        world[:, 2] = 5 + 0.3 * world[:, 0]
    a = world @ K.T
    b = (world @ R.T + t) @ K.T
    a, b = a[:, :2] / a[:, 2:], b[:, :2] / b[:, 2:]
    if model == "affine":
        b = a @ np.array([[0.9, 0.2], [-0.1, 1.1]]).T + [5, -3]
    b = b + 0.3 * rng.standard_normal((n, 2))
    wrong = rng.random(n) < outliers
    b[wrong] = rng.uniform(0, 600, (int(wrong.sum()), 2))
    return a, b, ~wrong, K


@pytest.mark.parametrize("model", ["homography", "affine", "fundamental", "essential"])
def test_verify_finds_the_geometry(model):
    a, b, right, K = scene(model)
    cameras = (K, K) if model == "essential" else None
    found = geometry.estimate(a, b, model=model, intrinsics=cameras)
    assert found.matrix.shape == ((2, 3) if model == "affine" else (3, 3))
    assert found.inliers[right].mean() > 0.97
    assert found.inliers[~right].mean() < 0.1
    again = geometry.estimate(a, b, model=model, intrinsics=cameras)
    np.testing.assert_array_equal(found.matrix, again.matrix)
    np.testing.assert_array_equal(found.inliers, again.inliers)


@pytest.mark.parametrize("model", ["homography", "affine", "fundamental"])
def test_verify_without_enough_to_go_on(model):
    for points in (
        np.zeros((0, 2)),
        np.zeros((2, 2)),
        np.ones((50, 2)),
        np.arange(6).reshape(3, 2),
    ):
        found = geometry.estimate(points, points, model=model)
        assert found.inliers.shape == found.residuals.shape == (len(points),)
        if model != "affine":
            assert found.matrix is None


def test_verify_checks_what_it_is_given():
    with pytest.raises(caloric.InputError, match="unknown model 'plane'"):
        geometry.estimate(np.zeros((9, 2)), np.zeros((9, 2)), model="plane")
    with pytest.raises(caloric.InputError, match="needs intrinsics"):
        geometry.estimate(np.zeros((9, 2)), np.zeros((9, 2)), model="essential")
    with pytest.raises(caloric.InputError, match="9 points in the first image but 8"):
        geometry.estimate(np.zeros((9, 2)), np.zeros((8, 2)))
