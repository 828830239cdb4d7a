"""Robust, seeded estimation of the geometry that most matches agree on."""

import numbers
from dataclasses import dataclass
from math import lgamma, log

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError, unknown
from caloric.matching import fitting
from caloric.matching.fitting import Model
from caloric.runtime import tables
from caloric.theory.gaussians import FloatArray

_NEEDED = {"homography": 4, "fundamental": 7, "essential": 5, "affine": 3}  # matches for a model
# Shares of the threshold to search with: a narrow one finds the precise model where many matches
# are precise, a wide one finds any where few are. One that explains so many ends the search.
_SEARCHES = (0.25, 0.125, 1.0)
_CLEAR = 0.5
_TRIES = 4  # with other random numbers, if OpenCV fails
_KEPT = 0.95  # of the score of the random samples: less, and the last fit went astray
_SOLUTIONS = {"homography": 1, "fundamental": 3, "essential": 10, "affine": 1}  # from so many


@dataclass(frozen=True, eq=False)
class Geometry:
    """A model of how two images relate.

    ``matrix`` maps (homography, 3 x 3; affine, 2 x 3) or constrains (fundamental, essential, 3 x 3)
    points of the first image to the second; None when no model was found. ``inliers`` (m,) says
    which matches obey it, ``residuals`` (m,) by how many pixels each misses. ``confidence`` is near
    0 if chance gives as many inliers, and near 1 if it does not; a geometry of more than 0.5 is
    true in a condition.
    """

    model: Model
    matrix: FloatArray | None
    inliers: NDArray[np.bool_]
    residuals: FloatArray
    confidence: float = 0.0

    def __bool__(self) -> bool:
        """Return whether there are more inliers than chance gives."""
        return self.matrix is not None and self.confidence > 0.5

    def __len__(self) -> int:
        """Return the number of inliers."""
        return int(self.inliers.sum())

    def __repr__(self) -> str:
        """Return a summary in one line."""
        if self.matrix is None:
            return f"Geometry(no {self.model} in {len(self.inliers)} matches)"
        counts = f"{self.model} of {len(self)} of {len(self.inliers)} matches"
        return f"Geometry({counts}, confidence {self.confidence:.2f})"

    def _repr_html_(self) -> str:
        rows = [] if self.matrix is None else self.matrix.tolist()
        return tables.html(repr(self), [""] * 3, rows, len(rows))


def _parameters(seed: int, threshold: float, confidence: float, iterations: int) -> cv2.UsacParams:
    p = cv2.UsacParams()
    p.randomGeneratorState = seed
    p.threshold = threshold
    p.confidence = confidence
    p.maxIterations = iterations
    p.score = cv2.SCORE_METHOD_MAGSAC
    p.sampler = cv2.SAMPLING_UNIFORM
    p.loMethod = cv2.LOCAL_OPTIM_INNER_AND_ITER_LO
    p.loIterations = 10
    p.loSampleSize = 50
    p.isParallel = False
    return p


def estimate(
    a: ArrayLike,
    b: ArrayLike,
    *,
    model: Model = "homography",
    threshold: float = 2.0,
    seed: int = 0,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    confidence: float = 0.9999,
    iterations: int = 10_000,
    size: tuple[int, int] | None = None,
    covariances: FloatArray | None = None,
) -> Geometry:
    """Return the model estimated from matched points a and b, (m, 2) each, by MAGSAC++.

    ``threshold`` is in pixels. "essential" needs the two ``intrinsics`` (3 x 3). The same points
    and seed give the same result. ``size`` (h, w) of the second image tells how likely inliers are
    by chance; without it the points are taken to fill the image. ``covariances`` (m, 2, 2) of b
    weigh the matches in the last fit.
    """
    cameras = check_options(model, threshold, seed, intrinsics)
    p, q = (np.ascontiguousarray(v, np.float64) for v in (a, b))
    for points in (p, q):
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"matched points must have shape (m, 2), got {points.shape}")
    if len(p) != len(q):
        raise InputError(f"{len(p)} points in the first image but {len(q)} in the second")
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        raise InputError("NaN or infinite coordinates among the matches")
    no_geometry = Geometry(model, None, np.zeros(len(p), bool), np.full(len(p), np.inf))
    if len(np.unique(np.concatenate([p, q], 1), axis=0)) < _NEEDED[model]:
        return no_geometry
    best, factors = None, None if covariances is None else fitting.factors(covariances)
    for share in _SEARCHES:
        options = _parameters(seed, share * threshold, confidence, iterations)
        found = _searched(p, q, model, options, threshold, cameras, factors)
        if found is not None and (best is None or found.score > best.score):
            best = found
        if best is not None and best.score > _CLEAR * len(p):
            break
    if best is None:
        return no_geometry
    matrix, residuals = best.matrix, best.residuals
    inliers = residuals <= threshold
    if size is None:
        w, h = q.max(0) - q.min(0) + 1
        size = (h, w)
    power = false_alarms(p, q, inliers, model, threshold, size)
    return Geometry(model, matrix, inliers, residuals, float(1 / (1 + 10 ** min(power, 99))))


@dataclass(frozen=True, eq=False)
class _Found:
    matrix: FloatArray
    residuals: FloatArray
    score: float


def _searched(
    p: FloatArray,
    q: FloatArray,
    model: Model,
    options: cv2.UsacParams,
    threshold: float,
    cameras: list[FloatArray] | None,
    factors: FloatArray | None,
) -> _Found | None:
    """Return what random samples and the last fit find."""
    matrix = None
    for _ in range(_TRIES):
        try:
            matrix = _estimate(p, q, model, options, cameras)
            break
        except cv2.error:
            # OpenCV raises an error for degenerate samples: of collinear points always, of points
            # in a plane, for a fundamental matrix, sometimes.
            options.randomGeneratorState += 1
    if matrix is None or not np.isfinite(matrix).all():
        return None

    def scored(matrix: FloatArray) -> _Found:
        residuals = residual(p, q, model, matrix, cameras)
        score = float(np.clip(1 - (residuals / threshold) ** 2, 0, None).sum())
        return _Found(matrix, residuals, score)

    sampled = scored(matrix)
    fitted = fitting.fit(p, q, model, matrix, threshold, cameras, factors)
    if not np.isfinite(fitted).all():
        return sampled
    # The fit weighs precise matches more, which may cost a little of the score.
    found = scored(fitted)
    return found if found.score >= _KEPT * sampled.score else sampled


def check_options(
    model: str, threshold: float, seed: int, intrinsics: tuple[ArrayLike, ArrayLike] | None
) -> list[FloatArray] | None:
    """Raise an error if an option of :func:`estimate` is wrong; return the intrinsics it needs."""
    if model not in _NEEDED:
        raise unknown("model", model, _NEEDED)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to {2**31 - 1}, got {seed!r}")
    if not (isinstance(threshold, numbers.Real) and 0 < threshold < np.inf):
        raise InputError(f"threshold must be a positive number of pixels, got {threshold!r}")
    if model != "essential":
        return None
    if intrinsics is None:
        raise InputError("model 'essential' needs intrinsics=(K_a, K_b), each 3 x 3")
    cameras = [np.asarray(k, np.float64) for k in intrinsics]
    if [k.shape for k in cameras] != [(3, 3), (3, 3)]:
        raise InputError("intrinsics must be two 3 x 3 matrices")
    if not all(np.isfinite(k).all() and k[0, 0] > 0 and k[1, 1] > 0 for k in cameras):
        raise InputError("intrinsics must have positive focal lengths at [0, 0] and [1, 1]")
    if not all(np.allclose(k[2], [0, 0, 1]) for k in cameras):
        raise InputError("the last row of intrinsics must be 0, 0, 1")
    return cameras


def false_alarms(
    p: FloatArray,
    q: FloatArray,
    inliers: NDArray[np.bool_],
    model: Model,
    threshold: float,
    size: tuple[float, float],
) -> float:
    """Return log10 of how many models with as many inliers are expected by chance.

    Among n unrelated matches, (n − s) C(n, k) C(k, s) models from s matches are tried in effect,
    and each of the other k − s inliers of one is within the threshold with the probability α: the
    share of the image that a disc around a point covers, or a band around an epipolar line (Moisan
    and Stival, 2004). Several features at a place are one.
    """
    n, k = _places(p, q, threshold), _places(p[inliers], q[inliers], threshold)
    s, solutions = _NEEDED[model], _SOLUTIONS[model]
    if k <= s:
        return float("inf")
    h, w = size
    shape = (
        np.pi * threshold**2
        if model in ("homography", "affine")
        else 2 * threshold * np.hypot(h, w)
    )
    share = min(1.0, shape / (h * w))
    tried = np.log10(solutions * max(n - s, 1)) + _log_binomial(n, k) + _log_binomial(k, s)
    return float(tried + (k - s) * np.log10(share))


def _places(p: FloatArray, q: FloatArray, threshold: float) -> int:
    """Return the number of matches that differ in place in both images."""
    for _ in range(2):
        _, first = np.unique(np.round(p / (2 * threshold)), axis=0, return_index=True)
        p, q = q[first], p[first]
    return len(p)


def _log_binomial(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def _estimate(
    p: FloatArray,
    q: FloatArray,
    model: Model,
    options: cv2.UsacParams,
    cameras: list[FloatArray] | None,
) -> FloatArray | None:
    if model == "homography":
        matrix, _ = cv2.findHomography(p, q, options)
    elif model == "affine":
        matrix, _ = cv2.estimateAffine2D(p, q, options)
    elif model == "fundamental":
        matrix, _ = cv2.findFundamentalMat(p, q, options)
    else:
        assert cameras is not None
        focal = float(np.mean([k[[0, 1], [0, 1]] for k in cameras]))
        options = _parameters(
            options.randomGeneratorState, options.threshold / focal, options.confidence,
            options.maxIterations,
        )  # fmt: skip
        unit = [
            cv2.undistortPoints(v[:, None], k, None)[:, 0]
            for v, k in zip((p, q), cameras, strict=True)
        ]
        eye = np.eye(3)
        matrix, _ = cv2.findEssentialMat(unit[0], unit[1], eye, eye, None, None, options)
    return None if matrix is None else np.asarray(matrix[:3], np.float64)


def residual(
    p: FloatArray,
    q: FloatArray,
    model: Model,
    matrix: FloatArray,
    cameras: list[FloatArray] | None = None,
) -> FloatArray:
    """Return the residual (m,) of each match, in pixels.

    For homographies and affine maps it is the distance in the second image, otherwise Sampson's
    approximation of the distance from the epipolar lines.
    """
    ones = np.ones((len(p), 1))
    x, y = np.concatenate([p, ones], 1), np.concatenate([q, ones], 1)
    if model == "affine":
        return np.asarray(np.linalg.norm(x @ matrix.T - q, axis=1))
    if model == "homography":
        z = x @ matrix.T
        with np.errstate(divide="ignore", invalid="ignore"):
            distances = np.linalg.norm(z[:, :2] / z[:, 2:] - q, axis=1)
        return np.where(np.isfinite(distances), distances, np.inf)
    if cameras is not None:
        matrix = np.linalg.inv(cameras[1]).T @ matrix @ np.linalg.inv(cameras[0])
    line_b, line_a = x @ matrix.T, y @ matrix
    numerator = np.einsum("ni,ni->n", y, line_b)
    denominator = (line_b[:, :2] ** 2).sum(1) + (line_a[:, :2] ** 2).sum(1)
    return np.asarray(np.abs(numerator) / np.sqrt(np.maximum(denominator, 1e-300)))
