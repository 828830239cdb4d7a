"""The probability that a geometry is right, from evidence that chance does not give.

Three things are known of a geometry. How many models with as many inliers chance would give
(Moisan and Stival, 2004): of the points, or of those whose frames agree with the model, which among
unrelated matches one in twenty does. How far a planar model is off, in the median over the image,
as its inliers predict by the curvature of their fit. And the share of inliers whose frames agree.
They are combined by a logistic regression::

    confidence = 1 / (1 + exp(−(a + b N + c log e + d s)))

with N, within −40 to 10, the logarithm of the number of models, e the predicted error in pixels and
s the share, or the logarithm of the number of inliers where there are no frames. The coefficients
are those of "the geometry is right within 5 pixels" over pairs that show the same and pairs that do
not (``python -m tools wide``). For epipolar geometries, of which a pair of planes has many, it is
the number of models alone: 1 / (1 + 10^(N + 2)).
"""

from dataclasses import dataclass
from math import exp, inf, lgamma, log, log10

import numpy as np
from numpy.typing import NDArray

from caloric.frames import sigmas
from caloric.matching import fitting
from caloric.types import FloatArray, GeometryModel

NEEDED = {"homography": 4, "fundamental": 7, "essential": 5, "affine": 3}  # matches for a model
_SOLUTIONS = {"homography": 1, "fundamental": 3, "essential": 10, "affine": 1}  # from so many
_FRAMES = 2  # matches for a planar model, with their frames
# Frames agree if points at their unit circle miss by at most this, in σ.
_AGREEING = 0.75
_CHANCE = 0.05  # the share of unrelated inliers that do; a twentieth is more than was seen
_LEAST, _MOST = -40.0, 10.0  # powers beyond which evidence does not change
_FINEST, _COARSEST = 0.05, 50.0  # pixels, of predicted errors
_BAND = 2**0.5  # thresholds: Sampson's distance is that from two equally sure lines over √2
_CAUTION = 2.0  # orders of magnitude: epipolar geometries are searched for in more ways
_GRID = 8  # places across and down at which errors are predicted
# a, b, c, d of the regression: with frames, and without
WITH_FRAMES = (-3.903, -0.286, -0.366, 3.594)
WITHOUT = (-10.367, -0.226, -0.082, 4.174)


@dataclass(frozen=True)
class Evidence:
    """What speaks for a geometry.

    ``power`` is log10 of the number of models that chance gives, ``error`` the predicted error of a
    planar model in pixels (None for others), ``agreement`` the share of inliers whose frames agree
    (None without frames) and ``inliers`` their number.
    """

    power: float
    error: float | None
    agreement: float | None
    inliers: int

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """The factors of the coefficients of the regression, for planar models."""
        assert self.error is not None
        last = log(max(self.inliers, 1)) if self.agreement is None else self.agreement
        error = min(max(self.error, _FINEST), _COARSEST)
        return 1.0, min(max(self.power, _LEAST), _MOST), log(error), last

    @property
    def confidence(self) -> float:
        """The probability that the geometry is right."""
        if self.power == inf:
            return 0.0
        if self.error is None:
            return 1 / (1 + 10 ** min(self.power + _CAUTION, 99.0))
        coefficients = WITHOUT if self.agreement is None else WITH_FRAMES
        return 1 / (1 + exp(-sum(c * t for c, t in zip(coefficients, self.terms, strict=True))))


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model, the matches p and q (m, 2) that it is of, and their residuals (m,) in pixels.

    ``sizes`` are those (h, w) of the two images; ``frames`` the matched frames (m, 2, 3), if known.
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
    """Return what speaks for a model."""
    inliers = estimate.residuals <= estimate.threshold
    count = int(inliers.sum())
    counted = inliers
    if not estimate.planar:
        # Sampson's distance may be small far from one of the two lines, where chance has more room.
        away = fitting.line_distances(estimate.p, estimate.q, estimate.matrix, estimate.cameras)
        counted = inliers & (away <= _BAND * estimate.threshold)
    power = false_alarms(estimate, counted, NEEDED[estimate.model], 1.0)
    agreement = None
    if estimate.frames is not None and estimate.planar:
        agreeing = inliers & agreeing_frames(estimate)
        agreement = float(agreeing.sum() / max(count, 1))
        power = min(power, false_alarms(estimate, agreeing, _FRAMES, _CHANCE))
    error = predicted_error(estimate) if estimate.planar else None
    return Evidence(power, error, agreement, count)


def false_alarms(
    estimate: Estimate, inliers: NDArray[np.bool_], needed: int, share: float
) -> float:
    """Return log10 of how many models with as many inliers are expected by chance.

    Among n unrelated matches, (n − s) C(n, k) C(k, s) models from s matches are tried in effect,
    and each of the other k − s inliers of one is within the threshold with the probability α: the
    share of the image that a disc around a point covers, or a band around an epipolar line.
    ``share`` multiplies it. Several features at a place are one.
    """
    p, q, threshold = estimate.p, estimate.q, estimate.threshold
    n, k = _places(p, q, threshold), _places(p[inliers], q[inliers], threshold)
    if k <= needed:
        return inf
    h, w = estimate.sizes[1]
    covered = np.pi * threshold**2 if estimate.planar else 2 * _BAND * threshold * np.hypot(h, w)
    chance = share * min(1.0, covered / (h * w))
    tried = log10(_SOLUTIONS[estimate.model] * max(n - needed, 1))
    tried += _log_binomial(n, k) + _log_binomial(k, needed)
    return float(tried + (k - needed) * log10(chance))


def _places(p: FloatArray, q: FloatArray, threshold: float) -> int:
    """Return the number of matches that differ in place in both images."""
    for _ in range(2):
        _, first = np.unique(np.round(p / (2 * threshold)), axis=0, return_index=True)
        p, q = q[first], p[first]
    return len(p)


def _log_binomial(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def agreeing_frames(estimate: Estimate) -> NDArray[np.bool_]:
    """Return which matched frames (m,) the model maps onto each other."""
    assert estimate.frames is not None
    a, b = estimate.frames
    sigma, worst = sigmas(b), np.zeros(len(a))
    for column in range(2):
        for sign in (-1, 1):
            p, q = (maps[:, :, 2] + sign * maps[:, :, column] for maps in (a, b))
            missed = fitting.residual(p, q, estimate.model, estimate.matrix, estimate.cameras)
            worst = np.maximum(worst, missed / sigma)
    return np.asarray(worst <= _AGREEING)


def predicted_error(estimate: Estimate) -> float:
    """Return the standard deviation of mapped places in pixels.

    It is the median over places of the first image that are mapped into the second.
    """
    (h, w), (height, width) = estimate.sizes
    across, down = np.linspace(0, w - 1, _GRID), np.linspace(0, h - 1, _GRID)
    places = np.stack(np.meshgrid(across, down), -1).reshape(-1, 2)
    inliers = estimate.residuals <= estimate.threshold
    mapped, deviations = fitting.uncertainty(
        estimate.p[inliers], estimate.q[inliers], estimate.model, estimate.matrix, places
    )
    seen = ((mapped >= 0) & (mapped <= np.array([width, height]) - 1)).all(1)
    return float(np.median(deviations[seen])) if seen.any() else inf
