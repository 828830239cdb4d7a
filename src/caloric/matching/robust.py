"""Robust estimation of a model from matches: random samples, then a nonlinear fit."""

from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np

from caloric.matching import fitting, sampling
from caloric.matching.fitting import Correspondences
from caloric.types import FloatArray

# Thresholds of random sampling, as shares of the given one. For epipolar geometries a narrow one is
# more precise if many matches are precise; a wide one is needed if few are. A scene is rarely
# planar to a fraction of a pixel.
_PLANAR_SEARCHES, _EPIPOLAR_SEARCHES = (1.0, 0.25), (0.25, 0.125, 1.0)
_FIRST_OF_MANY = 0.5  # the first threshold for many matches, whose fit is precise from any start
_SUFFICIENT = 0.5  # share of matches: a higher score ends the search
# If the score is below this share of the matches and below this number, frames are sampled too.
_LOW_SHARE, _LOW_COUNT = 0.25, 50
_ITERATIONS = 10_000  # of random sampling, at most
_RIVAL_ITERATIONS = 1000
# Planar models are ranked by the matches within a multiple of the threshold, because no scene is
# exactly planar.
_RANKING = 3.0
_TRIES = 4  # with other seeds, if OpenCV fails
# Score after the fit, relative to the score before: below it, the model from random samples is
# kept. The fit weights precise matches more and, for a planar model, those in sparse regions, which
# may lower the score.
_MIN_PLANAR_SCORE, _MIN_EPIPOLAR_SCORE = 0.5, 0.95


@dataclass(frozen=True)
class Effort:
    """When the search for a model ends.

    ``confidence`` is the probability that random sampling has found the best model; a score above
    ``enough`` is sufficient. An epipolar geometry of at least ``many`` matches is first searched
    with a wider threshold, which takes less time.
    """

    confidence: float
    enough: float
    many: float


THOROUGH = Effort(confidence=0.9999, enough=np.inf, many=np.inf)
# For many pairs: in three collections no accepted pair was lost, and 0.1 % of the inliers;
# verification took a quarter to three quarters of the time.
# (A wider threshold for all pairs takes less time and finds as many, but models of the most
# difficult collection were worse.)
QUICK = Effort(confidence=0.99, enough=30.0, many=300)


class GeometryEstimator(Protocol):
    """A function that estimates a model for :func:`caloric.matching.geometry.estimate`."""

    def __call__(
        self, matches: Correspondences, threshold: float, seed: int, /
    ) -> FloatArray | None:
        """Return the matrix of the model, 3 x 3 (2 x 3 for "affine"), or None if none was found.

        ``threshold`` is in pixels.
        """


@dataclass(frozen=True, eq=False)
class Fit:
    """A model with its residuals (m,).

    The score is higher if there are more inliers with smaller residuals.
    """

    matrix: FloatArray
    residuals: FloatArray
    score: float


def estimate(
    matches: Correspondences, threshold: float, seed: int, effort: Effort = THOROUGH
) -> FloatArray | None:
    """Return the model estimated by MAGSAC++ (OpenCV) and fitted to its inliers."""
    best, enough = None, min(effort.enough, _SUFFICIENT * len(matches))
    for share in _searches(matches, effort):
        parameters = _parameters(seed, share * threshold, effort.confidence)
        best = _better(best, fitted(matches, _sampled(matches, parameters), threshold))
        if best is not None and best.score > enough:
            break
    few = min(_LOW_COUNT, _LOW_SHARE * len(matches))
    if matches.frames is not None and (best is None or best.score < few):
        model, cameras = matches.model, matches.cameras
        matrix = sampling.search(matches.frames, model, threshold, seed, cameras)
        best = _better(best, fitted(matches, matrix, threshold))
    return None if best is None else best.matrix


def _searches(matches: Correspondences, effort: Effort) -> tuple[float, ...]:
    """Return the thresholds of random sampling in the order of the searches."""
    if matches.planar:
        return _PLANAR_SEARCHES
    first = (_FIRST_OF_MANY,) if len(matches) >= effort.many else ()
    return (*first, *_EPIPOLAR_SEARCHES)


def rival(matches: Correspondences, threshold: float, seed: int) -> int:
    """Return the number of inliers of the best model from few random samples."""
    if len(matches) <= sampling.MIN_MATCHES:
        return 0
    parameters = _parameters(seed, threshold, THOROUGH.confidence)
    parameters.maxIterations = _RIVAL_ITERATIONS
    matrix = _sampled(matches, parameters)
    if matrix is None or not np.isfinite(matrix).all():
        return 0
    return int((matches.residuals(matrix) <= threshold).sum())


def _better(one: Fit | None, other: Fit | None) -> Fit | None:
    if one is None or other is None:
        return one or other
    return one if one.score >= other.score else other


def fitted(matches: Correspondences, matrix: FloatArray | None, threshold: float) -> Fit | None:
    """Return the model after the nonlinear fit, or before it if the fit failed or lost inliers."""
    if matrix is None or not np.isfinite(matrix).all():
        return None
    limit = _RANKING * threshold if matches.planar else threshold

    def scored(matrix: FloatArray) -> Fit:
        residuals = matches.residuals(matrix)
        return Fit(matrix, residuals, fitting.score(residuals, limit))

    sampled = scored(matrix)
    result = fitting.fit(matches, matrix, threshold, sampled.residuals)
    if not np.isfinite(result).all():
        return sampled
    final = scored(result)
    lowest = _MIN_PLANAR_SCORE if matches.planar else _MIN_EPIPOLAR_SCORE
    return final if final.score >= lowest * sampled.score else sampled


def _parameters(seed: int, threshold: float, confidence: float) -> cv2.UsacParams:
    p = cv2.UsacParams()
    p.randomGeneratorState = seed
    p.threshold = threshold
    p.confidence = confidence
    p.maxIterations = _ITERATIONS
    p.score = cv2.SCORE_METHOD_MAGSAC
    p.sampler = cv2.SAMPLING_UNIFORM
    p.loMethod = cv2.LOCAL_OPTIM_SIGMA
    p.isParallel = False
    return p


def _sampled(matches: Correspondences, parameters: cv2.UsacParams) -> FloatArray | None:
    """Return the best model from random samples of points."""
    for _ in range(_TRIES):
        try:
            return _by_opencv(matches, parameters)
        except cv2.error:
            # OpenCV raises an error for collinear points, and sometimes for the fundamental matrix
            # of points in a plane.
            parameters.randomGeneratorState += 1
    return None


def _by_opencv(matches: Correspondences, parameters: cv2.UsacParams) -> FloatArray | None:
    p, q, model, cameras = matches.p, matches.q, matches.model, matches.cameras
    if model == "homography":
        matrix, _ = cv2.findHomography(p, q, parameters)
    elif model == "affine":
        matrix, _ = cv2.estimateAffine2D(p, q, parameters)
    elif model == "fundamental":
        matrix, _ = cv2.findFundamentalMat(p, q, parameters)
    else:
        assert cameras is not None
        focal = float(np.mean([k[[0, 1], [0, 1]] for k in cameras]))
        scaled = _parameters(
            parameters.randomGeneratorState, parameters.threshold / focal, parameters.confidence
        )
        unit = [
            cv2.undistortPoints(v[:, None], k, None)[:, 0]
            for v, k in zip((p, q), cameras, strict=True)
        ]
        eye = np.eye(3)
        matrix, _ = cv2.findEssentialMat(unit[0], unit[1], eye, eye, None, None, scaled)
    return None if matrix is None else np.asarray(matrix[:3], np.float64)
