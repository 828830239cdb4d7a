"""A figure of a model: its points in color and its cameras, obliquely from above.

The view is in the direction in which the cameras look, if most of them look in a similar one.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray

_ELEVATION = np.radians(28)
_SIMILAR = 0.3  # minimum length of the mean horizontal direction of cameras that look alike
_MARGIN = 0.06  # of the figure, on each side
_SHARE = 0.95  # of the points that must be in the figure
_CAMERA = (230, 80, 40)  # color, RGB


def up(rotations: FloatArray) -> FloatArray:
    """Return the direction (3,) that is up on average in images with rotations (n, 3, 3)."""
    mean = -np.asarray(rotations)[:, 1].mean(0)
    return np.asarray(mean / max(float(np.linalg.norm(mean)), 1e-12))


def camera_depth(centers: FloatArray, largest: float) -> float:
    """Return the depth with which to draw cameras at centers (m, 3), so that few of them overlap.

    It is between a third of ``largest`` and ``largest``.
    """
    from scipy.spatial import cKDTree  # slow to import

    if len(centers) < 2:
        return largest
    nearest = cKDTree(centers).query(centers, 2)[0][:, 1]
    return float(np.clip(np.median(nearest), largest / 3, largest))


def _axes(upward: FloatArray, rotations: FloatArray, points: FloatArray) -> FloatArray:
    """Return the axes (3, 3) of the figure, right, down and depth, as rows."""
    right = np.cross(rotations[:, 2].mean(0), upward)
    if np.linalg.norm(right) < _SIMILAR:  # the longest horizontal extent
        flat = points - np.outer(points @ upward, upward)
        _, _, directions = np.linalg.svd(flat - flat.mean(0), full_matrices=False)
        right = directions[0] - (directions[0] @ upward) * upward
    right /= max(float(np.linalg.norm(right)), 1e-12)
    level = np.cross(upward, right)
    depth = np.cos(_ELEVATION) * level - np.sin(_ELEVATION) * upward
    return np.stack([right, np.cross(depth, right), depth])


def draw(
    xyz: FloatArray,
    colors: NDArray[np.uint8],
    rotations: FloatArray,
    centers: FloatArray,
    size: tuple[int, int] = (540, 960),
) -> NDArray[np.uint8]:
    """Return a figure (h, w, 4) with a transparent background.

    Parameters
    ----------
    xyz : array (n, 3)
        The points.
    colors : array (n, 3) of uint8
        Their colors.
    rotations : array (m, 3, 3)
        The rotations from world to camera coordinates.
    centers : array (m, 3)
        The camera centers.
    size : (int, int)
        Height and width of the figure.
    """
    h, w = size
    figure = np.zeros((h, w, 4), np.uint8)
    axes = _axes(up(rotations), rotations, np.concatenate([xyz, centers]))
    points, cameras = xyz @ axes.T, centers @ axes.T
    # Distant points, which are few and inaccurate, may be outside of the figure.
    low, high = np.quantile(points, [(1 - _SHARE) / 2, (1 + _SHARE) / 2], axis=0)
    low, high = np.minimum(low, cameras.min(0)), np.maximum(high, cameras.max(0))
    extent = np.maximum(high - low, 1e-9)[:2]
    scale = float(((1 - 2 * _MARGIN) * np.array([w, h]) / extent).min())
    offset = np.array([w, h]) / 2 - scale * (low + high)[:2] / 2
    order = np.argsort(-points[:, 2])  # near points last
    xy = np.round(scale * points[order, :2] + offset).astype(int)
    inside = ((xy >= 0) & (xy < (w - 1, h - 1))).all(1)
    opaque = np.full((len(colors), 1), 255, np.uint8)
    pixels = np.concatenate([colors, opaque], 1)[order][inside]
    x, y = xy[inside].T
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        figure[y + dy, x + dx] = pixels
    length = camera_depth(centers, 0.03 * w / scale)
    for center, rotation in zip(centers, rotations, strict=True):
        corners = np.array([[-0.8, -0.6, 1], [0.8, -0.6, 1], [0.8, 0.6, 1], [-0.8, 0.6, 1]])
        world = center + length * corners @ rotation
        outline = np.round(16 * (scale * (world @ axes.T)[:, :2] + offset)).astype(np.int32)
        apex = np.round(16 * (scale * (axes @ center)[:2] + offset)).astype(np.int32)
        lines = [outline.reshape(-1, 1, 2)]
        lines += [np.stack([apex, corner]).reshape(-1, 1, 2) for corner in outline]
        cv2.polylines(figure, lines[:1], True, (*_CAMERA, 255), 1, cv2.LINE_AA, 4)
        cv2.polylines(figure, lines[1:], False, (*_CAMERA, 255), 1, cv2.LINE_AA, 4)
    return figure
