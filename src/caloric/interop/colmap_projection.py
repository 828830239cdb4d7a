"""COLMAP's camera models: the projection of points from camera coordinates to pixels."""

import numpy as np

from caloric.interop.colmap_model import CAMERA_MODELS, Camera
from caloric.types import FloatArray

_FOCAL_LENGTHS = {name: count for name, count, _ in CAMERA_MODELS.values()}
_STEP = 1e-5  # relative to the distance, for numerical derivatives


def _polynomial(squares: FloatArray, coefficients: tuple[float, ...]) -> FloatArray:
    """Return 1 + k1 s + k2 s² + ..."""
    return np.asarray(np.polynomial.polynomial.polyval(squares, (1.0, *coefficients)))


def project(camera: Camera, xyz: FloatArray) -> FloatArray:
    """Return the pixels (n, 2), in COLMAP's coordinates, of points (n, 3) in camera coordinates.

    The depths must be positive.
    """
    count, name = _FOCAL_LENGTHS[camera.model], camera.model
    focal, center = np.array(camera.parameters[:count]), np.array(camera.parameters[count:][:2])
    k = camera.parameters[count + 2 :]
    uv = xyz[:, :2] / xyz[:, 2:]
    if name.endswith("FISHEYE"):
        radius = np.maximum(np.linalg.norm(uv, axis=1, keepdims=True), 1e-12)
        uv = uv * np.arctan(radius) / radius
    squares = (uv**2).sum(1, keepdims=True)
    tangential: tuple[float, ...] = ()
    if name == "FOV":
        radius, omega = np.sqrt(np.maximum(squares, 1e-24)), max(k[0], 1e-6)
        distorted = uv * np.arctan(2 * radius * np.tan(omega / 2)) / (radius * omega)
    elif name == "FULL_OPENCV":
        factor = _polynomial(squares, (k[0], k[1], k[4])) / _polynomial(squares, k[5:])
        distorted, tangential = uv * factor, k[2:4]
    elif name == "OPENCV":
        distorted, tangential = uv * _polynomial(squares, k[:2]), k[2:]
    elif name == "THIN_PRISM_FISHEYE":
        distorted = uv * _polynomial(squares, (k[0], k[1], k[4], k[5])) + squares * np.array(k[6:])
        tangential = k[2:4]
    else:
        distorted = uv * _polynomial(squares, k)
    if tangential:
        p = np.array(tangential)[::-1]
        distorted = distorted + 2 * uv * (uv @ p)[:, None] + squares * p
    return np.asarray(focal * distorted + center)


def jacobians(camera: Camera, xyz: FloatArray) -> FloatArray:
    """Return the derivatives (n, 2, 3) of :func:`project`, by central differences."""
    step = _STEP * np.linalg.norm(xyz, axis=1, keepdims=True)
    columns = [
        (project(camera, xyz + step * axis) - project(camera, xyz - step * axis)) / (2 * step)
        for axis in np.eye(3)
    ]
    return np.stack(columns, -1)
