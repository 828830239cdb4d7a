"""The geometry of matched points, with its inliers and confidence."""

import numbers
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError, unknown
from caloric.matching import confidence as evidence
from caloric.matching import fitting, robust
from caloric.matching.confidence import NEEDED
from caloric.matching.fitting import Correspondences
from caloric.matching.robust import GeometryEstimator
from caloric.runtime import tables
from caloric.types import FloatArray, GeometryModel


@dataclass(frozen=True, eq=False)
class Geometry:
    """The geometric model that relates two images.

    ``bool(geometry)`` is True if its confidence exceeds 0.5.

    Attributes
    ----------
    model : str
        "homography", "affine", "fundamental" or "essential".
    matrix : array or None
        The map of points from the first image to the second (homography, 3 x 3; affine, 2 x 3) or
        their epipolar constraint (fundamental and essential, 3 x 3); None if no model was found.
    inliers : array (m,) of bool
        Which matches agree with the model.
    residuals : array (m,)
        The error of each match in pixels.
    confidence : float
        The probability that the model is correct (:mod:`caloric.matching.confidence`).
    """

    model: GeometryModel
    matrix: FloatArray | None
    inliers: NDArray[np.bool_]
    residuals: FloatArray
    confidence: float = 0.0

    def __bool__(self) -> bool:
        """Return whether the confidence exceeds 0.5."""
        return self.matrix is not None and self.confidence > 0.5

    def __len__(self) -> int:
        """Return the number of inliers."""
        return int(self.inliers.sum())

    def __repr__(self) -> str:
        """Return a one-line summary."""
        if self.matrix is None:
            return f"Geometry(no {self.model} in {len(self.inliers)} matches)"
        counts = f"{self.model}, {len(self)} inliers of {len(self.inliers)} matches"
        return f"Geometry({counts}, confidence {self.confidence:.2f})"

    def _repr_html_(self) -> str:
        rows = [] if self.matrix is None else self.matrix.tolist()
        return tables.html(repr(self), [""] * 3, rows, len(rows))


def estimate(
    a: ArrayLike,
    b: ArrayLike,
    *,
    model: GeometryModel = "homography",
    threshold: float = 2.0,
    seed: int = 0,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    size: tuple[int, int] | None = None,
    size_a: tuple[int, int] | None = None,
    covariances: FloatArray | None = None,
    frames: tuple[FloatArray, FloatArray] | None = None,
    estimator: GeometryEstimator = robust.estimate,
) -> Geometry:
    """Return the model estimated from matched points a and b, (m, 2) each.

    ``threshold`` is in pixels. "essential" needs the two ``intrinsics`` (3 x 3). The same points
    and seed give the same result. ``size_a`` and ``size``, the sizes (h, w) of the first and of the
    second image, are used for the confidence; by default the points are assumed to span the images.
    ``covariances`` (m, 2, 2) of b weight the matches in the last fit. ``frames`` (m, 2, 3) of a and
    b are sampled if few matches agree, and are evidence for or against a planar model.
    ``estimator`` estimates the model; it can wrap another library.
    """
    cameras = check_options(model, threshold, seed, intrinsics)
    p, q = (np.ascontiguousarray(v, np.float64) for v in (a, b))
    for points in (p, q):
        if points.ndim != 2 or points.shape[1] != 2:
            raise InputError(f"matched points must have shape (m, 2), got {points.shape}")
    if len(p) != len(q):
        raise InputError(f"{len(p)} points in the first image but {len(q)} in the second")
    if not (np.isfinite(p).all() and np.isfinite(q).all()):
        raise InputError("matched points contain NaN or infinite coordinates")
    no_geometry = Geometry(model, None, np.zeros(len(p), bool), np.full(len(p), np.inf))
    if len(np.unique(np.concatenate([p, q], 1), axis=0)) < NEEDED[model]:
        return no_geometry
    factors = None if covariances is None else fitting.factors(covariances)
    matches = Correspondences(p, q, model, cameras, factors, frames)
    matrix = estimator(matches, threshold, seed)
    if matrix is None:
        return no_geometry
    residuals = fitting.residual(p, q, model, matrix, cameras)
    result = evidence.Estimate(
        model, matrix, p, q, residuals, threshold, (size_a or _extent(p), size or _extent(q)),
        frames, cameras,
    )  # fmt: skip
    confidence = evidence.evidence(result).confidence
    return Geometry(model, matrix, residuals <= threshold, residuals, confidence)


def _extent(points: FloatArray) -> tuple[float, float]:
    w, h = points.max(0) - points.min(0) + 1
    return float(h), float(w)


def check_options(
    model: str, threshold: float, seed: int, intrinsics: tuple[ArrayLike, ArrayLike] | None
) -> list[FloatArray] | None:
    """Raise InputError if an option of :func:`estimate` is invalid; return its intrinsics."""
    if model not in NEEDED:
        raise unknown("model", model, NEEDED)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be an integer from 0 to {2**31 - 1}, got {seed!r}")
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
        raise InputError("intrinsics must have the last row 0, 0, 1")
    return cameras
