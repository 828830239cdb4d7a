"""Transforms [A | b] (2, 3) from template to image pixels, and the parameters of their updates.

Parameters are in units of R, half the side of a square with the area of the template, relative to
the center of the template.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.alignment.schedule import SCHEDULE
from caloric.types import FloatArray, TransformModel

Shape = tuple[int, ...]  # (h, w)
PARAMETERS = {"translation": 2, "similarity": 4, "affine": 6}


def center(template: Shape) -> FloatArray:
    """Return the center (x, y) of a template (h, w)."""
    return np.array([(template[1] - 1) / 2, (template[0] - 1) / 2])


def side(shape: Shape) -> float:
    """Return √(h w)."""
    return float(np.sqrt(shape[0] * shape[1]))


def radius(template: Shape) -> float:
    """Return R, the unit of the parameters."""
    return side(template) / 2


def scale(transform: FloatArray) -> float:
    """Return the scale √|det A| of a transform [A | b]."""
    A = transform[:, :2]
    return float(np.sqrt(abs(A[0, 0] * A[1, 1] - A[0, 1] * A[1, 0])))


def angle(transform: FloatArray) -> float:
    """Return the angle of the rotation nearest to A, in radians."""
    A = transform[:, :2]
    return float(np.arctan2(A[1, 0] - A[0, 1], A[0, 0] + A[1, 1]))


def plausible(transform: FloatArray) -> bool:
    """Return whether a transform is finite, not mirrored, and scales by 0.1 to 10."""
    A = transform[:, :2]
    if not np.isfinite(transform).all() or np.linalg.det(A) <= 0:
        return False
    stretch = np.linalg.svd(A, compute_uv=False)
    return bool(stretch[0] < SCHEDULE.max_scale and stretch[1] > 1 / SCHEDULE.max_scale)


def restricted(transform: FloatArray, model: TransformModel, center: FloatArray) -> FloatArray:
    """Return the closest transform of the model that maps ``center`` to the same point."""
    if model == "affine":
        return transform
    A = np.eye(2)
    if model == "similarity":
        a = (transform[0, 0] + transform[1, 1]) / 2
        c = (transform[1, 0] - transform[0, 1]) / 2
        A = np.array([[a, -c], [c, a]])
    mapped = transform[:, :2] @ center + transform[:, 2]
    return np.column_stack([A, mapped - A @ center])


def rescaled(transform: FloatArray, factor: float) -> FloatArray:
    """Return the transform between both images enlarged by ``factor``."""
    result = np.array(transform, np.float64)
    result[:, 2] *= factor
    return result


def centered(template: Shape, image: Shape) -> FloatArray:
    """Return the translation that centers a template in an image, given the shapes of both."""
    (h, w), (rows, columns) = template[:2], image[:2]
    return np.array([[1.0, 0, (columns - w) / 2], [0, 1.0, (rows - h) / 2]])


def _update(model: TransformModel, p: FloatArray) -> FloatArray:
    """Return the 3 x 3 matrix of the parameters, in units of R."""
    if model == "translation":
        return np.array([[1, 0, p[0]], [0, 1, p[1]], [0, 0, 1]])
    if model == "similarity":
        return np.array([[1 + p[0], -p[1], p[2]], [p[1], 1 + p[0], p[3]], [0, 0, 1]])
    return np.array([[1 + p[0], p[1], p[4]], [p[2], 1 + p[3], p[5]], [0, 0, 1]])


def composed(
    template: Shape, model: TransformModel, transform: FloatArray, step: FloatArray
) -> FloatArray:
    """Return τ ∘ δ⁻¹, because moving the template by δ amounts to moving the image by δ⁻¹."""
    R = radius(template)
    unit = np.diag([1 / R, 1 / R, 1.0])
    unit[:2, 2] = -center(template) / R
    inverse = np.linalg.inv(unit) @ np.linalg.inv(_update(model, step)) @ unit
    return np.asarray(transform @ inverse)


def _is_outside(points: FloatArray, image: Shape, transform: FloatArray) -> NDArray[np.bool_]:
    mapped = points @ transform[:, :2].T + transform[:, 2]
    return np.asarray(((mapped < -0.5) | (mapped > np.array(image[::-1]) - 0.5)).any(1))


def outside(
    size: Shape, stride: int, image: Shape, transform: FloatArray
) -> NDArray[np.bool_] | None:
    """Return a mask (n,) of the samples outside the image, or None if there are none.

    The samples are every ``stride``-th pixel of the template (h, w) = ``size``.
    """
    h, w = size
    corners = np.array([[0, 0], [w - 1, 0], [0, h - 1], [w - 1, h - 1]], np.float64)
    if not _is_outside(corners, image, transform).any():
        return None
    y, x = np.mgrid[:h:stride, :w:stride].reshape(2, -1).astype(np.float64)
    return _is_outside(np.stack([x, y], 1), image, transform)


def inside(transform: FloatArray, template: Shape, image: Shape) -> float:
    """Return the share of a template that is inside the image, given the shapes of both."""
    y, x = np.meshgrid(np.linspace(0, template[0] - 1, 33), np.linspace(0, template[1] - 1, 33))
    points = np.stack([x.ravel(), y.ravel()], 1)
    return float((~_is_outside(points, image, transform)).mean())


def covered(image: Any, transform: FloatArray, size: Shape) -> tuple[Any, FloatArray]:
    """Return the part of an image (array or tensor) that a template covers, and the map into it.

    The part has a margin for antialiasing and interpolation.
    """
    h, w = size
    margin = 4 * scale(transform) + 4
    corners = np.array([[0, 0, 1], [w - 1, 0, 1], [0, h - 1, 1], [w - 1, h - 1, 1]]) @ transform.T
    limits = np.array(image.shape[::-1])
    low = np.clip(np.floor(corners.min(0) - margin), 0, limits - 1).astype(int)
    high = np.clip(np.ceil(corners.max(0) + margin) + 1, low + 1, limits).astype(int)
    moved = np.array(transform)
    moved[:, 2] -= low
    return image[low[1] : high[1], low[0] : high[0]], moved
