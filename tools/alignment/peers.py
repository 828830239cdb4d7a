"""Other people's ways to align, with their own defaults: OpenCV's."""

from collections.abc import Callable
from itertools import islice

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.fields import halves
from caloric.theory.gaussians import FloatArray
from tools.alignment.cases import IMAGE, TEMPLATE, Case

Aligner = Callable[[Case], FloatArray | None]


def ecc(case: Case) -> FloatArray | None:
    """OpenCV's findTransformECC from the middle, with its own defaults."""
    return _ecc(case.template, case.image, case.centred)


def _ecc(
    template: NDArray[np.uint8], image: NDArray[np.uint8], start: FloatArray
) -> FloatArray | None:
    try:
        _, found = cv2.findTransformECC(template, image, start.astype(np.float32))
    except cv2.error:  # its iterations left the image, or the images do not correlate
        return None
    return np.asarray(found, np.float64)


def ecc_pyramid(case: Case, levels: int = 4) -> FloatArray | None:
    """The same from coarse to fine; a level that fails hands on what it was given, but the last."""
    templates, images = (list(islice(halves(v), levels)) for v in (case.template, case.image))
    transform: FloatArray = case.centred
    found = None
    for level in reversed(range(levels)):
        scaled = transform.copy()
        scaled[:, 2] /= 2**level
        found = _ecc(templates[level], images[level], scaled)
        if found is not None:
            transform = found.copy()
            transform[:, 2] *= 2**level
    return None if found is None else transform


def lucas_kanade(case: Case) -> FloatArray | None:
    """Corners followed by pyramidal Lucas-Kanade from the middle, then an affine map by RANSAC."""
    corners = cv2.goodFeaturesToTrack(case.template, 200, 0.01, 5)
    if corners is None or len(corners) < 3:
        return None
    around = np.zeros_like(case.image)
    low = (IMAGE - TEMPLATE) // 2
    around[low : low + TEMPLATE, low : low + TEMPLATE] = case.template
    shifted = corners + np.float32(low)
    moved_to, status, _ = cv2.calcOpticalFlowPyrLK(
        around, case.image, shifted, shifted.copy(), winSize=(21, 21), maxLevel=4
    )
    good = status.ravel() == 1
    if good.sum() < 3:
        return None
    found, _ = cv2.estimateAffine2D(corners[good], moved_to[good])
    return None if found is None else np.asarray(found, np.float64)


def sift_ransac(case: Case) -> FloatArray | None:
    """OpenCV's SIFT, the ratio test at 0.8, an affine map by RANSAC at 3 pixels."""
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
    found, _ = cv2.estimateAffine2D(p, q, ransacReprojThreshold=3.0)
    return None if found is None else np.asarray(found, np.float64)
