"""Which frames of two images show the same thing, given the homography between them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from caloric.frames import Frames
from caloric.theory.gaussians import FloatArray

REGION = 3.0  # radius of a frame's region in σ
_SAMPLES = 400
_BLOCK = 8192


def project(homography: FloatArray, xy: FloatArray) -> FloatArray:
    """Points (n, 2) of the first image in the second."""
    z = np.column_stack([xy, np.ones(len(xy))]) @ homography.T
    return np.asarray(z[:, :2] / z[:, 2:])


def jacobians(homography: FloatArray, xy: FloatArray) -> FloatArray:
    """(n, 2, 2): the affine part of the homography at each point."""
    z = np.column_stack([xy, np.ones(len(xy))]) @ homography.T
    top, bottom = homography[None, :2, :2], homography[None, 2:, :2]
    numerator = top * z[:, None, 2:] - z[:, :2, None] * bottom
    return np.asarray(numerator / z[:, None, 2:] ** 2)


def _disc() -> FloatArray:
    """Points spread evenly over the unit disc."""
    k = np.arange(_SAMPLES) + 0.5
    angle = k * np.pi * (3 - np.sqrt(5))
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.asarray(np.sqrt(k / _SAMPLES)[:, None] * circle)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of frames whose regions overlap by more than half, and by how much."""

    indices: NDArray[np.intp]
    overlap: FloatArray


def corresponding(
    a: Frames,
    b: Frames,
    homography: FloatArray,
    least: float = 0.5,
    normalised: float | None = None,
) -> Pairs:
    """Frames of b on frames of a moved by the homography: intersection over union of regions.

    A region is the ellipse of a frame at REGION times its size, moved by the homography's affine
    part at its centre. With ``normalised``, both regions of a pair are then scaled about their
    centres until the first has that radius in pixels, as Mikolajczyk's protocol has it: how far the
    centres may be apart no longer depends on the size of the frames.
    """
    centres = project(homography, a.xy)
    shapes = REGION * jacobians(homography, a.xy) @ a.maps[:, :, :2]
    area_a = np.abs(np.linalg.det(shapes))
    shapes_b = REGION * b.maps[:, :, :2]
    area_b = np.abs(np.linalg.det(shapes_b))
    visible = np.isfinite(area_a) & (area_a > 0)
    scale = np.ones(len(a))
    if normalised is not None:
        scale[visible] = normalised / np.sqrt(area_a[visible])
    reach = np.full(len(a), 0.0)
    reach[visible] = scale[visible] * np.linalg.norm(shapes[visible], 2, axis=(1, 2))
    if not len(b):
        return Pairs(np.zeros((0, 2), np.intp), np.zeros(0))
    near = cKDTree(b.xy).query_ball_point(centres[visible], reach[visible])
    rows = np.repeat(np.flatnonzero(visible), [len(n) for n in near]).astype(np.intp)
    columns = np.array([j for n in near for j in n], np.intp)
    ratio = area_a[rows] / area_b[columns]
    # Regions whose areas differ twofold cannot overlap by half.
    possible = (ratio > least) & (ratio < 1 / least)
    rows, columns = rows[possible], columns[possible]
    shared = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        i, j = rows[start : start + _BLOCK], columns[start : start + _BLOCK]
        apart = (b.xy[j] - centres[i]) / scale[i, None]
        # Points of b's disc in the coordinates of a's, x and y one after the other.
        back = np.linalg.inv(shapes[i])
        moved = back @ shapes_b[j]
        x, y = (moved @ _disc().T + back @ apart[..., None]).transpose(1, 0, 2)
        share = (x * x + y * y <= 1).mean(1)
        shared[start : start + _BLOCK] = share * area_b[j]
    overlap = shared / (area_a[rows] + area_b[columns] - shared)
    keep = overlap > least
    return Pairs(np.column_stack([rows[keep], columns[keep]]), overlap[keep])


def one_to_one(pairs: Pairs) -> int:
    """How many correspondences there are when each frame is used once, best overlap first."""
    order = np.argsort(-pairs.overlap, kind="stable")
    used_a: set[int] = set()
    used_b: set[int] = set()
    for i, j in pairs.indices[order].tolist():
        if i not in used_a and j not in used_b:
            used_a.add(i)
            used_b.add(j)
    return len(used_a)
