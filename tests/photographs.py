"""Photographs of scikit-image, and synthetic views of them with known transformations."""

from functools import lru_cache

import cv2
import numpy as np
from skimage import data

from caloric.synthetic import similarity as similarity
from caloric.synthetic import warp as warp


@lru_cache
def gray(name="camera", size=None):
    image = getattr(data, name)()
    image = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return image if size is None else cv2.resize(image, size, interpolation=cv2.INTER_AREA)


@lru_cache
def color(name="coffee"):
    return getattr(data, name)()


def apply(affine, xy):
    return xy @ affine[:, :2].T + affine[:, 2]


def squares():
    """An image of white squares, whose corners have several dominant orientations."""
    image = np.zeros((240, 320), np.uint8)
    for y in range(20, 220, 40):
        for x in range(20, 300, 40):
            image[y : y + 13, x : x + 13] = 255
    return image


def book(views, size=(640, 480), step=10.0):
    """An open book with a photograph on each page, from a camera that moves around it."""
    w, h = size
    camera = np.array([[1.2 * w, 0, w / 2], [0, 1.2 * w, h / 2], [0, 0, 1.0]])
    pages = [gray(name, (400, 400)) for name in ("astronaut", "coffee")]
    middle = np.array([0, 0, 0.2])
    images = []
    for i in range(views):
        angle = np.radians(step * (i - (views - 1) / 2))
        c, s = np.cos(angle), np.sin(angle)
        rotation = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
        image = np.full((h, w), 128, np.uint8)
        for page, side in zip(pages, (-1, 1), strict=True):
            # Pixels of the page to 3D points: the spine is at x = 0, the outer edge is nearer.
            corner = np.array([-1.0, -0.5, -0.35]) if side < 0 else np.array([0.0, -0.5, 0.0])
            along = np.array([1.0, 0.0, 0.35 if side < 0 else -0.35]) / 399
            down = np.array([0.0, 1.0, 0.0]) / 399
            to_camera = rotation @ np.stack([along, down, corner - middle], 1)
            to_camera[:, 2] += [0, 0, 2.4]
            matrix = camera @ to_camera
            warped = cv2.warpPerspective(page, matrix, size, flags=cv2.INTER_AREA)
            mask = cv2.warpPerspective(np.full_like(page, 255), matrix, size)
            image = np.where(mask > 127, warped, image)
        images.append(image)
    return images


def oxford_scene(directory, name="wall"):
    """Write a scene in the layout of Oxford Affine, and return the homography of its five views."""
    scene = directory / name
    scene.mkdir()
    image = gray("brick", (320, 320))
    change = similarity(1.1, 12, (6, -4), (160, 160))
    homography = np.vstack([change, [0, 0, 1]])
    cv2.imwrite(str(scene / "img1.png"), image)
    for k in range(2, 7):
        cv2.imwrite(str(scene / f"img{k}.png"), warp(image, change))
        np.savetxt(scene / f"H1to{k}p", homography)
    return homography
