"""Models are found among outliers and fitted to the noise of the matches."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.bench.speed import setting
from caloric.matching import estimation, geometry, models
from caloric.matching.estimation import Correspondences
from caloric.runtime import native
from two_view_scenes import MODELS, SIZE, K, cameras, scene, with_outliers

needs_core = pytest.mark.skipif(native.core() is None, reason="needs the compiled core")


def correspondences(frames, model, with_frames=True, variances=None):
    p, q = (np.ascontiguousarray(maps[:, :, 2]) for maps in frames)
    return Correspondences(
        p, q, model, SIZE, cameras(model), variances, frames if with_frames else None
    )


def clean_residuals(model, matrix, seed=9):
    """Return the residuals of exact matches of the same scene."""
    frames, _ = scene(model, np.random.default_rng(seed), 200, noise=0)
    return correspondences(frames, model).residuals(matrix)


@pytest.mark.parametrize("with_frames", [False, True])
@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_exact_matches_give_the_exact_model_despite_outliers(model, with_frames, seed):
    rng = np.random.default_rng(seed)
    frames, _ = scene(model, rng, 200, noise=0, shapes=0.02)
    frames = with_outliers(frames, 60, rng)
    estimated_model = estimation.estimate(correspondences(frames, model, with_frames), seed)
    assert clean_residuals(model, estimated_model.matrix).max() < 0.05
    assert estimated_model.noise.sigma < 0.06
    if model in ("fundamental", "essential"):
        assert (
            abs(np.linalg.det(estimated_model.matrix / np.linalg.norm(estimated_model.matrix)))
            < 1e-12
        )


@pytest.mark.parametrize("noise", [0.05, 0.2, 0.6])
@pytest.mark.parametrize("model", MODELS)
def test_the_noise_is_estimated(model, noise):
    """The noise in one image is divided by the square root of 2 in Sampson's distance."""
    rng = np.random.default_rng(1)
    frames, _ = scene(model, rng, 400, noise=noise)
    frames = with_outliers(frames, 120, rng)
    estimated_model = estimation.estimate(correspondences(frames, model))
    # Half of the matches are assumed to be less precise; homographies reduce the second image.
    assert 0.1 * noise < estimated_model.noise.sigma < max(1.1 * noise, 0.06)
    assert 0.55 < estimated_model.noise.share < 0.8
    assert clean_residuals(model, estimated_model.matrix).mean() < 0.3 * noise + 0.01


@pytest.mark.parametrize("model", MODELS)
def test_one_correct_match_in_ten_is_enough(model):
    outliers, inliers = 360, 40
    for seed in range(3):
        rng = np.random.default_rng(seed)
        frames, _ = scene(model, rng, outliers + inliers)
        frames = with_outliers(frames, outliers, rng)
        p, q = frames[0][:, :, 2], frames[1][:, :, 2]
        known = (K, K) if model == "essential" else None
        result = geometry.estimate(
            p, q, model=model, intrinsics=known, size=SIZE, size_a=SIZE, frames=frames
        )
        assert result or model in ("fundamental", "essential")
        assert result.inliers[outliers:].mean() > 0.9
        assert np.median(clean_residuals(model, result.matrix)) < 1.5


@pytest.mark.slow
def test_many_unrelated_matches_have_no_reliable_geometry():
    """Without a ratio test there are thousands of unrelated matches; frames are sampled too."""
    for model in ("fundamental", "essential"):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            frames, _ = scene(model, rng, 1500)
            frames = with_outliers(frames, 1500, rng)
            p, q = (maps[:, :, 2] for maps in frames)
            known = (K, K) if model == "essential" else None
            assert not geometry.estimate(
                p, q, model=model, intrinsics=known, size=SIZE, size_a=SIZE, frames=frames
            )


@pytest.mark.parametrize("model", MODELS)
def test_the_estimate_does_not_depend_on_the_order_of_the_images(model):
    frames, _ = scene(model, np.random.default_rng(4), 300, noise=0.4)
    forward = correspondences(frames, model)
    back = correspondences(frames[::-1], model)
    matrices = [estimation.estimate(matches).matrix for matches in (forward, back)]
    residuals = [m.residuals(x) for m, x in zip((forward, back), matrices, strict=True)]
    np.testing.assert_allclose(residuals[0], residuals[1], atol=0.1)


def test_a_bent_plane_is_fitted_over_the_whole_overlap():
    """Most matches are in one corner, and the surface is not exactly planar."""
    rng = np.random.default_rng(0)
    p = np.concatenate([rng.uniform(0, 300, (600, 2)), rng.uniform(0, [1000, 800], (100, 2))])

    def bent(points):
        return points + 2 * np.sin(points / 250) * [1, -1]

    in_corner = np.asarray(cv2.findHomography(p[:600], bent(p[:600]), 0)[0])
    fitted = estimation.estimate(Correspondences(p, bent(p), "homography", SIZE)).matrix
    grid = np.stack(np.meshgrid(np.linspace(0, 999, 12), np.linspace(0, 799, 12)), -1)
    points = grid.reshape(-1, 2)
    errors = [
        np.linalg.norm(models.mapped(points, m) - bent(points), axis=1).mean()
        for m in (fitted, in_corner)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_weights_follow_the_covariances():
    rng = np.random.default_rng(2)
    frames, _ = scene("homography", rng, 300, noise=0)
    p, q = (maps[:, :, 2] for maps in frames)
    deviations = np.where(np.arange(len(p)) % 2 == 0, 0.02, 0.8)
    q = q + rng.normal(0, 1, q.shape) * deviations[:, None]
    covariances = deviations[:, None, None] ** 2 * np.eye(2)
    results = [geometry.estimate(p, q, covariances=c) for c in (None, covariances)]
    errors = [np.median(clean_residuals("homography", g.matrix)) for g in results]
    assert errors[1] < errors[0] + 0.01
    # Unrefined matches have a small weight, but still give a model if there are no others.
    covariances[::3] = np.diag([np.inf, np.inf])
    assert geometry.estimate(p, q, covariances=covariances)
    covariances[:] = np.diag([np.inf, np.inf])
    assert geometry.estimate(p, q, covariances=covariances)


@pytest.mark.parametrize("model", MODELS)
def test_the_covariance_is_the_scatter_over_noisy_copies(model):
    squares, predicted = [], []
    frames, _ = scene(model, np.random.default_rng(5), 60, noise=0)
    exact = correspondences(frames, model, with_frames=False)
    at = scene(model, np.random.default_rng(6), 50, noise=0)[0]
    a, b = (maps[:, :, 2] for maps in at)
    for seed in range(60):
        noise = np.random.default_rng(seed).normal(0, 0.5, (2, 60, 2))
        matches = Correspondences(
            exact.p + noise[0], exact.q + noise[1], model, SIZE, cameras(model)
        )
        estimated_model = estimation.estimate(matches, seed)
        expected = models.errors(
            (a, b), model, estimated_model.matrix, estimated_model.covariance, cameras(model)
        )
        predicted.append(expected**2)
        if models.is_planar(model):
            squares.append(((models.mapped(a, estimated_model.matrix) - b) ** 2).sum(1))
        else:
            squares.append(
                models.residual(a, b, model, estimated_model.matrix, cameras(model)) ** 2
            )
    ratio = np.sqrt(np.mean(squares, 0) / np.mean(predicted, 0))
    assert 0.6 < np.median(ratio) < 1.5


@pytest.mark.parametrize("enabled", ["0", "1"])
@pytest.mark.parametrize("model", MODELS)
def test_degenerate_matches_give_a_finite_model_or_none(model, enabled):
    line = np.stack([np.arange(50.0), 2 * np.arange(50.0)], 1)
    with setting(**{native.SETTING: enabled}):
        for p, q in ((line, line), (line * 0, line * 0), (line, line[::-1] * 1e6)):
            matches = Correspondences(p, q, model, SIZE, cameras(model))
            start = np.eye(3)[:2] if model == "affine" else np.eye(3)
            for estimated_model in (
                estimation.estimate(matches),
                estimation.estimate(matches, start=start),
            ):
                assert estimated_model is None or np.isfinite(estimated_model.matrix).all()


@needs_core
@pytest.mark.parametrize("with_frames", [False, True])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_compiled_core_agrees_with_numpy(model, with_frames, seed):
    rng = np.random.default_rng(seed)
    frames, truth = scene(model, rng, 250, noise=0.2)
    frames = with_outliers(frames, 80, rng)
    matches = correspondences(frames, model, with_frames, rng.uniform(0, 0.5, 250))
    for start in (None, truth):
        compiled = estimation.estimate(matches, seed, start=start)
        with setting(**{native.SETTING: "0"}):
            plain = estimation.estimate(matches, seed, start=start)
        difference = np.abs(matches.residuals(compiled.matrix) - matches.residuals(plain.matrix))
        assert difference[80:].max() < 1e-4
        assert compiled.likelihood == pytest.approx(plain.likelihood, rel=1e-6)
        assert compiled.noise.sigma == pytest.approx(plain.noise.sigma, rel=1e-4)
        np.testing.assert_allclose(
            compiled.covariance, plain.covariance,
            atol=1e-3 * np.abs(plain.covariance).max(),
        )  # fmt: skip


@needs_core
def test_residuals_agree_with_numpy():
    rng = np.random.default_rng(0)
    p, q = rng.uniform(0, 1000, (2, 500, 2))
    for model in ("homography", "affine", "fundamental"):
        matrix = scene(model, rng, 10)[1]
        compiled = models.residual(p, q, model, matrix)
        with setting(**{native.SETTING: "0"}):
            plain = models.residual(p, q, model, matrix)
        np.testing.assert_allclose(compiled, plain, rtol=1e-9)


@needs_core
def test_invalid_arguments_of_the_core_are_rejected(monkeypatch):
    frames, _ = scene("homography", np.random.default_rng(0), 30)
    matches, calls = correspondences(frames, "homography"), []
    core = native.core()

    class Recorder:
        def estimate(self, **arguments):
            calls.append(arguments)
            return core.estimate(**arguments)

    monkeypatch.setattr(native, "core", Recorder)
    estimation.estimate(matches)
    (known,) = calls
    core.estimate(**known)

    def noise(changes):
        constants, *table = known["noise"]
        return (constants | changes, *table)

    for changes, message in (
        ({"variances": np.zeros(3)}, "one per match"),
        ({"second": None}, "expected both or none"),
        ({"model": 4}, "model"),
        ({"model": 3}, "cameras"),
        ({"sizes": (0, 2)}, "sizes"),
        ({"x": np.full((30, 2), np.nan)}, "finite"),
        ({"noise": noise({"min_sigma": -1.0})}, "deviations"),
        ({"noise": noise({"other": 1.0})}, "'other' is unknown"),
        ({"search": known["search"] | {"pools": 0}}, "pools"),
    ):
        with pytest.raises(ValueError, match=message):
            core.estimate(**(known | changes))


MATRIX = np.array([[1.1, 0.05, 20.0], [-0.04, 0.95, -8.0], [1e-4, -5e-5, 1.0]])


@pytest.fixture
def matches():
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 500, (200, 2))
    q = cv2.perspectiveTransform(p[:, None], MATRIX)[:, 0] + rng.normal(0, 0.1, (200, 2))
    q[:60] = rng.uniform(0, 500, (60, 2))
    return p, q


def test_another_estimator_can_be_used(matches):
    calls = []

    def by_ransac(given, threshold, seed):
        calls.append((len(given), given.model, threshold, seed))
        return cv2.findHomography(given.p, given.q, cv2.RANSAC, threshold)[0]

    ours = geometry.estimate(*matches)
    other = geometry.estimate(*matches, threshold=3.0, seed=4, estimator=by_ransac)
    assert calls == [(200, "homography", 3.0, 4)]
    assert other.confidence > 0.9
    assert (ours.inliers[60:] & other.inliers[60:]).sum() >= 130
    geometry.estimate(*matches, estimator=by_ransac)
    assert calls[-1][2] == 2.0


def test_an_estimator_that_finds_nothing_gives_no_geometry(matches):
    nothing = geometry.estimate(*matches, estimator=lambda *_: None)
    assert nothing.matrix is None
    assert not nothing
