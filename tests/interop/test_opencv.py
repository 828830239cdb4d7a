"""The interface of ``cv2.SIFT``."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from brick import views
from caloric.interop import opencv


@pytest.mark.parametrize("name", ["caloric-unlearned", "caloric", "caloric-64"])
def test_code_written_for_opencvs_sift_works(name):
    first, second, change = views()
    sift = opencv.SIFT_create(600, descriptor=name)
    assert sift.descriptorSize() == 128
    (k1, d1), (k2, d2) = (sift.detectAndCompute(v, None) for v in (first, second))
    assert d1.dtype == np.float32
    assert d1.shape == (len(k1), 128)
    assert 0 <= d1.min() <= d1.max() <= 255
    np.testing.assert_allclose(np.linalg.norm(d1, axis=1), 512, rtol=1e-4)
    for values in (
        (d1, d2),
        [np.sqrt(d / (d.sum(1, keepdims=True) + 1e-7)) for d in (d1, d2)],  # RootSIFT
        [d.astype(np.uint8).astype(np.float32) for d in (d1, d2)],
    ):
        assert np.isfinite(values[0]).all()
        flann = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50})
        good = [m for m, n in flann.knnMatch(*values, k=2) if m.distance < 0.7 * n.distance]
        p = np.array([k1[m.queryIdx].pt for m in good])
        q = np.array([k2[m.trainIdx].pt for m in good])
        assert (np.hypot(*(photographs.apply(change, p) - q).T) < 3).sum() > 100
    small = opencv.SIFT_create(600, descriptorType=cv2.CV_8U).detectAndCompute(first, None)[1]
    assert small.dtype == np.uint8


def test_distances_are_in_the_range_of_opencvs_sift():
    first = photographs.gray("camera", (400, 400))
    change = photographs.similarity(0.7, 35, (5, -8), (200, 200))
    second = photographs.warp(first, change)

    def shares(sift):
        """Return the fractions of correct and of incorrect matches with a distance below 250."""
        (k1, d1), (k2, d2) = (sift.detectAndCompute(v, None) for v in (first, second))
        matches = cv2.BFMatcher().match(d1, d2)
        p = np.array([k1[m.queryIdx].pt for m in matches])
        q = np.array([k2[m.trainIdx].pt for m in matches])
        is_correct = np.hypot(*(photographs.apply(change, p) - q).T) < 3
        is_near = np.array([m.distance for m in matches]) < 250
        return is_near[is_correct].mean(), is_near[~is_correct].mean()

    theirs, ours = shares(cv2.SIFT_create(600)), shares(opencv.SIFT_create(600))
    assert ours[0] > 0.9
    assert ours[1] < 0.35
    np.testing.assert_allclose(ours, theirs, atol=0.1)


def test_options_are_saved_and_loaded(tmp_path):
    sift = opencv.SIFT_create(123, contrastThreshold=0.03, upright=True)
    sift.save(tmp_path / "sift.yml")
    other = opencv.SIFT.create()
    other.read(tmp_path / "sift.yml")
    assert other == sift
    other.clear()
    other.setSigma(1.6)
    other.setNOctaveLayers(3)
    with pytest.raises(caloric.InputError, match="always"):
        other.setSigma(1.2)
    with pytest.raises(caloric.InputError, match="cannot be read"):
        other.read(tmp_path / "none.yml")
