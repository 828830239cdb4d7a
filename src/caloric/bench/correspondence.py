"""Corresponding frames of two images, given the homography between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from caloric.frames import Frames
from caloric.types import FloatArray

REGION = 3.0  # radius of a frame's region in σ
_SAMPLES = 400
_BLOCK = 8192


def project(homography: FloatArray, xy: FloatArray) -> FloatArray:
    """Return points (n, 2) mapped by a homography."""
    z = np.column_stack([xy, np.ones(len(xy))]) @ homography.T
    return np.asarray(z[:, :2] / z[:, 2:])


def jacobians(homography: FloatArray, xy: FloatArray) -> FloatArray:
    """Return the affine part (n, 2, 2) of the homography at each point."""
    z = np.column_stack([xy, np.ones(len(xy))]) @ homography.T
    top, bottom = homography[None, :2, :2], homography[None, 2:, :2]
    numerator = top * z[:, None, 2:] - z[:, :2, None] * bottom
    return np.asarray(numerator / z[:, None, 2:] ** 2)


def _disk() -> FloatArray:
    """Return points (400, 2) spread evenly over the unit disk."""
    k = np.arange(_SAMPLES) + 0.5
    angle = k * np.pi * (3 - np.sqrt(5))
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.asarray(np.sqrt(k / _SAMPLES)[:, None] * circle)


@dataclass(frozen=True, eq=False)
class Pairs:
    """The indices (m, 2) of pairs of frames whose regions overlap, and their overlap (m,)."""

    indices: NDArray[np.intp]
    overlap: FloatArray


def corresponding(
    a: Frames,
    b: Frames,
    homography: FloatArray,
    min_overlap: float = 0.5,
    normalized: float | None = None,
) -> Pairs:
    """Return the pairs of frames whose intersection over union exceeds ``min_overlap``.

    The region of a frame is its ellipse, scaled by REGION. Regions of ``a`` are mapped by the
    affine part of the homography at their centers. With ``normalized``, both regions of a pair are
    scaled about their centers so that the first has this radius in pixels (Mikolajczyk's
    protocol): the tolerated distance of the centers is then independent of the frames' size.
    """
    centers = project(homography, a.xy)
    shapes = REGION * jacobians(homography, a.xy) @ a.maps[:, :, :2]
    area_a = np.abs(np.linalg.det(shapes))
    shapes_b = REGION * b.maps[:, :, :2]
    area_b = np.abs(np.linalg.det(shapes_b))
    visible = np.isfinite(area_a) & (area_a > 0)
    scale = np.ones(len(a))
    if normalized is not None:
        scale[visible] = normalized / np.sqrt(area_a[visible])
    reach = np.zeros(len(a))
    reach[visible] = scale[visible] * np.linalg.norm(shapes[visible], 2, axis=(1, 2))
    if not len(b):
        return Pairs(np.zeros((0, 2), np.intp), np.zeros(0))
    nearby = cKDTree(b.xy).query_ball_point(centers[visible], reach[visible])
    rows = np.repeat(np.flatnonzero(visible), [len(n) for n in nearby]).astype(np.intp)
    columns = np.array([j for n in nearby for j in n], np.intp)
    ratio = area_a[rows] / area_b[columns]
    # The overlap is at most the ratio of the smaller to the larger area.
    possible = (ratio > min_overlap) & (ratio < 1 / min_overlap)
    rows, columns = rows[possible], columns[possible]
    intersection = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        i, j = rows[start : start + _BLOCK], columns[start : start + _BLOCK]
        offset = (b.xy[j] - centers[i]) / scale[i, None]
        # Sample points of b's region in coordinates in which a's region is the unit disk.
        inverse = np.linalg.inv(shapes[i])
        relative = inverse @ shapes_b[j]
        x, y = (relative @ _disk().T + inverse @ offset[..., None]).transpose(1, 0, 2)
        inside = (x * x + y * y <= 1).mean(1)
        intersection[start : start + _BLOCK] = inside * area_b[j]
    overlap = intersection / (area_a[rows] + area_b[columns] - intersection)
    keep = overlap > min_overlap
    return Pairs(np.column_stack([rows[keep], columns[keep]]), overlap[keep])


def one_to_one(pairs: Pairs) -> int:
    """Return the number of one-to-one correspondences, assigned greedily by overlap."""
    order = np.argsort(-pairs.overlap, kind="stable")
    used_a: set[int] = set()
    used_b: set[int] = set()
    for i, j in pairs.indices[order].tolist():
        if i not in used_a and j not in used_b:
            used_a.add(i)
            used_b.add(j)
    return len(used_a)
