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
    start = models.in_normalized(model, units.normalized(model, MATRICES[model]), known)

    def fit(current):
        kind = models.PlaneFit if models.is_planar(model) else models.LineFit
        return kind.of(current.in_units(current.matrix), x, y)

    changes = start.in_units(start.changes).reshape(-1, 9)
    slopes = fit(start).slopes @ changes.T
    for parameter in range(len(changes)):
        step = np.zeros(len(changes))
        step[parameter] = 1e-6
        changed = [fit(start.moved(sign * step)).residuals for sign in (1, -1)]
        slope = (changed[0] - changed[1]) / 2e-6
        # A homography is divided by its norm, which does not change residuals.
        np.testing.assert_allclose(slopes[..., parameter], slope, atol=1e-6, rtol=1e-5)


def test_normal_equations_are_those_of_the_slopes():
    units = models.Units.of(P, Q)
    start = models.in_normalized("homography", units.normalized("homography", H), None)
    fit = models.PlaneFit.of(start.matrix, units.of_points(P), units.of_points(Q))
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
                models.LineFit.of(models.in_pixels(m, cameras), *at).residuals
                for m in (matrix, disturbed)
            )
            squares += (second - first) ** 2
    np.testing.assert_allclose(predicted, np.sqrt(squares / len(changes)), rtol=0.05)
