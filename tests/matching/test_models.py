"""Residuals of models and their derivatives."""

import numpy as np
import pytest

from caloric.matching import models
from caloric.matching.models import Model

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


K = np.array([[900.0, 0, 500], [0, 880, 400], [0, 0, 1]])
ESSENTIAL = models.cross(np.array([1.0, 0.2, 0.1]))
MATRICES = {
    "homography": H, "affine": H[:2], "essential": ESSENTIAL,
    "fundamental": np.linalg.inv(K).T @ ESSENTIAL @ np.linalg.inv(K),
}  # fmt: skip


@pytest.mark.parametrize("model", MATRICES)
def test_slopes_are_the_derivatives_of_residuals(model):
    units = models.Units.of(P, Q)
    known = None if model != "essential" else [units.unit @ K] * 2
    x, y = units.of_points(P), units.of_points(Q)
    start = Model.of(model, units.normalized(model, MATRICES[model]), known)
    changes = start.of_residuals(start.changes).reshape(-1, 9)
    fit = start.fit(x, y)
    slopes = fit.slopes @ changes.T
    for parameter in range(len(changes)):
        step = np.zeros(len(changes))
        step[parameter] = 1e-6
        both = [start.moved(sign * step) for sign in (1, -1)]
        if models.is_planar(model):
            change = models.mapped(x, both[0].matrix) - models.mapped(x, both[1].matrix)
            # A multiple of the first coordinate is subtracted from the second one.
            change[:, 1] += fit.slopes[:, 1, 0] / fit.slopes[:, 0, 0] * change[:, 0]
        else:  # divided by the deviation, which changes too
            fits = [each.fit(x, y) for each in both]
            first, second = (each.residuals * np.sqrt(each.precisions) for each in fits)
            change = (first - second) / np.sqrt(fit.precisions)
        np.testing.assert_allclose(slopes[..., parameter], change / 2e-6, atol=1e-6, rtol=1e-5)


def test_normal_equations_are_those_of_the_slopes():
    for planar in (True, False):
        fit = models.fit(planar, H, P / 1000, Q / 1000)
        weights = RNG.uniform(0, 1, len(P))
        factors = weights[:, None] * fit.precisions
        hessian, gradient = fit.equations(weights)
        np.testing.assert_allclose(
            hessian, np.einsum("mki,mk,mkj->ij", fit.slopes, factors, fit.slopes)
        )
        np.testing.assert_allclose(
            gradient, np.einsum("mki,mk,mk->i", fit.slopes, factors, fit.residuals)
        )


def distances(matrix, p, q):
    fit = models.fit(False, matrix, p, q)
    return (fit.residuals * np.sqrt(fit.precisions))[:, 0]


@pytest.mark.parametrize("model", MATRICES)
def test_expected_errors_are_those_of_disturbed_matrices(model):
    """The covariance is that of small random changes of the entries."""
    matrix, cameras = MATRICES[model], [K, K] if model == "essential" else None
    rng = np.random.default_rng(1)
    scale = 1e-5 * np.abs(matrix).mean()
    changes = scale * rng.normal(size=(4000, matrix.size))
    covariance = changes.T @ changes / len(changes)
    at = P[:5], Q[:5]
    predicted = models.errors(at, model, matrix, covariance, cameras)
    squares = np.zeros(5)
    for change in changes:
        disturbed = matrix + change.reshape(matrix.shape)
        if models.is_planar(model):
            difference = models.mapped(at[0], disturbed) - models.mapped(at[0], matrix)
            squares += (difference**2).sum(1)
        else:
            first, second = (
                distances(models.in_pixels(m, cameras), *at) for m in (matrix, disturbed)
            )
            squares += (second - first) ** 2
    np.testing.assert_allclose(predicted, np.sqrt(squares / len(changes)), rtol=0.05)
