"""Residuals of models and their derivatives."""

import numpy as np
import pytest

from caloric.matching import models

H = np.array([[1.1, 0.1, -30], [-0.05, 0.95, 20], [1e-4, -5e-5, 1]])
RNG = np.random.default_rng(0)
P = RNG.uniform(0, [1000, 800], (40, 2))
Q = models.mapped(P, H) + RNG.normal(0, 3, (40, 2))


def test_residuals_of_a_translation_are_distances():
    shift = np.array([[1.0, 0, 5], [0, 1, -7], [0, 0, 1]])
    distances = np.linalg.norm(P + np.array([5, -7]) - Q, axis=1)
    np.testing.assert_allclose(models.residual(P, Q, "homography", shift), distances)
    np.testing.assert_allclose(models.residual(P, Q, "affine", shift[:2]), distances)


def test_residuals_of_a_homography_are_symmetric():
    forward = models.residual(P, Q, "homography", H)
    np.testing.assert_allclose(
        models.residual(Q, P, "homography", np.linalg.inv(H)), forward, rtol=0.05
    )
    # If the second image is enlarged, distances in the first one count.
    large = np.diag([10.0, 10, 1])
    residuals = models.residual(P, 10 * (P + np.array([1, 0])), "homography", large)
    np.testing.assert_allclose(residuals, np.sqrt(2 * 100 / 101))


def test_points_behind_the_camera_have_no_finite_residual():
    behind = np.array([[1.0, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert not np.isnan(models.residual(P, Q, "homography", behind)).any()


@pytest.mark.parametrize("model", ["homography", "affine", "fundamental", "essential"])
def test_slopes_are_the_derivatives_of_residuals(model):
    k = np.array([[900.0, 0, 500], [0, 880, 400], [0, 0, 1]])
    translation = np.array([1.0, 0.2, 0.1])
    matrix = {"homography": H, "affine": H[:2], "essential": models._cross(translation)}.get(
        model, np.linalg.inv(k).T @ models._cross(translation) @ np.linalg.inv(k)
    )
    units = models.Units.of(P, Q)
    x, y = units.of_points(P), units.of_points(Q)
    start = units.start(model, matrix, [k, k] if model == "essential" else None)
    fit = start.at(x, y)
    free = len(start.changes)
    for parameter in range(free):
        step = np.zeros(free)
        step[parameter] = 1e-6
        changed = [start.moved(sign * step).at(x, y).residuals for sign in (1, -1)]
        slope = (changed[0] - changed[1]) / 2e-6
        # A homography is divided by its norm, which does not change residuals.
        np.testing.assert_allclose(fit.slopes[:, :, parameter], slope, atol=1e-6, rtol=1e-5)


def test_normal_equations_are_those_of_the_slopes():
    units = models.Units.of(P, Q)
    fit = units.start("homography", H, None).at(units.of_points(P), units.of_points(Q))
    weights = RNG.uniform(0, 1, len(P))
    a, b, c = weights * fit.metric
    metric = np.stack([np.stack([a, b], 1), np.stack([b, c], 1)], 1)
    hessian, gradient = fit.equations(weights)
    np.testing.assert_allclose(
        hessian, np.einsum("mki,mkl,mlj->ij", fit.slopes, metric, fit.slopes), atol=1e-12
    )
    np.testing.assert_allclose(
        gradient, np.einsum("mki,mkl,ml->i", fit.slopes, metric, fit.residuals), atol=1e-12
    )
