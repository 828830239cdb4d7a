"""The geometry of matched points, with its inliers and confidence."""

import numbers
from dataclasses import dataclass, replace
from functools import partial
from typing import TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError, unknown
from caloric.matching import agreement, confidence, estimation, models, repetition
from caloric.matching.confidence import NEEDED, Evidence, evidence, is_line
from caloric.matching.estimation import (
    RIVAL,
    UNCHANGED,
    Correspondences,
    Estimate,
    GeometryEstimator,
)
from caloric.matching.likelihood import QUANTILES, Likelihood, Limits, Noise
from caloric.matching.models import Box
from caloric.matching.repetition import Appearance
from caloric.runtime import tables
from caloric.types import FloatArray, GeometryModel, Report


class EstimateKeywords(TypedDict, total=False):
    """Options of :func:`estimate`.

    ``threshold`` is in pixels; if it is None, the noise is estimated. "essential" needs the two
    ``intrinsics`` (3 x 3). The same points and seed give the same result. ``size_a`` and ``size``
    are the sizes (h, w) of both images; by default the points are assumed to span them.
    ``covariances`` (m, 2, 2) of b weight the matches. ``frames`` (m, 2, 3) of a and b help to find
    the model, and are evidence for or against a planar one. There is no model if ``support``, such
    frames too, is given and no match agrees with its neighbors. ``appearance`` is evidence for or
    against repeated structure (:mod:`repetition`), which epipolar geometries may fit. ``scores``
    (m,) are larger for matches that are more likely to be correct, and are sampled first; by
    default they are those of :mod:`agreement` if there are frames and not too many matches. A model
    is fitted from the matrix ``start``, if it is given, without sampling. ``estimator`` estimates
    the model; it can wrap another library.
    """

    model: GeometryModel
    threshold: float | None
    seed: int
    intrinsics: tuple[ArrayLike, ArrayLike] | None
    size: tuple[int, int] | None
    size_a: tuple[int, int] | None
    covariances: FloatArray | None
    frames: tuple[FloatArray, FloatArray] | None
    support: tuple[FloatArray, FloatArray] | None
    appearance: Appearance | None
    scores: FloatArray | None
    start: FloatArray | None
    estimator: GeometryEstimator | None


_RELIABLE = 0.9  # confidence up to which the reason of a geometry states the evidence against it
_GENERIC = np.sqrt([2.0, 3.0, 5.0, 7.0])  # products with distinct coordinates are distinct
_TOO_FEW = "too few matches at distinct positions"
_NO_SUPPORT = "no match agrees with its neighbors"
_NOT_EXCLUDED = "repeated structure was not excluded, because the matches have no descriptors"
_NO_SAMPLE = "no sample of matches gives a model"
_ON_LINE = "the matches are on one line"
_THRESHOLD = 2.0  # pixels: for other estimators, which do not estimate the noise
_UNREFINED_ERROR = 0.3  # pixels: error of a match that was not refined
_MAX_SCORED = 500  # matches whose agreement with their neighbors is worth its time
_DOUBTED = 0.1  # confidence from which repeated structure is looked for


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
    threshold : float
        The largest residual of an inlier, in pixels.
    sigma : float
        The standard deviation of the residuals of correct matches in pixels, per dimension: that
        of a normal distribution with the same 90 % quantile.
    alternative : Geometry or None
        If ``model="auto"``, the geometry of the other kind, with its own inliers and confidence.
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
    threshold: float = 0.0
    sigma: float = 0.0
    alternative: "Geometry | None" = None

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


def alternative(geometry: Geometry) -> Report | None:
    """Return the geometry of the other kind as JSON, if there is one."""
    other = geometry.alternative
    if other is None or other.matrix is None:
        return None
    return {
        "model": other.model, "matrix": other.matrix.tolist(), "inliers": len(other),
        "confidence": other.confidence,
    }  # fmt: skip


def estimate(a: ArrayLike, b: ArrayLike, **options: Unpack[EstimateKeywords]) -> Geometry:
    """Return the geometry of matched points a and b, (m, 2) each: see :class:`EstimateKeywords`."""
    return estimate_with_evidence(a, b, **options)[0]


def estimate_with_evidence(
    a: ArrayLike, b: ArrayLike, **options: Unpack[EstimateKeywords]
) -> tuple[Geometry, Evidence | None]:
    """Return the geometry of matched points, and the evidence for it if there is one."""
    model, threshold = options.get("model", "homography"), options.get("threshold")
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
    matches = Correspondences(
        p, q, model, boxes[1].size, cameras, _variances(options.get("covariances")), frames
    )
    start = options.get("start")
    if start is None:
        scores, estimator = options.get("scores"), options.get("estimator")
        estimated_model = _estimated(matches, threshold, seed, scores, estimator)
    else:
        estimated_model = estimation.estimate(matches, seed, _max_sigma(matches, threshold), start)
    if estimated_model is None:
        reason = _ON_LINE if is_line(p) or is_line(q) else _NO_SAMPLE
        return replace(no_geometry, reason=reason), None
    result = _described(estimated_model, matches, threshold, no_geometry)
    described = confidence.Estimate(
        model, estimated_model.matrix, p, q, result.residuals, result.threshold, boxes, frames,
        cameras,
    )  # fmt: skip
    find_rival = partial(_rival, matches, threshold=threshold, seed=seed)
    judged = evidence(described, find_rival, estimated_model.covariance)
    result = replace(result, confidence=judged.confidence, reason=_reason(result, judged, options))
    return without_repetition(result, judged, p, q, options)


def _reason(known: Geometry, judged: Evidence, options: EstimateKeywords) -> str:
    if judged.confidence <= _RELIABLE:
        return judged.weakness
    is_excluded = models.is_planar(known.model) or options.get("appearance") is not None
    return "" if is_excluded else _NOT_EXCLUDED


def without_repetition(
    known: Geometry, judged: Evidence | None, p: FloatArray, q: FloatArray,
    options: EstimateKeywords,
) -> tuple[Geometry, Evidence | None]:  # fmt: skip
    """Return an epipolar geometry without inliers that are due to repeated structure.

    If all of them may be, its confidence is lower. Other geometries are returned unchanged.
    """
    appearance = options.get("appearance")
    if appearance is None or models.is_planar(known.model):
        return known, judged
    if judged is None or judged.confidence <= _DOUBTED:
        return known, judged
    repeated, probability = repetition.examined(appearance, known.inliers)
    if repeated.any():
        return _without(repeated, p, q, options, known)
    judged = replace(judged, distinct=probability)
    reason = _reason(known, judged, options)
    return replace(known, confidence=judged.confidence, reason=reason), judged


def _without(
    repeated: NDArray[np.bool_], p: FloatArray, q: FloatArray, options: EstimateKeywords,
    known: Geometry,
) -> tuple[Geometry, Evidence | None]:  # fmt: skip
    """Return the geometry without matches (m,) that are due to repeated structure."""
    kept = np.flatnonzero(~repeated)
    rest = options.copy()
    covariances, scores = options.get("covariances"), options.get("scores")
    rest["covariances"] = None if covariances is None else covariances[kept]
    rest["scores"] = None if scores is None else scores[kept]
    frames, appearance = options.get("frames"), options.get("appearance")
    rest["frames"] = None if frames is None else (frames[0][kept], frames[1][kept])
    rest["appearance"] = None if appearance is None else appearance.selected(kept)
    rest["support"] = None
    geometry, judged = estimate_with_evidence(p[kept], q[kept], **rest)
    inliers, residuals = np.zeros(len(repeated), bool), known.residuals.copy()
    inliers[kept], residuals[kept] = geometry.inliers, geometry.residuals
    return replace(geometry, inliers=inliers, residuals=residuals), judged


def _variances(covariances: FloatArray | None) -> FloatArray | None:
    """Return the mean variances (m,) of matches with covariances (m, 2, 2), in square pixels."""
    if covariances is None:
        return None
    variance = (covariances[:, 0, 0] + covariances[:, 1, 1]) / 2
    return np.where(np.isfinite(variance), variance, _UNREFINED_ERROR**2)


def _estimated(
    matches: Correspondences, threshold: float | None, seed: int, scores: FloatArray | None,
    estimator: GeometryEstimator | None,
) -> Estimate | None:  # fmt: skip
    """Return the model of matches, of which those with high scores (m,) are sampled first."""
    max_sigma = _max_sigma(matches, threshold)
    if estimator is not None:
        matrix = estimator(matches, _THRESHOLD if threshold is None else threshold, seed)
        if matrix is None or not np.isfinite(matrix).all():
            return None
        return estimation.estimate(matches, seed, max_sigma, matrix, UNCHANGED)
    if scores is None and matches.frames is not None and len(matches) <= _MAX_SCORED:
        scores = agreement.scores(*matches.frames, matches.size)
    if scores is not None:
        matches = matches.selected(np.argsort(-scores, kind="stable"))
    return estimation.estimate(matches, seed, max_sigma)


def _max_sigma(matches: Correspondences, threshold: float | None) -> float | None:
    return None if threshold is None else threshold / (matches.unit * QUANTILES[matches.dimensions])


def _rival(
    matches: Correspondences, others: NDArray[np.bool_], *, threshold: float | None, seed: int
) -> int:
    """Return the number of inliers of a second model, among the other matches (m,)."""
    rest = replace(matches, p=matches.p[others], q=matches.q[others], frames=None, variances=None)
    if rest.model == "essential":
        rest = replace(rest, model="fundamental", cameras=None)
    if not _has_distinct(np.concatenate([rest.p, rest.q], 1), NEEDED[rest.model] + 1):
        return 0
    estimated_model = estimation.estimate(rest, seed, _max_sigma(rest, threshold), None, RIVAL)
    if estimated_model is None:
        return 0
    residuals = rest.residuals(estimated_model.matrix)
    return int((residuals <= _spread(rest, estimated_model, residuals, threshold)[1]).sum())


def _spread(
    matches: Correspondences,
    estimated_model: Estimate,
    residuals: FloatArray,
    threshold: float | None,
) -> tuple[float, float]:
    """Return the deviation of residuals (m,), and the largest residual of an inlier."""
    likelihood = Likelihood(Limits.of(matches.model, matches.size))
    spread, limit = likelihood.spread((residuals / matches.unit) ** 2, estimated_model.noise)
    return matches.unit * spread, matches.unit * limit if threshold is None else threshold


def _described(
    estimated_model: Estimate, matches: Correspondences, threshold: float | None, known: Geometry
) -> Geometry:
    """Return a known geometry with a model and its inliers."""
    residuals, cameras = matches.residuals(estimated_model.matrix), matches.cameras
    sigma, limit = _spread(matches, estimated_model, residuals, threshold)
    return replace(
        known, matrix=estimated_model.matrix, inliers=residuals <= limit, residuals=residuals,
        covariance=estimated_model.covariance, threshold=limit, sigma=sigma,
        intrinsics=None if cameras is None else (cameras[0], cameras[1]),
    )  # fmt: skip


def _has_distinct(positions: FloatArray, number: int) -> bool:
    """Return whether at least ``number`` of the positions (m, 4) are distinct."""
    few = positions[: 4 * number]  # almost always enough
    return any(len(np.unique(part @ _GENERIC)) >= number for part in (few, positions))


def refitted(
    known: Geometry,
    a: ArrayLike,
    b: ArrayLike,
    covariances: FloatArray | None,
    threshold: float | None,
    size: tuple[int, int] | None,
) -> Geometry:
    """Return a geometry fitted again to matched points a and b (m, 2) that include new ones.

    The confidence stays the same: matches that were found with the geometry are no evidence for it.
    The threshold does, too, because they were searched within it.
    """
    p, q = checked_points(a), checked_points(b)
    cameras = None if known.intrinsics is None else list(known.intrinsics)
    box = Box.of(size, q)
    matches = Correspondences(p, q, known.model, box.size, cameras, _variances(covariances))
    max_sigma = _max_sigma(matches, threshold)
    estimated_model = estimation.estimate(matches, 0, max_sigma, start=known.matrix)
    assert known.matrix is not None
    if (
        estimated_model is None
        or len(known) > (matches.residuals(estimated_model.matrix) <= known.threshold).sum()
    ):
        estimated_model = Estimate(known.matrix, Noise(known.sigma, 1.0), 0.0, known.covariance)
    result = _described(estimated_model, matches, known.threshold, known)
    return replace(result, sigma=known.sigma)


def checked_points(values: ArrayLike) -> FloatArray:
    """Return points (m, 2) as an array; raise InputError for others."""
    points = np.ascontiguousarray(values, np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise InputError(f"matched points must have shape (m, 2), got {points.shape}")
    if not np.isfinite(points).all():
        raise InputError("matched points contain NaN or infinite coordinates")
    return points


def check_threshold(threshold: float | None) -> None:
    """Raise InputError unless a threshold is None or positive."""
    is_number = isinstance(threshold, numbers.Real) and not isinstance(threshold, bool)
    if threshold is not None and not (is_number and 0 < threshold < np.inf):
        raise InputError(
            f"threshold must be a positive number of pixels or None, got {threshold!r}"
        )


def check_options(
    model: str, threshold: float | None, seed: int, intrinsics: tuple[ArrayLike, ArrayLike] | None
) -> list[FloatArray] | None:
    """Raise InputError if an option of :func:`estimate` is invalid; return its intrinsics."""
    if model not in NEEDED:
        raise unknown("model", model, NEEDED)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise InputError(f"seed must be an integer from 0 to {2**31 - 1}, got {seed!r}")
    check_threshold(threshold)
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
