"""The kind of model, chosen from the matches.

A homography relates two images of a plane, or two images of any scene from one position. For other
scenes points are only related to epipolar lines, by a fundamental matrix, or by an essential matrix
if the cameras are calibrated. Every match of a plane agrees with its homography and with the
epipolar geometry, so the scene is planar if the epipolar geometry has few inliers that the
homography does not have. Both kinds are estimated, unless almost all matches agree with the
homography.
"""

from dataclasses import replace
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from caloric.errors import unknown
from caloric.matching import geometry, robust
from caloric.matching.confidence import NEEDED
from caloric.matching.fitting import Correspondences
from caloric.matching.geometry import EstimateKeywords, Geometry
from caloric.runtime import threads
from caloric.types import GeometryModel, ModelChoice

# Inliers of the homography relative to those of the epipolar geometry: above the first, the scene
# is planar; above the second, most of it is.
_PLANAR, _MOSTLY_PLANAR = 0.92, 0.6
_SAMPLE = 100  # matches that show whether a scene may be planar
_IN_PLANE = "homography: the scene is planar or the camera only rotated"
_NAMES = {"fundamental": "fundamental matrix", "essential": "essential matrix"}


def check_options(
    model: ModelChoice,
    threshold: float,
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

    def estimated(model: GeometryModel) -> Geometry:
        with_model = options.copy()
        with_model["model"] = model
        return geometry.estimate(a, b, **with_model)

    other = epipolar_model(options.get("intrinsics"))

    def if_not_planar() -> Geometry | None:
        threshold, seed = options.get("threshold", 2.0), options.get("seed", 0)
        return None if _may_be_planar(a, b, threshold, seed) else estimated(other)

    pending = threads.begin(if_not_planar)  # both geometries at the same time
    plane, epipolar = estimated("homography"), pending()
    # An epipolar geometry cannot have so many more inliers that it would be chosen.
    if epipolar is None and plane and len(plane) >= _PLANAR * len(plane.inliers):
        counts = f"{len(plane)} of {len(plane.inliers)} matches agree with it"
        return replace(plane, reason=_joined(f"{_IN_PLANE} ({counts})", plane.reason))
    return choose(plane, estimated(other) if epipolar is None else epipolar)


def _may_be_planar(a: ArrayLike, b: ArrayLike, threshold: float, seed: int) -> bool:
    """Return whether most of a sample of matches agree with a homography."""
    p, q = geometry.checked_points(a), geometry.checked_points(b)
    if len(p) != len(q) or len(p) < _SAMPLE:
        return False
    rows = np.random.default_rng(seed).permutation(len(p))[:_SAMPLE]
    sample = Correspondences(p[rows], q[rows], "homography")
    return robust.rival(sample, threshold, seed) >= _PLANAR * _SAMPLE


def choose(plane: Geometry, epipolar: Geometry) -> Geometry:
    """Return the better of two geometries of the same matches, with the reason."""
    in_plane, in_all, name = len(plane), len(epipolar), _NAMES[epipolar.model]
    article = "an" if epipolar.model == "essential" else "a"
    total = len(plane.inliers)
    counts = (
        f"of {total} matches, {in_plane} agree with a homography, {in_all} with {article} {name}"
    )
    share = in_plane / max(in_all, 1)
    if not plane and not epipolar:
        chosen = plane if share >= _PLANAR or epipolar.matrix is None else epipolar
        text = "not reliable"
    elif plane and share >= _PLANAR:
        chosen, text = plane, _IN_PLANE
    elif not epipolar:
        chosen, text = plane, f"homography: the {name} is not reliable"
    elif share >= _MOSTLY_PLANAR:
        chosen, text = epipolar, f"{name}: most of the scene is planar, with parallax"
    else:
        chosen, text = epipolar, f"{name}: the scene has depth"
    return replace(chosen, reason=_joined(f"{text} ({counts})", chosen.reason))


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
