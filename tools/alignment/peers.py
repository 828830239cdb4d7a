"""Alignment methods of OpenCV with default settings."""

from collections.abc import Callable
from itertools import islice

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.fields import halves
from caloric.types import FloatArray
from tools.alignment.cases import IMAGE, TEMPLATE, Case

Aligner = Callable[[Case], FloatArray | None]


def ecc(case: Case) -> FloatArray | None:
    """Return the result of findTransformECC from the centered template."""
    return _ecc(case.template, case.image, case.centered)


def _ecc(
    template: NDArray[np.uint8], image: NDArray[np.uint8], start: FloatArray
) -> FloatArray | None:
    try:
        _, transform = cv2.findTransformECC(template, image, start.astype(np.float32))
    except cv2.error:  # the iterations left the image, or the images are uncorrelated
        return None
    return np.asarray(transform, np.float64)


def ecc_pyramid(case: Case, levels: int = 4) -> FloatArray | None:
    """Return the result of ECC from coarse to fine; it may fail at all levels but the last."""
    templates, images = (list(islice(halves(v), levels)) for v in (case.template, case.image))
    transform: FloatArray = case.centered
    refined = None
    for level in reversed(range(levels)):
        scaled = transform.copy()
        scaled[:, 2] /= 2**level
        refined = _ecc(templates[level], images[level], scaled)
        if refined is not None:
            transform = refined.copy()
            transform[:, 2] *= 2**level
    return None if refined is None else transform


def lucas_kanade(case: Case) -> FloatArray | None:
    """Return an affine map by RANSAC from corners tracked by pyramidal Lucas-Kanade."""
    corners = cv2.goodFeaturesToTrack(case.template, 200, 0.01, 5)
    if corners is None or len(corners) < 3:
        return None
    padded = np.zeros_like(case.image)
    low = (IMAGE - TEMPLATE) // 2
    padded[low : low + TEMPLATE, low : low + TEMPLATE] = case.template
    shifted = corners + np.float32(low)
    tracked, status, _ = cv2.calcOpticalFlowPyrLK(
        padded, case.image, shifted, shifted.copy(), winSize=(21, 21), maxLevel=4
    )
    good = status.ravel() == 1
    if good.sum() < 3:
        return None
    transform, _ = cv2.estimateAffine2D(corners[good], tracked[good])
    return None if transform is None else np.asarray(transform, np.float64)


def sift_ransac(case: Case) -> FloatArray | None:
    """Return an affine map by RANSAC at 3 pixels from SIFT matches with a ratio test at 0.8."""
    sift = cv2.SIFT_create()  # type: ignore[attr-defined]
    points_a, a = sift.detectAndCompute(case.template, None)
    points_b, b = sift.detectAndCompute(case.image, None)
    if a is None or b is None or len(b) < 2:
        return None
    pairs = [m for m, n in cv2.BFMatcher().knnMatch(a, b, 2) if m.distance < 0.8 * n.distance]
    if len(pairs) < 3:
        return None
    p = np.array([points_a[m.queryIdx].pt for m in pairs], np.float32)
    q = np.array([points_b[m.trainIdx].pt for m in pairs], np.float32)
    transform, _ = cv2.estimateAffine2D(p, q, ransacReprojThreshold=3.0)
    return None if transform is None else np.asarray(transform, np.float64)
