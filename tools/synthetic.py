"""Synthetic image pairs: known strong changes of view, light, sharpness and compression."""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray


@dataclass(frozen=True, eq=False)
class Change:
    """A change of a photograph; ``homography`` maps its pixels to those of the changed one."""

    homography: FloatArray
    blur: float
    gamma: float
    gain: float
    noise: float
    quality: int


def affine_map(rng: np.random.Generator, strength: float) -> FloatArray:
    """Return I + strength · N(0, 1) (2, 2), drawn again until it is not nearly singular."""
    while True:
        matrix = np.eye(2) + strength * rng.standard_normal((2, 2))
        values = np.linalg.svd(matrix, compute_uv=False)
        if values[1] > 0.35 and values[0] < 2.5 and np.linalg.det(matrix) > 0:
            return matrix


def _rotation(angle: float) -> FloatArray:
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def _translation(offset: FloatArray) -> FloatArray:
    return np.array([[1.0, 0.0, offset[0]], [0.0, 1.0, offset[1]], [0.0, 0.0, 1.0]])


def draw(rng: np.random.Generator, size: tuple[int, int]) -> Change:
    """Return a random change of view, illumination, blur and compression of an image (h, w)."""
    h, w = size
    angle = rng.uniform(-np.pi, np.pi) if rng.random() < 0.3 else rng.normal(0, 0.3)
    zoom = np.exp(rng.normal(-0.1, 0.4))
    tilt, axis = np.exp(abs(rng.normal(0, 0.5))), rng.uniform(0, np.pi)
    linear = zoom * _rotation(angle) @ _rotation(axis) @ np.diag([1 / tilt, 1.0]) @ _rotation(-axis)
    centre = np.array([(w - 1) / 2, (h - 1) / 2])
    view = np.eye(3)
    view[:2, :2] = linear
    view[2, :2] = rng.normal(0, 0.15, 2) / [w, h]
    homography = (
        _translation(centre + rng.normal(0, 0.02, 2) * [w, h]) @ view @ _translation(-centre)
    )
    return Change(
        homography / homography[2, 2],
        blur=float(max(0.0, rng.normal(0.5, 1.0))),
        gamma=float(np.exp(rng.normal(0, 0.4))),
        gain=float(np.exp(rng.normal(-0.2, 0.35))),
        noise=float(abs(rng.normal(0, 0.015))),
        quality=int(rng.integers(15, 96)),
    )


def antialiased(pixels: NDArray[Any], scale: float) -> NDArray[Any]:
    """Return the image smoothed as needed before it is shrunk by ``scale``."""
    if scale >= 1:
        return pixels
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), 0.5 * np.sqrt(1 / scale**2 - 1) + 1e-3))


def apply(image: NDArray[np.uint8], change: Change, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the changed photograph, of the same size, after JPEG compression."""
    h, w = image.shape[:2]
    shrink = np.sqrt(abs(np.linalg.det(change.homography[:2, :2])))
    pixels = antialiased(image.astype(np.float32) / 255, float(shrink))
    pixels = cv2.warpPerspective(
        pixels, change.homography, (w, h), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101
    )
    if change.blur > 0.2:
        pixels = cv2.GaussianBlur(pixels, (0, 0), change.blur)
    relit = change.gain * np.clip(pixels, 0, 1) ** change.gamma
    relit = relit + change.noise * rng.standard_normal(relit.shape)
    rounded = np.rint(255 * np.clip(relit, 0, 1)).astype(np.uint8)
    encoded = cv2.imencode(".jpg", rounded, [cv2.IMWRITE_JPEG_QUALITY, change.quality])[1]
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED), np.uint8)
