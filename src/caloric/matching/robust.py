"""Robust, seeded estimation of a model from matches: random samples, then a last fit."""

from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np

from caloric.matching import fitting, sampling
from caloric.matching.fitting import Correspondences
from caloric.types import FloatArray

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
_CONFIDENCE, _ITERATIONS = 0.9999, 10_000  # when random sampling stops
_TRIES = 4  # with other random numbers, if OpenCV fails
_KEPT = 0.95  # of the score of the random samples: less, and the last fit went astray


class GeometryEstimator(Protocol):
    """The exchangeable part of :func:`caloric.matching.geometry.estimate`."""

    def __call__(
        self, matches: Correspondences, threshold: float, seed: int, /
    ) -> FloatArray | None:
        """Return the matrix of the model that most matches agree on, None if there is none.

        It is 3 x 3, or 2 x 3 for "affine"; ``threshold`` is in pixels.
        """


@dataclass(frozen=True, eq=False)
class _Fit:
    matrix: FloatArray
    residuals: FloatArray
    score: float


def estimate(matches: Correspondences, threshold: float, seed: int) -> FloatArray | None:
    """Return the model found by MAGSAC++ (OpenCV) and fitted to its inliers."""
    best = None
    for share in _SEARCHES:
        parameters = _parameters(seed, share * threshold)
        best = _better(best, _fitted(matches, _sampled(matches, parameters), threshold))
        if best is not None and best.score > _CLEAR * len(matches):
            break
    few = min(_MANY, _DOUBTFUL * len(matches))
    if matches.frames is not None and (best is None or best.score < few):
        model, cameras = matches.model, matches.cameras
        matrix = sampling.search(matches.frames, model, threshold, seed, cameras)
        best = _better(best, _fitted(matches, matrix, threshold))
    if best is None:
        return None
    if matches.model in ("homography", "affine"):
        best = _widened(best, matches, threshold)
    return best.matrix


def _widened(best: _Fit, matches: Correspondences, threshold: float) -> _Fit:
    """Return the model fitted to more of the matches, where the scene is not quite a plane.

    Then many more matches are within two or four thresholds than within one, which a model of the
    few misses elsewhere in the image.
    """
    count = int((best.residuals <= threshold).sum())
    for times in _WIDER:
        fitted = _fitted(matches, best.matrix, times * threshold)
        if fitted is None:
            break
        more = int((fitted.residuals <= times * threshold).sum())
        kept = (fitted.residuals <= threshold).sum() >= (best.residuals <= threshold).sum()
        if more < (_GROWTH if kept else _GREAT_GROWTH) * count:
            break
        best, count = fitted, more
    return best


def _better(one: _Fit | None, other: _Fit | None) -> _Fit | None:
    if one is None or other is None:
        return one or other
    return one if one.score >= other.score else other


def _fitted(matches: Correspondences, matrix: FloatArray | None, threshold: float) -> _Fit | None:
    """Return a model after the last fit."""
    if matrix is None or not np.isfinite(matrix).all():
        return None
    p, q, model, cameras = matches.p, matches.q, matches.model, matches.cameras

    def scored(matrix: FloatArray) -> _Fit:
        residuals = fitting.residual(p, q, model, matrix, cameras)
        return _Fit(matrix, residuals, fitting.score(residuals, threshold))

    sampled = scored(matrix)
    fitted = fitting.fit(matches, matrix, threshold)
    if not np.isfinite(fitted).all():
        return sampled
    # The fit weights precise matches more, which can cost a little of the score.
    final = scored(fitted)
    return final if final.score >= _KEPT * sampled.score else sampled


def _parameters(seed: int, threshold: float) -> cv2.UsacParams:
    p = cv2.UsacParams()
    p.randomGeneratorState = seed
    p.threshold = threshold
    p.confidence = _CONFIDENCE
    p.maxIterations = _ITERATIONS
    p.score = cv2.SCORE_METHOD_MAGSAC
    p.sampler = cv2.SAMPLING_UNIFORM
    p.loMethod = cv2.LOCAL_OPTIM_INNER_AND_ITER_LO
    p.loIterations = 10
    p.loSampleSize = 50
    p.isParallel = False
    return p


def _sampled(matches: Correspondences, parameters: cv2.UsacParams) -> FloatArray | None:
    """Return the best model of random samples of points."""
    for _ in range(_TRIES):
        try:
            return _by_opencv(matches, parameters)
        except cv2.error:
            # OpenCV raises an error for degenerate samples: of collinear points always, of points
            # in a plane, for a fundamental matrix, sometimes.
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
        scaled = _parameters(parameters.randomGeneratorState, parameters.threshold / focal)
        unit = [
            cv2.undistortPoints(v[:, None], k, None)[:, 0]
            for v, k in zip((p, q), cameras, strict=True)
        ]
        eye = np.eye(3)
        matrix, _ = cv2.findEssentialMat(unit[0], unit[1], eye, eye, None, None, scaled)
    return None if matrix is None else np.asarray(matrix[:3], np.float64)
