"""Synthetic views of an image with exact ground truth.

Maps relate pixel centers: (0, 0) is the center of the top-left pixel. :func:`warp` resamples after
a Gaussian blur; :func:`render` averages over the area of each pixel, like a camera.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.types import FloatArray

_OVERSAMPLING = 6  # samples per pixel and axis


@dataclass(frozen=True, eq=False)
class View:
    """An image, a view of it, and the homography (3, 3) from pixels of the image to the view."""

    original: NDArray[np.uint8]
    changed: NDArray[np.uint8]
    homography: FloatArray

    def errors(self, xy_original: FloatArray, xy_changed: FloatArray) -> FloatArray:
        """Return the distances (m,) of matched points (m, 2) from the ground truth, in pixels."""
        points = np.asarray(xy_original, np.float64).reshape(-1, 1, 2)
        mapped = cv2.perspectiveTransform(points, self.homography)[:, 0] if len(points) else points
        return np.asarray(np.linalg.norm(mapped.reshape(-1, 2) - xy_changed, axis=1))


@dataclass(frozen=True, eq=False)
class Change:
    """A change of viewpoint (a homography), sharpness, illumination, noise and compression."""

    homography: FloatArray
    blur: float
    gamma: float
    gain: float
    noise: float
    quality: int


def rotation(angle: float) -> FloatArray:
    """Return the rotation (2, 2) by an angle in radians, from +x towards +y."""
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def translation(offset: Any) -> FloatArray:
    """Return the translation (3, 3) by an offset (x, y)."""
    return np.array([[1.0, 0.0, offset[0]], [0.0, 1.0, offset[1]], [0.0, 0.0, 1.0]])


def similarity(scale: float, degrees: float, shift: Any, center: Any) -> FloatArray:
    """Return the map (2, 3) that scales and rotates about ``center``, then shifts."""
    A = scale * rotation(np.radians(degrees))
    return np.concatenate([A, (np.asarray(center) - A @ center + shift)[:, None]], 1)


def affine_map(rng: np.random.Generator, strength: float) -> FloatArray:
    """Return I + strength · N(0, 1) (2, 2), redrawn while it is nearly singular or mirrored."""
    while True:
        matrix = np.eye(2) + strength * rng.standard_normal((2, 2))
        values = np.linalg.svd(matrix, compute_uv=False)
        if values[1] > 0.35 and values[0] < 2.5 and np.linalg.det(matrix) > 0:
            return matrix


def oblique(
    shape: tuple[int, ...],
    tilt: float,
    *,
    axis: float = -np.pi / 2,
    roll: float = 0.0,
    focal: float | None = None,
    distance: float | None = None,
) -> FloatArray:
    """Return the homography of a pinhole camera that sees an image as an inclined plane.

    Parameters
    ----------
    shape : (h, w)
        Shape of the image. Its center is mapped to (0, 0); see :func:`fitted`.
    tilt : float
        The optical axis is acos(1 / tilt) from the normal of the plane.
    axis : float
        Direction in the image about which the plane is inclined, in radians. By default the plane
        is inclined about the vertical, with its right side farther away.
    roll : float
        Rotation of the camera about its optical axis, in radians.
    focal, distance : float, optional
        Focal length, and distance of the camera from the center of the plane, both in pixels. By
        default 2.2 times the width of the image: the center keeps its scale.

    Returns
    -------
    array (3, 3)
        The map from pixel centers of the image to the plane of the camera.
    """
    h, w = shape[:2]
    focal = 2.2 * w if focal is None else focal
    inclination = np.arccos(1 / tilt) * np.array([np.cos(axis), np.sin(axis), 0.0])
    pose = cv2.Rodrigues(np.array([0, 0, roll]))[0] @ cv2.Rodrigues(inclination)[0]
    plane = np.column_stack([pose[:, :2], [0, 0, 2.2 * w if distance is None else distance]])
    centered = translation([-(w - 1) / 2, -(h - 1) / 2])
    return np.asarray(np.diag([focal, focal, 1.0]) @ plane @ centered)


def fitted(
    homography: FloatArray, shape: tuple[int, ...], margin: float = 0.0
) -> tuple[FloatArray, tuple[int, int]]:
    """Return the homography, translated so that the view contains the image, and its (w, h)."""
    h, w = shape[:2]
    corners = np.array([[[0, 0], [w, 0], [w, h], [0, h]]], np.float64) - 0.5
    mapped = cv2.perspectiveTransform(corners, homography)[0]
    width, height = np.ceil(np.ptp(mapped, axis=0) + 2 * margin).astype(int).tolist()
    return translation(margin - 0.5 - mapped.min(0)) @ homography, (width, height)


def antialiased(pixels: NDArray[Any], scale: float) -> NDArray[Any]:
    """Return the image with the blur needed before it is scaled by ``scale``."""
    if scale >= 1:
        return pixels
    return np.asarray(cv2.GaussianBlur(pixels, (0, 0), 0.5 * np.sqrt(1 / scale**2 - 1) + 1e-3))


def warp(
    image: NDArray[Any],
    affine: FloatArray,
    size: tuple[int, int] | None = None,
    border: Any = None,
) -> NDArray[Any]:
    """Return the image under an affine map (2, 3), with cubic interpolation.

    ``size`` is (w, h), by default that of the image. Outside it, the image is reflected, or filled
    with the color ``border``.
    """
    pixels = antialiased(image, float(np.linalg.svd(affine[:, :2], compute_uv=False)[1]))
    h, w = image.shape[:2]
    outside: dict[str, Any] = {"borderMode": cv2.BORDER_REFLECT_101}
    if border is not None:
        outside = {"borderValue": border}
    return np.asarray(
        cv2.warpAffine(pixels, affine, size or (w, h), flags=cv2.INTER_CUBIC, **outside)
    )


def render(
    image: NDArray[Any], homography: FloatArray, size: tuple[int, int], border: Any = 0
) -> NDArray[Any]:
    """Return a view of the image, of size (w, h), in which each pixel averages over its area.

    The center x of a pixel is at n x + (n − 1) / 2 on the grid with n samples per pixel.
    """
    n = _OVERSAMPLING
    finer = translation([(n - 1) / 2] * 2) @ np.diag([n, n, 1.0]) @ homography
    samples = cv2.warpPerspective(image, finer, (n * size[0], n * size[1]), borderValue=border)
    return np.asarray(cv2.resize(samples, size, interpolation=cv2.INTER_AREA))


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Change:
    """Return a random change of viewpoint, illumination, blur and compression of an image."""
    h, w = shape[:2]
    angle = rng.uniform(-np.pi, np.pi) if rng.random() < 0.3 else rng.normal(0, 0.3)
    scale = np.exp(rng.normal(-0.1, 0.4))
    tilt, axis = np.exp(abs(rng.normal(0, 0.5))), rng.uniform(0, np.pi)
    view = np.eye(3)
    view[:2, :2] = (
        scale * rotation(angle) @ rotation(axis) @ np.diag([1 / tilt, 1]) @ rotation(-axis)
    )
    view[2, :2] = rng.normal(0, 0.15, 2) / [w, h]
    center = np.array([(w - 1) / 2, (h - 1) / 2])
    homography = translation(center + rng.normal(0, 0.02, 2) * [w, h]) @ view @ translation(-center)
    return Change(
        homography / homography[2, 2],
        blur=float(max(0.0, rng.normal(0.5, 1.0))),
        gamma=float(np.exp(rng.normal(0, 0.4))),
        gain=float(np.exp(rng.normal(-0.2, 0.35))),
        noise=float(abs(rng.normal(0, 0.015))),
        quality=int(rng.integers(15, 96)),
    )


def apply(image: NDArray[np.uint8], change: Change, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return the changed image, of the same size, after JPEG compression."""
    h, w = image.shape[:2]
    scale = np.sqrt(abs(np.linalg.det(change.homography[:2, :2])))
    pixels = antialiased(image.astype(np.float32) / 255, float(scale))
    pixels = cv2.warpPerspective(
        pixels, change.homography, (w, h), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101
    )
    if change.blur > 0.2:
        pixels = cv2.GaussianBlur(pixels, (0, 0), change.blur)
    return compressed(relit(pixels, change.gamma, change.gain, change.noise, rng), change.quality)


def relit(
    pixels: NDArray[Any], gamma: float, gain: Any, noise: float, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return gain · pixels^gamma with Gaussian noise as uint8, for pixels in [0, 1]."""
    changed = gain * np.clip(pixels, 0, 1) ** gamma
    changed = changed + noise * rng.standard_normal(changed.shape)
    return np.asarray(np.rint(255 * np.clip(changed, 0, 1)), np.uint8)


def compressed(image: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    """Return the image after JPEG compression."""
    encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED), np.uint8)
