"""The geometry of matched points, with its inliers and confidence."""

import numbers
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError, unknown
from caloric.matching import agreement, fitting, models, robust
from caloric.matching.confidence import NEEDED, Estimate, Evidence, evidence, is_line
from caloric.matching.fitting import Correspondences
from caloric.matching.models import Box
from caloric.matching.robust import GeometryEstimator
from caloric.runtime import tables, threads
from caloric.types import FloatArray, GeometryModel


class EstimateKeywords(TypedDict, total=False):
    """Options of :func:`estimate`.

    ``threshold`` is in pixels. "essential" needs the two ``intrinsics`` (3 x 3). The same points
    and seed give the same result. ``size_a`` and ``size``, the sizes (h, w) of the first and of the
    second image, are used for the confidence; by default the points are assumed to span the images.
    ``covariances`` (m, 2, 2) of b weight the matches in the last fit. ``frames`` (m, 2, 3) of a and
    b are sampled if few matches agree, and are evidence for or against a planar model. There is no
    model if ``support``, such frames too, is given and no match agrees with its neighbors.
    The last fit uses only ``trusted`` matches (m,), if they suffice: matches that are less precise
    help to find the model. ``estimator`` estimates the model; it can wrap another library.
    """

    model: GeometryModel
    threshold: float
    seed: int
    intrinsics: tuple[ArrayLike, ArrayLike] | None
    size: tuple[int, int] | None
    size_a: tuple[int, int] | None
    covariances: FloatArray | None
    frames: tuple[FloatArray, FloatArray] | None
    support: tuple[FloatArray, FloatArray] | None
    trusted: NDArray[np.bool_] | None
    estimator: GeometryEstimator


_RELIABLE = 0.9  # confidence up to which the reason of a geometry states the evidence against it
_GENERIC = np.sqrt([2.0, 3.0, 5.0, 7.0])  # products with distinct coordinates are distinct
_TOO_FEW = "too few matches at distinct positions"
_NO_SUPPORT = "no match agrees with its neighbors"
_NO_SAMPLE = "no sample of matches gives a model"
_ON_LINE = "the matches are on one line"


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
        The last entry of a homography is 1.
    inliers : array (m,) of bool
        Which matches agree with the model.
    residuals : array (m,)
        Sampson's distance of each match, in pixels, which does not depend on the order of the
        images. For homographies and affine maps it is multiplied by the square root of 2, so that
        for a translation it is the distance in either image.
    confidence : float
        The probability that the mean error of the model over the overlap of the images is below 5
        pixels: of mapped points for homographies and affine maps, of the distance between true
        correspondences and their epipolar lines for fundamental and essential matrices.
        :mod:`caloric.matching.confidence` says how and on which images it was calibrated.
    reason : str
        Why this model was chosen, if ``model="auto"``, and why its confidence is low, if it is.
    covariance : array or None
        The covariance (9, 9) of the entries of ``matrix``, row by row; (6, 6) for "affine".
    intrinsics : (array (3, 3), array (3, 3)) or None
        The calibration matrices, for "essential".
    """

    model: GeometryModel
    matrix: FloatArray | None
    inliers: NDArray[np.bool_]
    residuals: FloatArray
    confidence: float = 0.0
    reason: str = ""
    covariance: FloatArray | None = None
    intrinsics: tuple[FloatArray, FloatArray] | None = None

    def error_at(self, points_a: ArrayLike, points_b: ArrayLike | None = None) -> FloatArray:
        """Return the expected error of the model at given points, in pixels.

        It follows from the scatter of the inliers and their distribution in the image, and grows
        with the distance from them. It does not include errors of the kind of model, such as a
        homography for a scene that is not planar.

        Parameters
        ----------
        points_a : array (k, 2)
            Points of the first image.
        points_b : array (k, 2), optional
            The corresponding points of the second image. They are required for fundamental and
            essential matrices, which map points to lines.

        Returns
        -------
        array (k,)
            The standard deviation of the position to which a point is mapped (homography and affine
            map), or of Sampson's distance (fundamental and essential matrix); infinite without a
            model.
        """
        p = checked_points(points_a)
        q = None if points_b is None else checked_points(points_b)
        if q is None and not models.is_planar(self.model):
            raise InputError(
                f"the {self.model} matrix maps points to lines: pass the corresponding points of "
                "the second image, error_at(points_a, points_b)"
            )
        if q is not None and len(p) != len(q):
            raise InputError(f"{len(p)} points in the first image but {len(q)} in the second")
        if self.matrix is None or self.covariance is None:
            return np.full(len(p), np.inf)
        cameras = None if self.intrinsics is None else list(self.intrinsics)
        return models.errors((p, q), self.model, self.matrix, self.covariance, cameras)

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


def estimate(a: ArrayLike, b: ArrayLike, **options: Unpack[EstimateKeywords]) -> Geometry:
    """Return the geometry of matched points a and b, (m, 2) each: see :class:`EstimateKeywords`."""
    return estimate_with_evidence(a, b, **options)[0]


def estimate_with_evidence(
    a: ArrayLike, b: ArrayLike, **options: Unpack[EstimateKeywords]
) -> tuple[Geometry, Evidence | None]:
    """Return the geometry of matched points, and the evidence for it if there is one."""
    model, threshold = options.get("model", "homography"), options.get("threshold", 2.0)
    seed, frames = options.get("seed", 0), options.get("frames")
    cameras = check_options(model, threshold, seed, options.get("intrinsics"))
    p, q = checked_points(a), checked_points(b)
    if len(p) != len(q):
        raise InputError(f"{len(p)} points in the first image but {len(q)} in the second")
    no_geometry = Geometry(
        model,
        None,
        np.zeros(len(p), bool),
        np.full(len(p), np.inf),
        reason=_TOO_FEW if len(p) else "no matches",
    )
    if not _has_distinct(np.concatenate([p, q], 1), NEEDED[model]):
        return no_geometry, None
    boxes = Box.of(options.get("size_a"), p), Box.of(options.get("size"), q)
    support = options.get("support")
    if support is not None and not agreement.has_support(*support, boxes[1].size):
        return replace(no_geometry, reason=_NO_SUPPORT), None
    covariances = options.get("covariances")
    variances = None if covariances is None else fitting.variances(covariances)
    trusted = options.get("trusted")
    matches = Correspondences(p, q, model, cameras, variances, frames, trusted)
    matrix = options.get("estimator", robust.estimate)(matches, threshold, seed)
    if matrix is None:
        reason = _ON_LINE if is_line(p) or is_line(q) else _NO_SAMPLE
        return replace(no_geometry, reason=reason), None
    residuals = matches.residuals(matrix)
    covariance = threads.begin(partial(fitting.covariance, matches, matrix, threshold, residuals))
    result = Estimate(model, matrix, p, q, residuals, threshold, boxes, frames, cameras)

    def find_rival(others: NDArray[np.bool_]) -> int:
        kind = "fundamental" if model == "essential" else model
        return robust.rival(Correspondences(p[others], q[others], kind), threshold, seed)

    judged = evidence(result, find_rival, covariance)
    return Geometry(
        model, matrix, result.inliers, residuals, judged.confidence,
        "" if judged.confidence > _RELIABLE else judged.weakness, covariance(),
        None if cameras is None else (cameras[0], cameras[1]),
    ), judged  # fmt: skip


def _has_distinct(positions: FloatArray, number: int) -> bool:
    """Return whether at least ``number`` of the positions (m, 4) are distinct."""
    few = positions[: 4 * number]  # almost always enough
    return any(len(np.unique(part @ _GENERIC)) >= number for part in (few, positions))


def refitted(
    known: Geometry,
    a: ArrayLike,
    b: ArrayLike,
    covariances: FloatArray | None,
    trusted: NDArray[np.bool_] | None,
    threshold: float,
) -> Geometry:
    """Return a geometry fitted again to matched points a and b (m, 2) that include new ones.

    The confidence stays the same: matches that were found with the geometry are no evidence for it.
    """
    assert known.matrix is not None
    p, q = checked_points(a), checked_points(b)
    cameras = None if known.intrinsics is None else list(known.intrinsics)
    variances = None if covariances is None else fitting.variances(covariances)
    matches = Correspondences(p, q, known.model, cameras, variances, None, trusted)
    fit = robust.fitted(matches, known.matrix, threshold)
    if fit is None:
        matrix, residuals = known.matrix, matches.residuals(known.matrix)
    else:
        matrix, residuals = fit.matrix, fit.residuals
    return replace(
        known, matrix=matrix, inliers=residuals <= threshold, residuals=residuals,
        covariance=fitting.covariance(matches, matrix, threshold, residuals),
    )  # fmt: skip


def checked_points(values: ArrayLike) -> FloatArray:
    """Return points (m, 2) as an array; raise InputError for others."""
    points = np.ascontiguousarray(values, np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(f"matched points must have shape (m, 2), got {points.shape}")
    if not np.isfinite(points).all():
        raise InputError("matched points contain NaN or infinite coordinates")
    return points


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
