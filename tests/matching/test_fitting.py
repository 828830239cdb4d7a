"""The last fit of a geometry is more accurate than random samples."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.bench.speed import setting
from caloric.matching import fitting, geometry, models, robust
from caloric.runtime import native

K = np.array([[900.0, 0, 500], [0, 880, 400], [0, 0, 1]])
HOMOGRAPHY = np.array([[1.1, 0.1, -30], [-0.05, 0.95, 20], [1e-4, -5e-5, 1]])


def scene(model, rng, n=300, noise=0.0):
    """Return matched points (n, 2) with noise, and the model."""
    if model in ("homography", "affine"):
        p = rng.uniform(0, [1000, 800], (n, 2))
        matrix = HOMOGRAPHY.copy()
        if model == "affine":
            matrix[2] = 0, 0, 1
        q = cv2.perspectiveTransform(p[None], matrix)[0]
        truth = matrix[:2] if model == "affine" else matrix
    else:
        rotation, translation = (
            cv2.Rodrigues(np.array([0.05, 0.2, -0.1]))[0],
            np.array([1, 0.2, 0.1]),
        )
        points = np.column_stack([rng.uniform(-3, 3, (n, 2)), rng.uniform(4, 9, n)])
        x = points @ K.T
        y = (points @ rotation.T + translation) @ K.T
        p, q = x[:, :2] / x[:, 2:], y[:, :2] / y[:, 2:]
        essential = models.cross(translation / np.linalg.norm(translation)) @ rotation
        truth = (
            essential if model == "essential" else np.linalg.inv(K).T @ essential @ np.linalg.inv(K)
        )
    return p, q + rng.normal(0, noise, q.shape) if noise else q, truth


def disturbed(truth, rng, model):
    """Return the model with an error of some pixels."""
    if model == "affine":
        return truth + rng.normal(0, 1, (2, 3)) * [1e-3, 1e-3, 1]
    if model == "homography":
        return truth + rng.normal(0, 1, (3, 3)) * [
            [1e-3, 1e-3, 1],
            [1e-3, 1e-3, 1],
            [1e-6, 1e-6, 0],
        ]
    if model == "essential":
        return cv2.Rodrigues(rng.normal(0, 1e-3, 3))[0] @ truth
    s = np.diag([1e-3, 1e-3, 1])
    return truth + np.linalg.norm(truth) * 1e-3 * s @ rng.normal(0, 1, (3, 3)) @ s


MODELS = ["homography", "affine", "fundamental", "essential"]


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_exact_matches_give_the_exact_model_despite_outliers(model, seed):
    rng = np.random.default_rng(seed)
    p, q, truth = scene(model, rng)
    q[:60] += rng.normal(0, 60, (60, 2))
    cameras = [K, K] if model == "essential" else None
    start = disturbed(truth, rng, model)
    fitted = fitting.fit(fitting.Correspondences(p, q, model, cameras), start, 4.0)
    # Some outliers are close to the model by chance and have a small weight.
    tolerance = 0.01 if model in ("homography", "affine") else 0.05
    assert models.residual(p[60:], q[60:], model, fitted, cameras).max() < tolerance
    if model in ("fundamental", "essential"):
        assert abs(np.linalg.det(fitted / np.linalg.norm(fitted))) < 1e-12


@pytest.mark.parametrize("model", MODELS)
def test_the_fit_of_noisy_matches_is_closer_to_the_truth_than_random_samples(model):
    rng = np.random.default_rng(1)
    p, q, truth = scene(model, rng, noise=0.3)
    cameras = [K, K] if model == "essential" else None
    fitted = fitting.fit(fitting.Correspondences(p, q, model, cameras), truth, 2.0)
    options = robust._parameters(0, 2, robust.THOROUGH.confidence)
    sampled = robust._by_opencv(fitting.Correspondences(p, q, model, cameras), options)
    clean = scene(model, rng)[:2]
    error = [
        np.sqrt(np.mean(models.residual(*clean, model, m, cameras) ** 2)) for m in (fitted, sampled)
    ]
    assert error[0] < 0.1
    # Weights by density, for scenes that are not exactly planar, cost some accuracy on a plane.
    assert error[0] < (1.3 if models.is_planar(model) else 1.0) * error[1]


def test_weights_follow_the_covariances():
    rng = np.random.default_rng(2)
    p, q, _ = scene("homography", rng)
    deviations = np.where(np.arange(len(p)) % 2 == 0, 0.02, 0.8)
    q = q + rng.normal(0, 1, q.shape) * deviations[:, None]
    covariances = deviations[:, None, None] ** 2 * np.eye(2)
    clean = scene("homography", np.random.default_rng(3))[:2]
    error = [
        np.median(
            models.residual(*clean, "homography", geometry.estimate(p, q, covariances=c).matrix)
        )
        for c in (None, covariances)
    ]
    assert error[1] < 0.6 * error[0]
    # Unrefined matches have a small weight, but still give a model if there are no others.
    covariances[::3] = np.diag([np.inf, np.inf])
    assert geometry.estimate(p, q, covariances=covariances)
    covariances[:] = np.diag([np.inf, np.inf])
    assert geometry.estimate(p, q, covariances=covariances)


@pytest.mark.parametrize("model", MODELS)
def test_degenerate_matches_give_a_finite_model(model):
    line = np.stack([np.arange(50.0), 2 * np.arange(50.0)], 1)
    cameras = [K, K] if model == "essential" else None
    start = np.eye(3)[:2] if model == "affine" else np.eye(3)
    for p, q in ((line, line), (line * 0, line * 0), (line, line[::-1] * 1e6)):
        assert np.isfinite(
            fitting.fit(fitting.Correspondences(p, q, model, cameras), start, 2.0)
        ).all()


@pytest.mark.parametrize("model", MODELS)
def test_the_fit_does_not_depend_on_the_order_of_the_images(model):
    rng = np.random.default_rng(4)
    p, q, truth = scene(model, rng, noise=0.4)
    cameras = [K, K] if model == "essential" else None
    start = disturbed(truth, rng, model)
    whole = start if len(start) == 3 else np.concatenate([start, [[0, 0, 1]]])
    back = np.linalg.inv(whole)[: len(start)] if models.is_planar(model) else start.T
    forward = fitting.fit(fitting.Correspondences(p, q, model, cameras), start, 2.0)
    again = fitting.fit(fitting.Correspondences(q, p, model, cameras), back, 2.0)
    residuals = models.residual(p, q, model, forward, cameras)
    np.testing.assert_allclose(models.residual(q, p, model, again, cameras), residuals, atol=0.02)


def test_a_bent_plane_is_fitted_over_the_whole_overlap():
    """Most matches are in one corner, and the surface is not exactly planar."""
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0, 300, (600, 2)), rng.uniform(0, [1000, 800], (100, 2))])
    truth = np.eye(3)

    def bent(points):
        return points + 2 * np.sin(points / 250) * [1, -1]

    start = np.asarray(cv2.findHomography(p[:600], bent(p[:600]), 0)[0])
    fitted = fitting.fit(fitting.Correspondences(p, bent(p), "homography"), start, 2.0)
    grid = np.stack(np.meshgrid(np.linspace(0, 999, 12), np.linspace(0, 799, 12)), -1)
    points = grid.reshape(-1, 2)
    errors = [
        np.linalg.norm(models.mapped(points, m) - bent(points), axis=1).mean()
        for m in (fitted, start, truth)
    ]
    assert errors[0] < 0.5 * errors[1]
    assert errors[0] < errors[2]


@pytest.mark.parametrize("model", MODELS)
def test_the_covariance_is_the_scatter_over_noisy_copies(model):
    cameras = [K, K] if model == "essential" else None
    squares, predicted = [], []
    p, q, truth = scene(model, np.random.default_rng(5), n=60)
    at = scene(model, np.random.default_rng(6), n=50)[:2]
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(0, 0.5, (2, len(p), 2))
        matches = fitting.Correspondences(p + noise[0], q + noise[1], model, cameras)
        matrix = fitting.fit(matches, truth, 4.0)
        covariance = fitting.covariance(matches, matrix, 4.0)
        predicted.append(models.errors(at, model, matrix, covariance, cameras) ** 2)
        if models.is_planar(model):
            squares.append(((models.mapped(at[0], matrix) - at[1]) ** 2).sum(1))
        else:
            squares.append(models.residual(*at, model, matrix, cameras) ** 2)
    ratio = np.sqrt(np.mean(squares, 0) / np.mean(predicted, 0))
    # Neighboring matches are counted as one, so that the prediction is cautious.
    assert 0.6 < np.median(ratio) < 1.2


def test_trusted_matches_are_fitted_if_they_suffice():
    rng = np.random.default_rng(7)
    p, q, truth = scene("homography", rng, noise=0.1)
    q[100:] += rng.normal(0, 1.5, (200, 2)) + 1  # others are imprecise and shifted
    clean = scene("homography", np.random.default_rng(8))[:2]

    def error(trusted):
        matches = fitting.Correspondences(p, q, "homography", None, None, None, trusted)
        fitted = fitting.fit(matches, truth, 3.0)
        return models.residual(*clean, "homography", fitted).mean()

    precise = np.arange(len(p)) < 100
    assert error(precise) < 0.3 * error(None)
    assert error(np.arange(len(p)) < 10) == error(None)  # too few


@pytest.mark.skipif(native.core() is None, reason="needs the compiled core")
@pytest.mark.parametrize("model", ["homography", "affine", "fundamental"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), noise=st.sampled_from([0.0, 0.5]))
def test_the_compiled_fit_agrees_with_numpy(model, seed, noise):
    rng = np.random.default_rng(seed)
    p, q, truth = scene(model, rng, noise=noise)
    q[:60] += rng.normal(0, 60, (60, 2))
    matches = fitting.Correspondences(p, q, model, variances=rng.uniform(0, 0.5, len(p)))
    start = disturbed(truth, rng, model)
    compiled = fitting.fit(matches, start, 4.0)
    with setting(**{native.SETTING: "0"}):
        plain = fitting.fit(matches, start, 4.0)
    changes = np.abs(models.residual(p, q, model, compiled) - models.residual(p, q, model, plain))
    assert changes.max() < 1e-6


@pytest.mark.parametrize("enabled", ["0", "1"])
def test_a_fit_that_matches_do_not_determine_is_finite(enabled):
    p = np.linspace(0, 100, 30)[:, None] * (1.0, 2.0)  # on a line
    with setting(**{native.SETTING: enabled}):
        for model, start in (("homography", np.eye(3)), ("fundamental", models.cross([1.0, 0, 0]))):
            fitted = fitting.fit(fitting.Correspondences(p, p, model), start, 2.0)
            assert np.isfinite(fitted).all()
