"""Matched frames of surfaces in two images, whose geometry is known."""

import cv2
import numpy as np

import caloric
from caloric.matching import models

K = np.array([[900.0, 0, 500], [0, 880, 400], [0, 0, 1]])
MODELS = ("homography", "affine", "fundamental", "essential")
SIZE = (800, 1000)


def derivative(matrix, points):
    """Return the derivatives (n, 2, 2) of a homography at points (n, 2)."""
    z = models.homogeneous(points) @ matrix.T
    mapped = z[:, :2] / z[:, 2:]
    return (matrix[:2, :2] - mapped[:, :, None] * matrix[2, :2]) / z[:, 2, None, None]


def scene(model, rng, n, noise=0.1, shapes=0.05):
    """Return matched frames (n, 2, 3) on surfaces in two images, and the true model."""
    if model in ("homography", "affine"):
        p = rng.uniform([100, 100], [900, 700], (n, 2))
        truth = np.array([[0.5, 0.1, 200], [-0.2, 0.9, 60], [2e-4, -1e-4, 1]])
        if model == "affine":
            truth[2] = 0, 0, 1
        q, local = cv2.perspectiveTransform(p[None], truth)[0], derivative(truth, p)
        truth = truth[:2] if model == "affine" else truth
    else:
        rotation = cv2.Rodrigues(np.array([0.05, 0.4, -0.1]))[0]
        translation = np.array([2, 0.2, 0.1])
        points = np.column_stack([rng.uniform(-2, 2, (n, 2)), rng.uniform(5, 9, n)])
        normals = np.column_stack([rng.normal(0, 0.4, (n, 2)), np.ones(n)])
        p = (points @ K.T)[:, :2] / points[:, 2:]
        moved = points @ rotation.T + translation
        q = (moved @ K.T)[:, :2] / moved[:, 2:]
        local = np.empty((n, 2, 2))
        for i, (normal, point) in enumerate(zip(normals, points, strict=True)):
            plane = rotation + np.outer(translation, normal) / (normal @ point)
            local[i] = derivative(K @ plane @ np.linalg.inv(K), p[i : i + 1])[0]
        essential = models.cross(translation / np.linalg.norm(translation)) @ rotation
        inverse = np.linalg.inv(K)
        truth = essential if model == "essential" else inverse.T @ essential @ inverse
    sigma, angle = rng.uniform(2, 8, n), rng.uniform(0, 2 * np.pi, n)
    frames = caloric.Frames.from_xysa(p[:, 0], p[:, 1], sigma, angle).maps
    shaped = local @ frames[:, :, :2] @ (np.eye(2) + shapes * rng.normal(0, 1, (n, 2, 2)))
    second = np.concatenate([shaped, (q + rng.normal(0, noise, q.shape))[:, :, None]], 2)
    return (frames.copy(), second), truth


def with_outliers(frames, count, rng):
    """Return the frames with the first ``count`` matches replaced by unrelated ones."""
    first, second = (maps.copy() for maps in frames)
    shuffled = rng.permutation(count)
    second[:count, :, :2] = second[shuffled, :, :2]
    second[:count, :, 2] = rng.uniform(0, SIZE[::-1], (count, 2))
    return first, second


def cameras(model):
    """Return the cameras of a scene, for an essential matrix."""
    return [K, K] if model == "essential" else None
