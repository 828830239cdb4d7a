"""Estimation of every model from matches with outliers."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

import caloric
from caloric.errors import InputError
from caloric.matching import geometry, models, selection


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


def _rotated(points, angle):
    c, s = np.cos(angle), np.sin(angle)
    return points @ np.array([[c, s], [-s, c]])


@pytest.mark.parametrize("model", ["homography", "affine", "fundamental", "auto"])
@pytest.mark.parametrize(
    "kind", ["collinear", "duplicates", "one position", "four", "unrelated", "tiny overlap"]
)
def test_degenerate_matches_have_a_low_confidence_and_a_reason(model, kind):
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 500, (60, 2))
    if kind == "collinear":
        p = np.stack([np.arange(60.0), 2 * np.arange(60.0)], 1)
    elif kind == "duplicates":
        p = np.repeat(p[:4], 15, 0)
    elif kind == "one position":
        p = np.zeros((60, 2))
    elif kind == "four":
        p = p[:4]
    elif kind == "tiny overlap":
        p = rng.uniform(498, 499, (60, 2))
    q = rng.uniform(0, 500, p.shape) if kind == "unrelated" else p + 3
    if kind == "tiny overlap":
        q = p - 498
    options = {"size": (500, 500), "size_a": (500, 500)}
    if model == "auto":
        result = selection.estimate(p, q, **options)
    else:
        result = geometry.estimate(p, q, model=model, **options)
    assert result.confidence < 0.5
    assert result.reason


def test_mirrored_images_have_no_homography():
    p = np.random.default_rng(0).uniform(0, 500, (80, 2))
    result = geometry.estimate(p, p * [-1, 1] + [500, 0])
    assert not result
    assert result.reason


@pytest.mark.parametrize("angle", [0.0, 0.4])
def test_exact_maps_are_reliable(angle):
    p = np.random.default_rng(0).uniform(0, 500, (80, 2))
    q = _rotated(p, angle)
    result = geometry.estimate(p, q, size=(500, 500), size_a=(500, 500))
    assert result.confidence > 0.9
    assert result.reason == ""
    assert result.inliers.all()


def test_the_expected_error_grows_away_from_the_inliers():
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 150, (60, 2))
    result = geometry.estimate(p, p + rng.normal(0, 0.5, p.shape), size=(500, 500))
    near, far = result.error_at([[75, 75], [490, 490]])
    assert near < 1
    assert far > 5 * near
    lines = geometry.estimate(p, p + rng.normal(0, 20, p.shape) * (1, 0), model="fundamental")
    with pytest.raises(InputError, match="error_at"):
        lines.error_at(p)
    assert lines.error_at(p, p).shape == (60,)
    none = geometry.estimate(p[:3], p[:3])
    assert np.isinf(none.error_at(p)).all()


def test_the_geometry_does_not_depend_on_the_order_of_the_images():
    rng = np.random.default_rng(3)
    p = rng.uniform(0, 800, (300, 2))
    matrix = np.array([[0.3, 0.05, 100], [-0.02, 0.9, 40], [1e-4, 0, 1]])
    q = models.mapped(p, matrix) + rng.normal(0, 0.4, p.shape)
    q[:90] = rng.uniform(0, 600, (90, 2))
    forward, back = geometry.estimate(p, q), geometry.estimate(q, p)
    grid = np.stack(np.meshgrid(np.linspace(0, 800, 9), np.linspace(0, 800, 9)), -1).reshape(-1, 2)
    returned = models.mapped(models.mapped(grid, forward.matrix), back.matrix)
    assert np.abs(returned - grid).max() < 0.5
    assert (forward.inliers == back.inliers).mean() > 0.98
    assert abs(forward.confidence - back.confidence) < 0.05


def test_a_plane_is_evidence_for_its_epipolar_geometry():
    """The epipolar geometry of a plane is not unique, but points of the plane agree with it."""
    p = np.random.default_rng(0).uniform(0, 500, (300, 2))
    q = models.mapped(p, np.array([[0.9, 0.1, 5], [-0.1, 1.05, 9], [1e-4, 5e-5, 1]]))
    noise = np.random.default_rng(1).normal(0, 0.3, q.shape)
    for points in (q, q + noise):
        result = geometry.estimate(p, points, model="fundamental", size=(500, 500))
        assert result.confidence > 0.9


def test_a_second_fit_that_loses_inliers_is_not_used(monkeypatch):
    """Steps of the fit can diverge, for example in almost planar scenes."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 400, (60, 2))
    q = p + np.array([5, 7]) + rng.normal(0, 0.2, p.shape)
    known = geometry.estimate(p, q, model="homography")
    refitted = geometry.refitted(known, p, q, None, None, None)
    assert len(refitted) >= 58
    fitted = geometry.estimation.estimate
    monkeypatch.setattr(
        geometry.estimation, "estimate",
        lambda *a, **k: replace(fitted(*a, **k), matrix=np.diag([1.0, 1.0, 2.0])),
    )  # fmt: skip
    kept = geometry.refitted(known, p, q, None, None, None)
    np.testing.assert_array_equal(kept.matrix, known.matrix)
    assert len(kept) == len(known)


def test_repeated_structure_is_not_excluded_without_descriptors():
    a, b, _, _ = scene("fundamental", outliers=0.1)
    result = geometry.estimate(a, b, model="fundamental")
    assert result
    assert "repeated structure was not excluded" in result.reason
    assert geometry.estimate(a, b, model="homography").reason != result.reason
