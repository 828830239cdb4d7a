"""Photographs that come with scikit-image, and views of them under known transformations."""

from functools import lru_cache

import cv2
import numpy as np
from skimage import data


@lru_cache
def grey(name="camera", size=None):
    image = getattr(data, name)()
    image = image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return image if size is None else cv2.resize(image, size, interpolation=cv2.INTER_AREA)


@lru_cache
def colour(name="coffee"):
    return getattr(data, name)()


def similarity(scale, degrees, shift, centre):
    """2 x 3: scale and turn about ``centre``, then shift."""
    a = np.radians(degrees)
    A = scale * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    return np.concatenate([A, (np.asarray(centre) - A @ centre + shift)[:, None]], 1)


def warp(image, affine):
    """The image moved by a 2 x 3 map, anti-aliased, as large as it was."""
    A = affine[:, :2]
    shrink = np.linalg.svd(A)[1].min()
    if shrink < 1:
        # What the map shrinks must first lose the detail that the result cannot hold.
        image = cv2.GaussianBlur(image, (0, 0), 0.5 * np.sqrt(1 / shrink**2 - 1))
    h, w = image.shape[:2]
    return cv2.warpAffine(
        image, affine, (w, h), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT_101
    )


def apply(affine, xy):
    return xy @ affine[:, :2].T + affine[:, 2]


def squares():
    """Corners alike in many directions."""
    image = np.zeros((240, 320), np.uint8)
    for y in range(20, 220, 40):
        for x in range(20, 300, 40):
            image[y : y + 13, x : x + 13] = 255
    return image
