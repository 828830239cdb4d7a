"""Samples of frames find models if few matches are correct, and are evidence for them."""

import cv2
import numpy as np
import pytest

import caloric
from caloric.matching import geometry, models, sampling
from caloric.matching.models import residual

K = np.array([[900.0, 0, 500], [0, 880, 400], [0, 0, 1]])
MODELS = ["homography", "affine", "fundamental", "essential"]
SIZE = (800, 1000)


def derivative(matrix, points):
    """Return the derivatives (n, 2, 2) of a homography at points (n, 2)."""
    z = models.homogeneous(points) @ matrix.T
    mapped = z[:, :2] / z[:, 2:]
    return (matrix[:2, :2] - mapped[:, :, None] * matrix[2, :2]) / z[:, 2, None, None]


def scene(model, rng, n, noise=0.1, shapes=0.05):
    """Return matched frames (n, 2, 3) on surfaces in two images, and the true model."""
    if model in ("homography", "affine"):
        p = rng.uniform([100, 100], [900, 700], (n, 2))
        truth = np.array([[0.5, 0.1, 200], [-0.2, 0.9, 60], [2e-4, -1e-4, 1]])
        if model == "affine":
            truth[2] = 0, 0, 1
        q, local = cv2.perspectiveTransform(p[None], truth)[0], derivative(truth, p)
        truth = truth[:2] if model == "affine" else truth
    else:
        rotation = cv2.Rodrigues(np.array([0.05, 0.4, -0.1]))[0]
        translation = np.array([2, 0.2, 0.1])
        points = np.column_stack([rng.uniform(-2, 2, (n, 2)), rng.uniform(5, 9, n)])
        normals = np.column_stack([rng.normal(0, 0.4, (n, 2)), np.ones(n)])
        p = (points @ K.T)[:, :2] / points[:, 2:]
        moved = points @ rotation.T + translation
        q = (moved @ K.T)[:, :2] / moved[:, 2:]
        local = np.empty((n, 2, 2))
        for i, (normal, point) in enumerate(zip(normals, points, strict=True)):
            plane = rotation + np.outer(translation, normal) / (normal @ point)
            local[i] = derivative(K @ plane @ np.linalg.inv(K), p[i : i + 1])[0]
        essential = models.cross(translation / np.linalg.norm(translation)) @ rotation
        inverse = np.linalg.inv(K)
        truth = essential if model == "essential" else inverse.T @ essential @ inverse
    sigma, angle = rng.uniform(2, 8, n), rng.uniform(0, 2 * np.pi, n)
    frames = caloric.Frames.from_xysa(p[:, 0], p[:, 1], sigma, angle).maps
    shaped = local @ frames[:, :, :2] @ (np.eye(2) + shapes * rng.normal(0, 1, (n, 2, 2)))
    second = np.concatenate([shaped, (q + rng.normal(0, noise, q.shape))[:, :, None]], 2)
    return (frames.copy(), second), truth


def with_outliers(frames, count, rng):
    """Return the frames with the first ``count`` matches replaced by unrelated ones."""
    first, second = (maps.copy() for maps in frames)
    shuffled = rng.permutation(count)
    second[:count, :, :2] = second[shuffled, :, :2]
    second[:count, :, 2] = rng.uniform(0, SIZE[::-1], (count, 2))
    return first, second


@pytest.mark.parametrize("model", ["homography", "fundamental"])
def test_any_sample_of_exact_frames_gives_the_true_model(model):
    """Two matches determine a homography, three a fundamental matrix, before any fit."""
    rng = np.random.default_rng(0)
    frames, _ = scene(model, rng, 40, noise=0, shapes=0)
    equations = sampling._Equations.of(frames, model)
    size = sampling._SAMPLE_SIZE[model]
    samples = np.stack([rng.permutation(40)[:size] for _ in range(30)])
    solved = equations.in_pixels(equations.solved(equations.squares[samples].sum(1)))
    residuals = [residual(frames[0][:, :, 2], frames[1][:, :, 2], model, m) for m in solved]
    # A few samples are degenerate: matches on a line through an epipole.
    assert (np.max(residuals, 1) < 1e-3).mean() > 0.9


@pytest.mark.parametrize("model", MODELS)
def test_samples_find_the_model_of_exact_matches(model):
    rng = np.random.default_rng(0)
    frames, truth = scene(model, rng, 30, noise=0)
    cameras = [K, K] if model == "essential" else None
    matrix = sampling.search(frames, model, 2.0, 0, cameras)
    p, q = (maps[:, :, 2] for maps in frames)
    assert residual(p, q, model, matrix, cameras).max() < 1e-6
    assert residual(p, q, model, truth, cameras).max() < 1e-6


@pytest.mark.slow
def test_many_unrelated_matches_have_no_reliable_geometry():
    """Without a ratio test there are thousands of unrelated matches; frames are sampled too."""
    for model in ("fundamental", "essential"):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            frames, _ = scene(model, rng, 1500)
            frames = with_outliers(frames, 1500, rng)
            p, q = (maps[:, :, 2] for maps in frames)
            cameras = (K, K) if model == "essential" else None
            assert not geometry.estimate(
                p, q, model=model, intrinsics=cameras, size=SIZE, size_a=SIZE, frames=frames
            )


@pytest.mark.parametrize("model", MODELS)
def test_one_correct_match_in_ten_is_enough(model):
    outliers, inliers = 360, 40
    for seed in range(3):
        rng = np.random.default_rng(seed)
        frames, _ = scene(model, rng, outliers + inliers)
        frames = with_outliers(frames, outliers, rng)
        p, q = frames[0][:, :, 2], frames[1][:, :, 2]
        cameras = (K, K) if model == "essential" else None
        estimate = geometry.estimate(
            p, q, model=model, intrinsics=cameras, size=SIZE, size_a=SIZE, frames=frames
        )
        assert estimate or model in ("fundamental", "essential")
        assert estimate.inliers[outliers:].mean() > 0.9
        clean = scene(model, np.random.default_rng(seed), outliers + inliers, noise=0)[0]
        residuals = residual(
            clean[0][:, :, 2], clean[1][:, :, 2], model, estimate.matrix,
            None if cameras is None else list(cameras),
        )  # fmt: skip
        assert np.median(residuals) < 1.5


def test_frames_that_disagree_lower_the_confidence():
    rng = np.random.default_rng(0)
    frames, _ = scene("homography", rng, 60)
    frames = with_outliers(frames, 52, rng)
    p, q = frames[0][:, :, 2], frames[1][:, :, 2]
    agreeing = geometry.estimate(p, q, size=SIZE, size_a=SIZE, frames=frames)
    mirrored = frames[1].copy()
    mirrored[:, :, :2] = mirrored[:, :, 1::-1]
    other = geometry.estimate(p, q, size=SIZE, size_a=SIZE, frames=(frames[0], mirrored))
    assert agreeing.confidence > 0.4
    assert other.confidence < agreeing.confidence - 0.05
