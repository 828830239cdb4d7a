"""Robust, seeded estimation of the geometry that most matches agree on."""

import numbers
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError, unknown
from caloric.matching import confidence as belief
from caloric.matching import fitting, sampling
from caloric.matching.confidence import NEEDED
from caloric.runtime import tables
from caloric.types import FloatArray, GeometryModel

# Shares of the threshold to search with: a narrow one finds the precise model where many matches
# are precise, a wide one finds any where few are. One that explains so many ends the search.
_SEARCHES = (0.25, 0.125, 1.0)
_CLEAR = 0.5
# With fewer right matches than this share of all and than this number, samples of points may miss
# them.
_DOUBTFUL, _MANY = 0.25, 50
# Thresholds, and how many times as many matches each must explain as the one before: if as many as
# before remain within the threshold itself, and if not.
_WIDER, _GROWTH, _GREAT_GROWTH = (2.0, 4.0), 1.3, 1.5
_TRIES = 4  # with other random numbers, if OpenCV fails
_KEPT = 0.95  # of the score of the random samples: less, and the last fit went astray


@dataclass(frozen=True, eq=False)
class Geometry:
    """A model of how two images relate.

    It is true in a condition if its confidence is more than 0.5.

    Attributes
    ----------
    model : str
        "homography", "affine", "fundamental" or "essential".
    matrix : array or None
        It maps (homography, 3 x 3; affine, 2 x 3) or constrains (fundamental, essential, 3 x 3)
        points of the first image to the second; None when no model was found.
    inliers : array (m,) of bool
        Which matches obey it.
    residuals : array (m,)
        By how many pixels each misses.
    confidence : float
        The probability that it is right (:mod:`caloric.matching.confidence`).
    """

    model: GeometryModel
    matrix: FloatArray | None
    inliers: NDArray[np.bool_]
    residuals: FloatArray
    confidence: float = 0.0

    def __bool__(self) -> bool:
        """Return whether the geometry is more likely right than not."""
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
    model: GeometryModel = "homography",
    threshold: float = 2.0,
    seed: int = 0,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    confidence: float = 0.9999,
    iterations: int = 10_000,
    size: tuple[int, int] | None = None,
    size_a: tuple[int, int] | None = None,
    covariances: FloatArray | None = None,
    frames: tuple[FloatArray, FloatArray] | None = None,
) -> Geometry:
    """Return the model estimated from matched points a and b, (m, 2) each, by MAGSAC++.

    ``threshold`` is in pixels. "essential" needs the two ``intrinsics`` (3 x 3). The same points
    and seed give the same result. ``size`` (h, w) of the second image and ``size_a`` of the first
    tell how likely inliers are by chance, and where the model must hold; without them the points
    are taken to fill the images. ``covariances`` (m, 2, 2) of b weigh the matches in the last fit.
    Matched ``frames`` (m, 2, 3) in both images help where few matches are right, and to tell
    whether the model is.
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
    if len(np.unique(np.concatenate([p, q], 1), axis=0)) < NEEDED[model]:
        return no_geometry
    best, factors = None, None if covariances is None else fitting.factors(covariances)
    for share in _SEARCHES:
        options = _parameters(seed, share * threshold, confidence, iterations)
        matrix = _sampled(p, q, model, options, cameras)
        best = _better(best, _fitted(p, q, model, matrix, threshold, cameras, factors))
        if best is not None and best.score > _CLEAR * len(p):
            break
    if frames is not None and (best is None or best.score < min(_MANY, _DOUBTFUL * len(p))):
        matrix = sampling.search(frames, model, threshold, seed, cameras)
        best = _better(best, _fitted(p, q, model, matrix, threshold, cameras, factors))
    if best is None:
        return no_geometry
    if model in ("homography", "affine"):
        best = _widened(best, p, q, model, threshold, factors)
    matrix, residuals = best.matrix, best.residuals
    inliers = residuals <= threshold
    found = belief.Estimate(
        model, matrix, p, q, residuals, threshold, (size_a or _extent(p), size or _extent(q)),
        frames, cameras,
    )  # fmt: skip
    return Geometry(model, matrix, inliers, residuals, belief.evidence(found).confidence)


def _extent(points: FloatArray) -> tuple[float, float]:
    w, h = points.max(0) - points.min(0) + 1
    return float(h), float(w)


@dataclass(frozen=True, eq=False)
class _Found:
    matrix: FloatArray
    residuals: FloatArray
    score: float


def _widened(
    best: _Found,
    p: FloatArray,
    q: FloatArray,
    model: GeometryModel,
    threshold: float,
    factors: FloatArray | None,
) -> _Found:
    """Return the model fitted to more of the matches, where the scene is not quite a plane.

    Then many more matches are within two or four thresholds than within one, which a model of the
    few misses elsewhere in the image.
    """
    count = int((best.residuals <= threshold).sum())
    for times in _WIDER:
        fitted = _fitted(p, q, model, best.matrix, times * threshold, None, factors)
        if fitted is None:
            break
        more = int((fitted.residuals <= times * threshold).sum())
        kept = (fitted.residuals <= threshold).sum() >= (best.residuals <= threshold).sum()
        if more < (_GROWTH if kept else _GREAT_GROWTH) * count:
            break
        best, count = fitted, more
    return best


def _better(one: _Found | None, other: _Found | None) -> _Found | None:
    if one is None or other is None:
        return one or other
    return one if one.score >= other.score else other


def _sampled(
    p: FloatArray,
    q: FloatArray,
    model: GeometryModel,
    options: cv2.UsacParams,
    cameras: list[FloatArray] | None,
) -> FloatArray | None:
    """Return the best model of random samples of points."""
    for _ in range(_TRIES):
        try:
            return _estimate(p, q, model, options, cameras)
        except cv2.error:
            # OpenCV raises an error for degenerate samples: of collinear points always, of points
            # in a plane, for a fundamental matrix, sometimes.
            options.randomGeneratorState += 1
    return None


def _fitted(
    p: FloatArray,
    q: FloatArray,
    model: GeometryModel,
    matrix: FloatArray | None,
    threshold: float,
    cameras: list[FloatArray] | None,
    factors: FloatArray | None,
) -> _Found | None:
    """Return a model after the last fit."""
    if matrix is None or not np.isfinite(matrix).all():
        return None

    def scored(matrix: FloatArray) -> _Found:
        residuals = fitting.residual(p, q, model, matrix, cameras)
        score = fitting.score(residuals, threshold)
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
    if model not in NEEDED:
        raise unknown("model", model, NEEDED)
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


def _estimate(
    p: FloatArray,
    q: FloatArray,
    model: GeometryModel,
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
