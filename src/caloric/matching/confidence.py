"""The probability that an estimated geometry is correct.

The evidence for a planar model has three parts:

* N, the logarithm of the number of false alarms (Moisan and Stival, 2004): of models with as many
  inliers that unrelated matches are expected to give. Either all inliers are counted, or only those
  whose frames agree with the model, which happens by chance for one unrelated match in twenty.
* e, the predicted error in pixels: the median over the image of the standard deviation of mapped
  points, which follows from the residuals of the inliers.
* s, the share of inliers whose frames agree, or without frames the logarithm of the number of
  inliers.

A logistic regression combines them, with N limited to −40 … 10::

    confidence = 1 / (1 + exp(−(a + b N + c log e + d s)))

The coefficients were fitted to whether the error is below 5 pixels, over related and unrelated
image pairs (``python -m tools wide``). For epipolar geometries, N alone is used:
1 / (1 + 10^(N + 2)).
"""

from dataclasses import dataclass
from math import exp, inf, lgamma, log, log10

import numpy as np
from numpy.typing import NDArray

from caloric.frames import sigmas
from caloric.matching import fitting
from caloric.types import FloatArray, GeometryModel

NEEDED = {"homography": 4, "fundamental": 7, "essential": 5, "affine": 3}  # matches per sample
_SOLUTIONS = {"homography": 1, "fundamental": 3, "essential": 10, "affine": 1}  # per sample
_FRAMES = 2  # matches per sample of a planar model, with frames
# Frames agree if the model maps points on their unit circle to within this many σ.
_AGREEMENT_THRESHOLD = 0.75
_CHANCE_AGREEMENT = 0.05  # upper bound on the share of unrelated inliers whose frames agree
_MIN_POWER, _MAX_POWER = -40.0, 10.0
_MIN_ERROR, _MAX_ERROR = 0.05, 50.0  # pixels
_BAND = 2**0.5  # ratio of equal distances from both lines to Sampson's distance
_EPIPOLAR_PENALTY = 2.0  # orders of magnitude: epipolar geometries are searched for in more ways
_GRID = 8  # points across and down at which errors are predicted
# Coefficients a, b, c, d of the regression, with and without frames.
WITH_FRAMES = (-3.903, -0.286, -0.366, 3.594)
WITHOUT = (-10.367, -0.226, -0.082, 4.174)


@dataclass(frozen=True)
class Evidence:
    """The evidence for a geometry.

    ``power`` is log10 of the expected number of false alarms, ``error`` the predicted error of a
    planar model in pixels (None for others), ``agreement`` the share of inliers whose frames agree
    (None without frames), and ``inliers`` the number of inliers.
    """

    power: float
    error: float | None
    agreement: float | None
    inliers: int

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """The regressors 1, N, log e and s, for planar models."""
        assert self.error is not None
        last = log(max(self.inliers, 1)) if self.agreement is None else self.agreement
        error = min(max(self.error, _MIN_ERROR), _MAX_ERROR)
        return 1.0, min(max(self.power, _MIN_POWER), _MAX_POWER), log(error), last

    @property
    def confidence(self) -> float:
        """The probability that the geometry is correct."""
        if self.power == inf:
            return 0.0
        if self.error is None:
            return 1 / (1 + 10 ** min(self.power + _EPIPOLAR_PENALTY, 99.0))
        coefficients = WITHOUT if self.agreement is None else WITH_FRAMES
        return 1 / (1 + exp(-sum(c * t for c, t in zip(coefficients, self.terms, strict=True))))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model estimated from matches p and q (m, 2), and their residuals (m,) in pixels.

    ``sizes`` are the sizes (h, w) of both images, ``frames`` the matched frames (m, 2, 3) if known.
    """

    model: GeometryModel
    matrix: FloatArray
    p: FloatArray
    q: FloatArray
    residuals: FloatArray
    threshold: float
    sizes: tuple[tuple[float, float], tuple[float, float]]
    frames: tuple[FloatArray, FloatArray] | None = None
    cameras: list[FloatArray] | None = None

    @property
    def planar(self) -> bool:
        """Whether the model maps points to points."""
        return self.model in ("homography", "affine")


def evidence(estimate: Estimate) -> Evidence:
    """Return the evidence for an estimated model."""
    inliers = estimate.residuals <= estimate.threshold
    count = int(inliers.sum())
    counted = inliers
    if not estimate.planar:
        # Sampson's distance may be small far from one of the two epipolar lines, which would make
        # inliers by chance more likely.
        distances = fitting.line_distances(
            estimate.p, estimate.q, estimate.matrix, estimate.cameras
        )
        counted = inliers & (distances <= _BAND * estimate.threshold)
    power = false_alarms(estimate, counted, NEEDED[estimate.model], 1.0)
    agreement = None
    if estimate.frames is not None and estimate.planar:
        agreeing = inliers & agreeing_frames(estimate)
        agreement = float(agreeing.sum() / max(count, 1))
        power = min(power, false_alarms(estimate, agreeing, _FRAMES, _CHANCE_AGREEMENT))
    error = predicted_error(estimate) if estimate.planar else None
    return Evidence(power, error, agreement, count)


def false_alarms(
    estimate: Estimate, inliers: NDArray[np.bool_], needed: int, share: float
) -> float:
    """Return log10 of the expected number of models with as many inliers among unrelated matches.

    The number is (n − s) C(n, k) C(k, s) α^(k − s) for k inliers of n matches and models from
    s = ``needed`` matches. α is the probability that an unrelated match is an inlier: the share of
    the image that a disc around a point covers, or a band around an epipolar line, times ``share``.
    Features at the same position count once.
    """
    p, q, threshold = estimate.p, estimate.q, estimate.threshold
    n, k = _distinct(p, q, threshold), _distinct(p[inliers], q[inliers], threshold)
    if k <= needed:
        return inf
    h, w = estimate.sizes[1]
    covered = np.pi * threshold**2 if estimate.planar else 2 * _BAND * threshold * np.hypot(h, w)
    chance = share * min(1.0, covered / (h * w))
    models = log10(_SOLUTIONS[estimate.model] * max(n - needed, 1))
    models += _log_binomial(n, k) + _log_binomial(k, needed)
    return float(models + (k - needed) * log10(chance))


def _distinct(p: FloatArray, q: FloatArray, threshold: float) -> int:
    """Return the number of matches whose positions differ in both images."""
    for _ in range(2):
        _, first = np.unique(np.round(p / (2 * threshold)), axis=0, return_index=True)
        p, q = q[first], p[first]
    return len(p)


def _log_binomial(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def agreeing_frames(estimate: Estimate) -> NDArray[np.bool_]:
    """Return a mask (m,) of the matches whose frames the model maps onto each other."""
    assert estimate.frames is not None
    a, b = estimate.frames
    sigma, worst = sigmas(b), np.zeros(len(a))
    for column in range(2):
        for sign in (-1, 1):
            p, q = (maps[:, :, 2] + sign * maps[:, :, column] for maps in (a, b))
            residuals = fitting.residual(p, q, estimate.model, estimate.matrix, estimate.cameras)
            worst = np.maximum(worst, residuals / sigma)
    return np.asarray(worst <= _AGREEMENT_THRESHOLD)


def predicted_error(estimate: Estimate) -> float:
    """Return the predicted error of a planar model in pixels.

    It is the median standard deviation of points of the first image mapped into the second.
    """
    (h, w), (height, width) = estimate.sizes
    across, down = np.linspace(0, w - 1, _GRID), np.linspace(0, h - 1, _GRID)
    points = np.stack(np.meshgrid(across, down), -1).reshape(-1, 2)
    inliers = estimate.residuals <= estimate.threshold
    mapped, deviations = fitting.uncertainty(
        estimate.p[inliers], estimate.q[inliers], estimate.model, estimate.matrix, points
    )
    visible = ((mapped >= 0) & (mapped <= np.array([width, height]) - 1)).all(1)
    return float(np.median(deviations[visible])) if visible.any() else inf
