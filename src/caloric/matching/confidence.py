"""The probability that an estimated geometry is correct.

A geometry is correct if its mean error over the overlap of the images is below 5 pixels: the error
of mapped points for homographies and affine maps, the distance of true correspondences from their
epipolar lines for fundamental and essential matrices. The evidence is:

* N, the logarithm of the number of false alarms (Moisan and Stival, 2004): the expected number of
  models with at least as many inliers among unrelated matches. For planar models either all inliers
  are counted, or only those whose frames agree with the model, which happens by chance for one
  unrelated match in twenty.
* e, the expected error in pixels, which follows from the residuals and positions of the inliers
  (:meth:`caloric.Geometry.error_at`): over the overlap for planar models, at the inliers for
  epipolar geometries. It is large if the inliers cover a small part of the images.
* the share of inliers among the matches close to the model: s is the logarithm of the ratio of
  inliers to others. Relief and lenses leave matches close to a homography that are no inliers.
* the number r of inliers of a rival: of a second model of the same kind among the other matches.
  Another plane, a repeated motif or several motions have strong rivals. Ten are expected by chance.

A logistic regression combines them, with N limited to −40 … 10::

    planar:   σ(a + b N + c log e + d log(1 + max(r − 10, 0)) + f s) / (1 + (e / 10)⁴)
    epipolar: σ(a + b N) / (1 + (e / 5)²)

The last factors are not fitted; they lower the confidence if e is several pixels. With k inliers
it is multiplied by k / (k + r) if the rival is strong, and by the probability that the inliers are
not due to repeated structure (:mod:`repetition`), if there are descriptors. It is 0 if the inliers
are on one line, or if the images are mirrored.

The coefficients were fitted to pairs of images rendered from photographs, and to unrelated
photographs (``python -m tools geometry``; reliability diagrams are in docs/wide.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import exp, inf, lgamma, log, log10

import numpy as np
from numpy.typing import NDArray

from caloric.frames import sigmas
from caloric.matching import models
from caloric.matching.models import Box
from caloric.runtime import threads
from caloric.runtime.indexing import first_of_cells, select
from caloric.types import FloatArray, GeometryModel

NEEDED = {"homography": 4, "fundamental": 7, "essential": 5, "affine": 3}  # matches per sample
_SOLUTIONS = {"homography": 1, "fundamental": 3, "essential": 10, "affine": 1}  # per sample
_FRAMES = 2  # matches per sample of a planar model, with frames
# Frames agree if the model maps points on their unit circle to within this many σ.
_AGREEMENT_THRESHOLD = 0.75
_CHANCE_AGREEMENT = 0.05  # upper bound on the share of unrelated inliers whose frames agree
_DISTINCT = 4.0  # pixels: closer features are not independent
_CHANCE_RIVAL = 10
_MIN_POWER, _MAX_POWER = -40.0, 10.0
_MIN_ERROR, _MAX_ERROR = 0.02, 50.0  # pixels
CORRECT_ERROR = 5.0  # pixels: the largest mean error of a correct geometry
_MAX_CHANCE = -2.0  # power above which a geometry may be due to chance
_MAX_PLANAR_ERROR = 10.0  # pixels: expected error that halves the confidence
REPEATED = "repeated structure: the images match themselves as well as each other"
_MIN_DISTINCT = 0.8  # probability below which repeated structure is the reason for a low confidence
STRONG_RIVAL = 0.3  # inliers of a second model, relative to those of the first
_TRIANGLES, _MIRRORED = 100, 0.8  # number of triangles, share with opposite orientations
_BAND = 2**0.5  # ratio of equal distances from both lines to Sampson's distance
_NEAR = 7.0  # times the threshold of inliers
_RELIEF = 0.014  # share of the diagonal: residuals that relief may cause
_GRID = 8  # points across and down at which errors are predicted
# Coefficients of the regressions: see the module.
PLANAR = (-6.068, -0.15, -0.958, -1.242, 1.834)
EPIPOLAR = (-4.674, -0.24)


@dataclass(frozen=True)
class Evidence:
    """The evidence for a geometry.

    ``power`` is log10 of the expected number of false alarms, ``error`` the expected error in
    pixels, ``inliers`` and ``matches`` their numbers, ``rival`` the number of inliers of a second
    model, and ``close`` that of other matches close to a planar model. ``degenerate`` says why the
    inliers cannot determine the model, if so. ``distinct`` is the probability that the inliers are
    not due to repeated structure (:mod:`repetition`).
    """

    power: float
    error: float
    inliers: int
    rival: int
    matches: int
    planar: bool
    degenerate: str = ""
    close: int = 0
    distinct: float = 1.0

    @property
    def terms(self) -> tuple[float, ...]:
        """The regressors: 1, N and, for planar models, those that depend on e, r and s."""
        power = min(max(self.power, _MIN_POWER), _MAX_POWER)
        if not self.planar:
            return 1.0, power
        error = log(min(max(self.error, _MIN_ERROR), _MAX_ERROR))
        share = log((1 + self.inliers) / (1 + self.close))
        return 1.0, power, error, log(1 + max(self.rival - _CHANCE_RIVAL, 0)), share

    @property
    def confidence(self) -> float:
        """The probability that the geometry is correct."""
        if self.power == inf or self.degenerate:
            return 0.0
        coefficients = PLANAR if self.planar else EPIPOLAR
        sum_of_terms = sum(c * t for c, t in zip(coefficients, self.terms, strict=True))
        return self.factor / (1 + exp(-sum_of_terms))

    @property
    def factor(self) -> float:
        """The factor that is not fitted."""
        unrivaled = self.inliers / (self.inliers + self.rival) if self._has_strong_rival else 1.0
        unrivaled *= self.distinct
        if self.planar:
            return unrivaled / (1 + (self.error / _MAX_PLANAR_ERROR) ** 4)
        return unrivaled / (1 + (self.error / CORRECT_ERROR) ** 2)

    @property
    def _has_strong_rival(self) -> bool:
        return self.rival > STRONG_RIVAL * self.inliers

    @property
    def weakness(self) -> str:
        """The strongest evidence against the geometry, in words."""
        if self.degenerate:
            return self.degenerate
        if self.power > _MAX_CHANCE:
            return f"{self.inliers} inliers may agree by chance"
        if self.distinct < _MIN_DISTINCT:
            return REPEATED
        if self.error > CORRECT_ERROR:
            return f"the inliers determine it poorly: expected error {self.error:.0f} pixels"
        if self._has_strong_rival:
            other = "several planes" if self.planar else "several motions"
            return f"a second geometry has {self.rival} inliers: {other}, or repeated texture"
        return f"only {self.inliers} of {self.matches} matches agree with it"


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model estimated from matches p and q (m, 2), and their residuals (m,) in pixels.

    ``boxes`` are the extents of both images, ``frames`` the matched frames (m, 2, 3) if known.
    """

    model: GeometryModel
    matrix: FloatArray
    p: FloatArray
    q: FloatArray
    residuals: FloatArray
    threshold: float
    boxes: tuple[Box, Box]
    frames: tuple[FloatArray, FloatArray] | None = None
    cameras: list[FloatArray] | None = None

    @property
    def inliers(self) -> NDArray[np.bool_]:
        """Which matches agree with the model (m,)."""
        return self.residuals <= self.threshold

    @property
    def near(self) -> NDArray[np.bool_]:
        """Which matches are no evidence for a second plane (m,): no scene is exactly planar."""
        return self.residuals <= _NEAR * self.threshold

    @property
    def close(self) -> int:
        """The number of matches that are no inliers, but may be of the same surface."""
        h, w = self.boxes[1].size
        limit = max(_NEAR * self.threshold, _RELIEF * np.hypot(h, w))
        return int(((self.residuals <= limit) & ~self.inliers).sum())

    @property
    def planar(self) -> bool:
        """Whether the model maps points to points."""
        return models.is_planar(self.model)

    @cached_property
    def _cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The cells (m, 2) of the matches in both images, at least two thresholds wide."""
        width = max(2 * self.threshold, _DISTINCT)
        p, q = (np.round(v / width).astype(np.int64) for v in (self.p, self.q))
        return p, q

    @cached_property
    def distinct(self) -> int:
        """The number of matches whose positions differ in both images."""
        return self.count_distinct(np.ones(len(self.p), bool))

    def count_distinct(self, counted: NDArray[np.bool_]) -> int:
        """Return the number of those matches (m,) whose positions differ in both images."""
        p, q = (select(cells, counted) for cells in self._cells)
        return len(first_of_cells(select(q, first_of_cells(p))))


def evidence(
    estimate: Estimate,
    find_rival: Callable[[NDArray[np.bool_]], int],
    covariance: FloatArray | None,
) -> Evidence:
    """Return the evidence for an estimated model.

    ``find_rival`` returns the number of inliers of another model among some matches (m,);
    ``covariance`` is that of the entries of the model.
    """
    inliers = estimate.inliers
    count, total = int(inliers.sum()), len(inliers)
    if estimate.planar:
        finding = threads.begin(partial(find_rival, ~estimate.near))
        power = false_alarms(estimate, inliers, NEEDED[estimate.model], 1.0)
        if estimate.frames is not None and power > _MIN_POWER:
            agreeing = agreeing_frames(estimate)
            power = min(power, false_alarms(estimate, agreeing, _FRAMES, _CHANCE_AGREEMENT))
        degenerate = _degenerate(select(estimate.p, inliers), select(estimate.q, inliers))
        error = predicted_error(estimate, covariance)
        return Evidence(power, error, count, finding(), total, True, degenerate, estimate.close)
    # Sampson's distance may be small far from one of the two epipolar lines, which would make
    # inliers by chance more likely.
    distances = models.line_distances(estimate.p, estimate.q, estimate.matrix, estimate.cameras)
    counted = inliers & (distances <= _BAND * estimate.threshold)
    power = false_alarms(estimate, counted, NEEDED[estimate.model], 1.0)
    degenerate = _degenerate(select(estimate.p, counted), select(estimate.q, counted))
    # Few other matches cannot have a strong rival.
    rival = find_rival(~inliers) if total - count > STRONG_RIVAL * count else 0
    error = predicted_error(estimate, covariance)
    return Evidence(power, error, count, rival, total, False, degenerate)


def _degenerate(p: FloatArray, q: FloatArray) -> str:
    """Return why inliers p and q (m, 2) are no evidence for any geometry, or ""."""
    if is_line(p) or is_line(q):
        return "the inliers are on one line"
    return "the images are mirrored" if _is_mirrored(p, q) else ""


def _is_mirrored(p: FloatArray, q: FloatArray) -> bool:
    """Return whether most triangles of matched points (m, 2) have opposite orientations."""
    order = np.random.default_rng(0).permutation(len(p))[: 3 * _TRIANGLES]
    corners = order[: len(order) // 3 * 3].reshape(-1, 3)
    first, second = (_areas(points[corners]) for points in (p, q))
    return bool((first * second < 0).mean() > _MIRRORED) if len(corners) else False


def _areas(triangles: FloatArray) -> FloatArray:
    """Return twice the signed areas (k,) of triangles (k, 3, 2)."""
    (a, b), (c, d) = (triangles[:, i].T - triangles[:, 0].T for i in (1, 2))
    return np.asarray(a * d - b * c)


def is_line(points: FloatArray) -> bool:
    """Return whether points (m, 2) are on a line, up to 1 % of its length."""
    if len(points) < 2:
        return True
    x, y = (v - v.mean() for v in points.T)
    narrow, wide = np.linalg.eigvalsh([[x @ x, x @ y], [x @ y, y @ y]])
    return bool(narrow <= 1e-4 * wide)


def false_alarms(
    estimate: Estimate, inliers: NDArray[np.bool_], needed: int, share: float
) -> float:
    """Return log10 of the expected number of models with as many inliers among unrelated matches.

    The number is (n − s) C(n, k) C(k, s) α^(k − s) for k inliers of n matches and models from
    s = ``needed`` matches. α is the probability that an unrelated match is an inlier: the share of
    the image that a disc around a point covers, or a band around an epipolar line, times ``share``.
    Features at the same position count once.
    """
    k, threshold = estimate.count_distinct(inliers), estimate.threshold
    n = max(k, estimate.distinct)  # which match of a position is counted depends on the others
    if k <= needed + 1:  # one more match agrees too easily
        return inf
    h, w = estimate.boxes[1].size
    covered = np.pi * threshold**2 if estimate.planar else 2 * _BAND * threshold * np.hypot(h, w)
    chance = share * min(1.0, covered / (h * w))
    models = log10(_SOLUTIONS[estimate.model] * max(n - needed, 1))
    models += _log_binomial(n, k) + _log_binomial(k, needed)
    return float(models + (k - needed) * log10(chance))


def _log_binomial(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def agreeing_frames(estimate: Estimate) -> NDArray[np.bool_]:
    """Return a mask (m,) of the inliers whose frames the model maps onto each other."""
    assert estimate.frames is not None
    inliers = estimate.inliers
    a, b = (select(maps, inliers) for maps in estimate.frames)
    corners = np.array([[1, 0, 1], [-1, 0, 1], [0, 1, 1], [0, -1, 1]], np.float64)
    mapped = ((maps.reshape(-1, 3) @ corners.T).reshape(-1, 2, 4) for maps in (a, b))
    p, q = (np.swapaxes(points, 1, 2).reshape(-1, 2) for points in mapped)
    residuals = models.residual(p, q, estimate.model, estimate.matrix).reshape(-1, 4)
    agreeing = inliers.copy()
    agreeing[inliers] = residuals.max(1) <= _AGREEMENT_THRESHOLD * sigmas(b)
    return agreeing


def predicted_error(estimate: Estimate, covariance: FloatArray | None) -> float:
    """Return the expected error in pixels, as root mean square over the overlap of the images.

    Points of a grid in the first image are mapped to the second by a planar model. For an epipolar
    geometry, which does not map points, the inliers are used.
    """
    p, q = (select(v, estimate.inliers) for v in (estimate.p, estimate.q))
    if covariance is None or len(p) == 0:
        return inf
    if estimate.planar:
        p = models.overlap(estimate.matrix, estimate.boxes, _GRID)
        if len(p) == 0:
            return inf
    errors = models.errors((p, q), estimate.model, estimate.matrix, covariance, estimate.cameras)
    return float(np.sqrt((errors**2).mean()))
