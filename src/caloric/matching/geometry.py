"""Robust, seeded estimation of the geometry that most matches agree on."""

import numbers
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError, unknown
from caloric.runtime import tables
from caloric.theory.gaussians import FloatArray

Model = Literal["homography", "fundamental", "essential", "affine"]
_NEEDED = {"homography": 4, "fundamental": 7, "essential": 5, "affine": 3}


@dataclass(frozen=True, eq=False)
class Geometry:
    """A model of how two images relate.

    ``matrix`` maps (homography, 3 x 3; affine, 2 x 3) or constrains (fundamental, essential, 3 x 3)
    points of the first image to the second; None when no model was found. ``inliers`` (m,) says
    which matches obey it, ``residuals`` (m,) by how many pixels each misses.
    """

    model: Model
    matrix: FloatArray | None
    inliers: NDArray[np.bool_]
    residuals: FloatArray

    def __len__(self) -> int:
        """Return the number of inliers."""
        return int(self.inliers.sum())

    def __repr__(self) -> str:
        """Return a summary in one line."""
        if self.matrix is None:
            return f"Geometry(no {self.model} in {len(self.inliers)} matches)"
        median = f", median residual {np.median(self.residuals[self.inliers]):.2g} px"
        counts = f"{len(self)} of {len(self.inliers)} matches"
        return f"Geometry({self.model} of {counts}{median if len(self) else ''})"

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
) -> Geometry:
    """Return the model estimated from matched points a and b, (m, 2) each, by MAGSAC++.

    ``threshold`` is in pixels. "essential" needs the two ``intrinsics`` (3 x 3). The same points
    and seed give the same result.
    """
    if model not in _NEEDED:
        raise unknown("model", model, _NEEDED)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be a whole number from 0 to {2**31 - 1}, got {seed!r}")
    if not (isinstance(threshold, numbers.Real) and 0 < threshold < np.inf):
        raise InputError(f"threshold must be a positive number of pixels, got {threshold!r}")
    p, q = (np.ascontiguousarray(v, np.float64) for v in (a, b))
    for points in (p, q):
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"matched points must have shape (m, 2), got {points.shape}")
    if len(p) != len(q):
        raise InputError(f"{len(p)} points in the first image but {len(q)} in the second")
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        raise InputError("NaN or infinite coordinates among the matches")
    cameras = None
    if model == "essential":
        if intrinsics is None:
            raise InputError("model 'essential' needs intrinsics=(K_a, K_b), each 3 x 3")
        cameras = [np.asarray(k, np.float64) for k in intrinsics]
        if [k.shape for k in cameras] != [(3, 3), (3, 3)]:
            raise InputError("intrinsics must be two 3 x 3 matrices")
        if not all(np.isfinite(k).all() and k[0, 0] > 0 and k[1, 1] > 0 for k in cameras):
            raise InputError("intrinsics must have positive focal lengths at [0, 0] and [1, 1]")
        if not all(np.allclose(k[2], [0, 0, 1]) for k in cameras):
            raise InputError("the last row of intrinsics must be 0, 0, 1")
    no_geometry = Geometry(model, None, np.zeros(len(p), bool), np.full(len(p), np.inf))
    if len(np.unique(np.concatenate([p, q], 1), axis=0)) < _NEEDED[model]:
        return no_geometry
    options = _parameters(seed, threshold, confidence, iterations)
    try:
        matrix = _estimate(p, q, model, options, cameras)
    except cv2.error:
        # OpenCV raises an error for degenerate configurations such as collinear points.
        return no_geometry
    if matrix is None or not np.isfinite(matrix).all():
        return no_geometry
    residuals = residual(p, q, model, matrix, cameras)
    return Geometry(model, matrix, residuals <= threshold, residuals)


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
        options.threshold = options.threshold / float(np.mean([k[[0, 1], [0, 1]] for k in cameras]))
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
