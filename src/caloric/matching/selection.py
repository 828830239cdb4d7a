"""The kind of model, chosen from the matches.

A homography relates two images of a plane, or two images of any scene from one position. For other
scenes points are only related to epipolar lines, by a fundamental matrix, or by an essential matrix
if the cameras are calibrated. Both kinds are estimated. Every match of a plane agrees with its
homography and with the epipolar geometry, so the scene is planar if the epipolar geometry has few
inliers that the homography does not have.
"""

from dataclasses import replace
from typing import Unpack

from numpy.typing import ArrayLike

from caloric.matching import geometry
from caloric.matching.geometry import EstimateKeywords, Geometry

# Inliers of the homography relative to those of the epipolar geometry: above the first, the scene
# is planar; above the second, most of it is.
_PLANAR, _MOSTLY_PLANAR = 0.92, 0.6
_NAMES = {"fundamental": "fundamental matrix", "essential": "essential matrix"}


def estimate(
    a: ArrayLike,
    b: ArrayLike,
    **options: Unpack[EstimateKeywords],
) -> Geometry:
    """Return a homography or an epipolar geometry of matched points a and b, (m, 2) each.

    The epipolar geometry is an essential matrix if ``intrinsics`` are given. The option ``model``
    is not used.
    """
    options["model"] = "homography"
    plane = geometry.estimate(a, b, **options)
    options["model"] = "fundamental" if options.get("intrinsics") is None else "essential"
    epipolar = geometry.estimate(a, b, **options)
    return choose(plane, epipolar)


def choose(plane: Geometry, epipolar: Geometry) -> Geometry:
    """Return the better of two geometries of the same matches, with the reason."""
    in_plane, in_all, name = len(plane), len(epipolar), _NAMES[epipolar.model]
    share = in_plane / max(in_all, 1)
    counts = f"{in_plane} matches agree with a homography, {in_all} with a {name}"
    if share >= _PLANAR and (plane or not epipolar):
        text = f"homography: the scene is planar or the camera only rotated ({counts})"
        return replace(plane, reason=_joined(text, plane.reason))
    if plane and not epipolar:
        text = f"homography: the {name} is not reliable ({counts})"
        return replace(plane, reason=_joined(text, plane.reason))
    part = "most of the scene is planar, with parallax" if share >= _MOSTLY_PLANAR else (
        "the scene has depth"
    )  # fmt: skip
    return replace(epipolar, reason=_joined(f"{name}: {part} ({counts})", epipolar.reason))


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
