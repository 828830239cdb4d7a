"""Extrema compared with OpenCV's."""

import cv2
import numpy as np
import pytest
from scipy.spatial import cKDTree

import caloric
import photographs


def in_common(a, b):
    """The fraction of extrema (x, y, σ) of a that are also in b."""
    distance, nearest = cKDTree(b[:, :2]).query(a[:, :2])
    return np.mean((distance < 0.05 * a[:, 2]) & (np.abs(a[:, 2] / b[nearest, 2] - 1) < 0.03))


@pytest.mark.parametrize("name", ["camera", "brick", "coffee"])
def test_most_extrema_agree_with_opencv(name):
    image = photographs.gray(name)

    def opencv(precise):
        keypoints = cv2.SIFT_create(enable_precise_upscale=precise).detect(image)
        return np.unique([(*k.pt, k.size / 2) for k in keypoints], axis=0)

    frames = caloric.detect(image, upright=True, max_features=None)
    ours = np.column_stack([frames.xy, frames.sigma])
    # OpenCV enlarges in the same way but ignores the offset of a quarter pixel.
    theirs = opencv(precise=False) - (0.25, 0.25, 0)
    fine, theirs = (v[v[:, 2] < 1.7] for v in (ours, theirs))
    # Caloric accepts more: OpenCV rejects extrema that do not converge to half a sample.
    assert in_common(theirs, fine) > 0.92
    assert in_common(fine, theirs) > 0.78
    # The pixels of coarser octaves coincide with image pixels, as in OpenCV's precise mode.
    theirs = opencv(precise=True)
    coarse, theirs = (v[v[:, 2] > 4] for v in (ours, theirs))
    assert in_common(theirs, coarse) > 0.85
    assert in_common(coarse, theirs) > 0.75
