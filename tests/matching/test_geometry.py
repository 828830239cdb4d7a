"""Estimation of every model from matches with outliers."""

import cv2
import numpy as np
import pytest

import caloric
from caloric.matching import geometry


def scene(model, outliers=0.4, seed=0):
    """Return matched points of a known geometry with noise and outliers, the inliers, and K."""
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
    incorrect = rng.random(n) < outliers
    b[incorrect] = rng.uniform(0, 600, (int(incorrect.sum()), 2))
    return a, b, ~incorrect, K


@pytest.mark.parametrize("model", ["homography", "affine", "fundamental", "essential"])
def test_inliers_are_found_and_results_are_repeatable(model):
    a, b, correct, K = scene(model)
    cameras = (K, K) if model == "essential" else None
    estimate = geometry.estimate(a, b, model=model, intrinsics=cameras)
    assert estimate.matrix.shape == ((2, 3) if model == "affine" else (3, 3))
    assert estimate.inliers[correct].mean() > 0.97
    assert estimate.inliers[~correct].mean() < 0.1
    again = geometry.estimate(a, b, model=model, intrinsics=cameras)
    np.testing.assert_array_equal(estimate.matrix, again.matrix)
    np.testing.assert_array_equal(estimate.inliers, again.inliers)


@pytest.mark.parametrize("model", ["homography", "affine", "fundamental"])
def test_too_few_or_degenerate_points_have_no_geometry(model):
    for points in (
        np.zeros((0, 2)),
        np.zeros((2, 2)),
        np.ones((50, 2)),
        np.arange(6).reshape(3, 2),
    ):
        estimate = geometry.estimate(points, points, model=model)
        assert estimate.inliers.shape == estimate.residuals.shape == (len(points),)
        if model != "affine":
            assert estimate.matrix is None


def test_invalid_arguments_are_reported():
    with pytest.raises(caloric.InputError, match="unknown model 'plane'"):
        geometry.estimate(np.zeros((9, 2)), np.zeros((9, 2)), model="plane")
    with pytest.raises(caloric.InputError, match="needs intrinsics"):
        geometry.estimate(np.zeros((9, 2)), np.zeros((9, 2)), model="essential")
    with pytest.raises(caloric.InputError, match="9 points in the first image but 8"):
        geometry.estimate(np.zeros((9, 2)), np.zeros((8, 2)))
