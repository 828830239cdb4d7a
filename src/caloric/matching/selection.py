"""The kind of model, chosen from the matches.

A homography relates two images of a plane, or two images of any scene from one position. For other
scenes points are only related to epipolar lines, by a fundamental matrix, or by an essential matrix
if the cameras are calibrated. Every match of a plane agrees with its homography and with the
epipolar geometry, and few scenes are planar to the precision of matches. Both models are estimated.
The scene is planar unless significantly many matches, at many positions, agree with the epipolar
geometry although they are farther from the homography than relief or a lens may explain. If the
camera did not move, there is no epipolar geometry, whatever moves in the scene: most matches at
many positions are unchanged.
"""

from dataclasses import replace
from math import hypot
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import unknown
from caloric.matching import geometry, repetition
from caloric.matching.confidence import NEEDED, REPEATED, Evidence
from caloric.matching.estimation import Correspondences
from caloric.matching.geometry import EstimateKeywords, Geometry
from caloric.matching.models import Box, mapped
from caloric.runtime import threads
from caloric.runtime.indexing import first_of_cells
from caloric.types import FloatArray, GeometryModel, ModelChoice

# Lengths are shares of the diagonal of the second image. The limits were found with pairs rendered
# from photographs, with collections, and with webcams (``python -m tools geometry``).
_STATIC = 0.0015  # largest change of a position if the camera did not move
_STATIC_SHARE, _MIN_STATIC = 0.08, 10  # of such matches among the inliers, and their number
_STATIC_SPREAD = 0.25  # share of the cells with inliers that have such matches
_CELLS = 12  # along the diagonal
_RELIEF = 0.0025  # largest distance from a plane that may be relief or the distortion of a lens
_PARALLAX_SHARE = 0.06  # of inliers with parallax
_FREE = 4  # matches off the plane through which there is an epipolar geometry, or nearly
_SIGNIFICANCE = 6.0  # standard deviations by which they exceed those by chance
_MOSTLY_PLANAR = 0.6  # inliers of the homography relative to those of the epipolar geometry
_MOST = 0.5  # of the matches, which are hardly due to repeated structure
_NAMES = {"fundamental": "fundamental matrix", "essential": "essential matrix"}


def check_options(
    model: ModelChoice,
    threshold: float | None,
    seed: int,
    intrinsics: tuple[ArrayLike, ArrayLike] | None,
) -> None:
    """Raise InputError if an option of an estimate, with or without a choice, is invalid."""
    if model not in ("auto", *NEEDED):
        raise unknown("model", model, ("auto", *NEEDED))
    checked = epipolar_model(intrinsics) if model == "auto" else model
    geometry.check_options(checked, threshold, seed, intrinsics)


def epipolar_model(intrinsics: tuple[ArrayLike, ArrayLike] | None) -> GeometryModel:
    """Return the kind of epipolar geometry: "essential" if the cameras are calibrated."""
    return "fundamental" if intrinsics is None else "essential"


def estimate(
    a: ArrayLike,
    b: ArrayLike,
    **options: Unpack[EstimateKeywords],
) -> Geometry:
    """Return a homography or an epipolar geometry of matched points a and b, (m, 2) each.

    The epipolar geometry is an essential matrix if ``intrinsics`` are given. The option ``model``
    is not used.
    """

    def estimated(model: GeometryModel) -> tuple[Geometry, Evidence | None]:
        without = options.copy()
        without["model"], without["appearance"] = model, None  # which is only used if it matters
        return geometry.estimate_with_evidence(a, b, **without)

    other = epipolar_model(options.get("intrinsics"))
    pending = threads.begin(lambda: estimated(other))  # both geometries at the same time
    (plane, of_plane), (epipolar, of_epipolar) = estimated("homography"), pending()
    p, q = geometry.checked_points(a), geometry.checked_points(b)
    size = Box.of(options.get("size"), q).size if len(q) else (1.0, 1.0)
    if _is_static(p, q, size, epipolar):
        unchanged = _unchanged(p, q, size, options)
        if unchanged:
            moved = _moved(p, q, unchanged, options)
            part = "" if moved is None else f"; part of the image did ({len(moved)} matches)"
            return replace(
                unchanged, reason=f"homography: the camera did not move{part}", alternative=moved
            )
    is_most = plane and len(plane) > _MOST * len(p)
    if is_most and not has_parallax(plane, epipolar, size):
        return choose(plane, epipolar, q, size)
    of_other = options.copy()
    of_other["model"] = other
    epipolar, of_epipolar = geometry.without_repetition(epipolar, of_epipolar, p, q, of_other)
    is_repeated = of_epipolar is not None and of_epipolar.distinct < 0.5
    if of_plane and is_repeated and not is_most:
        plane = _doubted(plane, of_plane, options)
    chosen = choose(plane, epipolar, q, size)
    if is_repeated and not chosen and REPEATED not in chosen.reason:
        chosen = replace(chosen, reason=f"{chosen.reason}; {REPEATED}")
    return chosen


def _doubted(plane: Geometry, evidence: Evidence, options: EstimateKeywords) -> Geometry:
    """Return a homography whose matches may be due to repeated structure."""
    appearance = options.get("appearance")
    if appearance is None or not plane:
        return plane
    _, probability = repetition.examined(appearance, plane.inliers)
    judged = replace(evidence, distinct=probability)
    return replace(plane, confidence=judged.confidence, reason=judged.weakness)


def _is_static(p: FloatArray, q: FloatArray, size: tuple[float, float], all_: Geometry) -> bool:
    """Return whether matches at many positions are at the same position in both images."""
    unchanged = np.abs(p - q).max(1, initial=0.0) <= _STATIC * hypot(*size)
    number = max(len(all_), 1)
    if unchanged.sum() < max(_MIN_STATIC, _STATIC_SHARE * number):
        return False
    return _cells(q, unchanged, size) >= _STATIC_SPREAD * _cells(q, all_.inliers, size)


def _unchanged(
    p: FloatArray, q: FloatArray, size: tuple[float, float], options: EstimateKeywords
) -> Geometry:
    """Return the homography of a camera that did not move: the identity, or one close to it.

    What moves in the scene says nothing about its precision, so that the confidence follows from
    the number of false alarms, and from a rival.
    """
    planar = options.copy()
    planar["model"] = "homography"
    planar["start"] = np.eye(3)
    result, evidence = geometry.estimate_with_evidence(p, q, **planar)
    h, w = size
    corners = np.array([[0, 0], [w, 0], [0, h], [w, h]])
    limit = _STATIC * hypot(h, w)
    if result.matrix is None or np.abs(mapped(corners, result.matrix) - corners).max() > limit:
        planar["estimator"], planar["start"] = _identity, None
        result, evidence = geometry.estimate_with_evidence(p, q, **planar)
    if evidence is None:
        return result
    confidence = replace(evidence, planar=False, error=0.0).confidence
    return replace(result, confidence=confidence)


def _identity(matches: Correspondences, threshold: float, seed: int) -> FloatArray:
    return np.eye(3)


def _moved(
    p: FloatArray, q: FloatArray, unchanged: Geometry, options: EstimateKeywords
) -> Geometry | None:
    """Return a second motion, among the matches of a fixed camera that changed; None without it."""
    rest = unchanged.residuals > 2 * unchanged.threshold
    second = geometry.estimate(
        p[rest], q[rest], model="homography", threshold=options.get("threshold"),
        size_a=options.get("size_a"), size=options.get("size"),
    )  # fmt: skip
    if not second:
        return None
    inliers, residuals = np.zeros(len(p), bool), np.full(len(p), np.inf)
    inliers[rest], residuals[rest] = second.inliers, second.residuals
    return replace(second, inliers=inliers, residuals=residuals)


def _cells(points: FloatArray, chosen: NDArray[np.bool_], size: tuple[float, float]) -> int:
    """Return the number of cells of an image that contain chosen points (m, 2)."""
    cells = np.floor(points[chosen] * (_CELLS / hypot(*size))).astype(np.int64)
    return len(first_of_cells(cells))


def choose(
    plane: Geometry, epipolar: Geometry, q: FloatArray, size: tuple[float, float]
) -> Geometry:
    """Return the better of two geometries of the same matches, with the other as alternative.

    ``q`` (m, 2) are the matched points in the second image, which has a size (h, w).
    """
    name, total = _NAMES[epipolar.model], len(plane.inliers)
    article = "an" if epipolar.model == "essential" else "a"
    counts = (
        f"of {total} matches, {len(plane)} agree with a homography, {len(epipolar)} with {article} "
        f"{name}"
    )
    if not plane and not epipolar:
        better = epipolar.confidence > plane.confidence
        chosen, other = (epipolar, plane) if better else (plane, epipolar)
        text = "not reliable"
    elif not epipolar:
        chosen, other = plane, epipolar
        text = f"homography: the {name} is not reliable"
    elif plane and not has_parallax(plane, epipolar, size):
        chosen, other = plane, epipolar
        text = "homography: the scene is planar or the camera only rotated"
    else:
        chosen, other = epipolar, plane
        depth = "most of the scene is planar, with parallax"
        is_flat = plane and len(plane) >= _MOSTLY_PLANAR * len(epipolar)
        text = f"{name}: {depth if is_flat else 'the scene has depth'}"
    return _with_reason(chosen, f"{text} ({counts})", other)


def has_parallax(plane: Geometry, epipolar: Geometry, size: tuple[float, float]) -> bool:
    """Return whether matches off a plane agree with an epipolar geometry better than by chance.

    Errors of matches have any direction, parallax that of the epipolar lines. A match whose
    residual with the homography is ρ has a residual up to t with lines of any direction with the
    probability 2/π asin(t / ρ). A few agree because the epipole is chosen so.
    """
    if plane.matrix is None:
        return True
    residuals = plane.residuals / 2**0.5  # Sampson's distances, as those from epipolar lines
    far = np.isfinite(residuals) & (residuals > _RELIEF * hypot(*size))
    chance = 2 / np.pi * np.arcsin(np.minimum(epipolar.threshold / residuals[far], 1.0))
    excess = float((epipolar.inliers & far).sum() - chance.sum()) - _FREE
    deviation = float(np.sqrt((chance * (1 - chance)).sum()))
    return excess > max(_PARALLAX_SHARE * len(epipolar), _SIGNIFICANCE * deviation)


def _with_reason(chosen: Geometry, text: str, other: Geometry) -> Geometry:
    alternative = None if other.matrix is None else other
    reason = "; ".join(part for part in (text, chosen.reason) if part)
    return replace(chosen, reason=reason, alternative=alternative)
