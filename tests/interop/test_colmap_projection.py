"""Camera models, compared with OpenCV and with COLMAP."""

import cv2
import numpy as np
import pytest

from caloric.interop import colmap_projection
from caloric.interop.colmap_model import CAMERA_MODELS, Camera

POINTS = np.random.default_rng(0).uniform((-1, -1, 2), (1, 1, 3), (50, 3))
MATRIX = np.array([[500, 0, 320], [0, 510, 240], [0, 0, 1.0]])
FOCAL, ZERO = (500.0, 510.0, 320.0, 240.0), np.zeros(3)


def opencv(*k):
    return cv2.projectPoints(POINTS, ZERO, ZERO, MATRIX, np.array(k))[0].reshape(-1, 2)


@pytest.mark.parametrize(
    ("model", "parameters", "expected"),
    [
        ("PINHOLE", (), opencv(0.0, 0, 0, 0)),
        ("OPENCV", (0.1, -0.05, 0.01, -0.02), opencv(0.1, -0.05, 0.01, -0.02)),
        (
            "FULL_OPENCV",
            (0.1, -0.05, 0.01, -0.02, 0.03, 0.2, 0.01, 0.02),
            opencv(0.1, -0.05, 0.01, -0.02, 0.03, 0.2, 0.01, 0.02),
        ),
        (
            "OPENCV_FISHEYE",
            (0.1, -0.05, 0.01, 0.02),
            cv2.fisheye.projectPoints(
                POINTS[:, None], ZERO, ZERO, MATRIX, np.array([0.1, -0.05, 0.01, 0.02])
            )[0].reshape(-1, 2),
        ),
    ],
)
def test_projections_are_those_of_opencv(model, parameters, expected):
    camera = Camera(model, 640, 480, (*FOCAL, *parameters))
    np.testing.assert_allclose(colmap_projection.project(camera, POINTS), expected, atol=1e-6)


@pytest.mark.parametrize(("name", "focal_lengths", "size"), CAMERA_MODELS.values())
def test_all_models_project_like_a_pinhole_without_distortion(name, focal_lengths, size):
    parameters = np.zeros(size)
    parameters[:focal_lengths] = 500
    parameters[focal_lengths : focal_lengths + 2] = 320, 240
    camera = Camera(name, 640, 480, tuple(parameters))
    rays = POINTS.copy()
    if name.endswith("FISHEYE"):
        radius = np.linalg.norm(rays[:, :2], axis=1) / rays[:, 2]
        rays[:, :2] *= (np.arctan(radius) / radius)[:, None]
    expected = 500 * rays[:, :2] / rays[:, 2:] + [320, 240]
    np.testing.assert_allclose(colmap_projection.project(camera, POINTS), expected, atol=1e-6)


def test_jacobians_are_derivatives():
    camera = Camera("OPENCV", 640, 480, (*FOCAL, 0.1, -0.05, 0.01, -0.02))
    step = np.array([2e-4, -1e-4, 3e-4])
    change = colmap_projection.project(camera, POINTS + step) - colmap_projection.project(
        camera, POINTS - step
    )
    predicted = colmap_projection.jacobians(camera, POINTS) @ (2 * step)
    np.testing.assert_allclose(predicted, change, atol=1e-6)
