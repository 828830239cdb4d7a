"""Frames and the conventions of other libraries."""

import pickle

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import caloric
import photographs
from caloric import Frames
from caloric.frames import singular_values

number = st.floats(-1e4, 1e4)


@given(number, number, st.floats(0.1, 100), st.floats(-10, 10), st.floats(0, 1))
def test_conversion_to_opencv_and_back(x, y, sigma, angle, score):
    frames = Frames.from_xysa(x, y, sigma, angle, [score])
    (keypoint,) = frames.to_opencv()
    assert keypoint.size == pytest.approx(2 * sigma, rel=1e-6)
    again = Frames.from_opencv([keypoint])
    np.testing.assert_allclose(again.maps, frames.maps, rtol=1e-4, atol=2e-3)
    np.testing.assert_allclose(again.scores, frames.scores, rtol=1e-6)


def test_angles_increase_from_x_towards_y():
    """A gradient to the right has angle 0, and downwards 90°, as in OpenCV's SIFT."""
    y, x = np.mgrid[:101, :101] - 50.0
    blob = np.exp(-(x**2 + y**2) / (2 * 8**2))
    for direction, degrees in (((1, 0), 0), ((0, 1), 90), ((-1, 0), 180), ((0, -1), 270)):
        edge = 0.3 * (direction[0] * x + direction[1] * y) / 50
        image = np.clip(np.rint(255 * (0.3 + 0.4 * blob + edge)), 0, 255).astype(np.uint8)
        frames = caloric.detect(image)
        center = np.argmin(np.hypot(*(frames.xy - 50).T))
        ours = np.degrees(frames.angle[center]) % 360
        keypoints = cv2.SIFT_create().detect(image)
        theirs = min(keypoints, key=lambda k: np.hypot(k.pt[0] - 50, k.pt[1] - 50)).angle
        # A round blob may have two directions, slightly to either side.
        assert abs((ours - theirs + 180) % 360 - 180) < 15
        assert abs((ours - degrees + 180) % 360 - 180) < 25


def test_colmap_keypoints_are_offset_by_half_a_pixel():
    frames = Frames.from_xysa([0.0, 3.0], [0.0, 4.0], [1.0, 2.0], [0.0, 0.5])
    rows = frames.to_colmap()
    np.testing.assert_allclose(rows[0], [0.5, 0.5, 1, 0, 0, 1])
    np.testing.assert_allclose(Frames.from_colmap(rows).maps, frames.maps, atol=1e-6)
    four = [[3.5, 4.5, 2.0, 0.5]]
    np.testing.assert_allclose(Frames.from_colmap(four).maps[0], frames.maps[1], atol=1e-12)
    np.testing.assert_allclose(Frames.from_colmap([[1.5, 2.5]]).xy, [[1, 2]])


def test_the_scale_of_a_kornia_laf_is_6_sigma():
    frames = Frames.from_xysa([3.0], [4.0], [2.0], [0.5])
    laf = frames.to_laf()
    assert laf.shape == (1, 1, 2, 3)
    assert laf.dtype == np.float32
    np.testing.assert_allclose(laf[0, 0, :, 2], [3, 4])
    np.testing.assert_allclose(np.hypot(*laf[0, 0, :, 0]), 12, rtol=1e-6)
    np.testing.assert_allclose(Frames.from_laf(laf).maps, frames.maps, rtol=1e-6)


def test_frames_are_immutable_and_can_be_pickled():
    frames = Frames.from_xysa([1.0, 2.0], [3.0, 4.0], 2.0, [0.1, 0.2], [0.5, 0.4])
    with pytest.raises(ValueError, match="read-only"):
        frames.maps[0, 0, 0] = 7
    again = pickle.loads(pickle.dumps(frames))
    np.testing.assert_array_equal(again.maps, frames.maps)
    assert len(frames[:1]) == 1
    assert len(frames[np.array([False, False])]) == 0
    assert len(Frames.empty()) == len(Frames.from_opencv([])) == 0
    assert Frames.empty().to_opencv() == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Frames(np.zeros((2, 3)), np.zeros(2)), r"expected maps of shape \(n, 2, 3\)"),
        (lambda: Frames(np.ones((1, 2, 3)), np.zeros(2)), "1 maps but scores"),
        (lambda: Frames(np.zeros((1, 2, 3)), np.zeros(1)), "frame is singular"),
        (lambda: Frames.from_xysa(np.nan, 0, 1), "NaN or infinite"),
        (lambda: Frames.from_xysa(0, 0, 0), "sigma must be positive"),
        (lambda: Frames.from_xysa(0, 0, -2), "sigma must be positive"),
        (lambda: Frames.from_colmap(np.zeros((1, 5))), "2, 4 or 6 columns"),
    ],
)
def test_invalid_frames_are_errors(make, message):
    with pytest.raises(caloric.InputError, match=message):
        make()


def test_indexing_and_iteration():
    frames = Frames.from_xysa([1, 2, 3], 0, 1)
    np.testing.assert_array_equal(frames[-1].xy, [[3, 0]])
    assert [f.xy[0, 0] for f in frames] == [1, 2, 3]
    with pytest.raises(IndexError):
        frames[3]


@given(arrays(np.float64, (3, 2, 2), elements=st.floats(-100, 100)))
def test_singular_values_agree_with_numpy(matrices):
    expected = np.linalg.svd(matrices, compute_uv=False)
    largest, smallest = singular_values(matrices)
    np.testing.assert_allclose(largest, expected[:, 0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(smallest, expected[:, 1], rtol=1e-6, atol=1e-5)


def test_converted_keypoints_keep_their_octave():
    image = photographs.gray("camera")
    sift = cv2.SIFT_create()
    keypoints, theirs = sift.detectAndCompute(image, None)
    _, again = sift.compute(image, Frames.from_opencv(keypoints).to_opencv())
    same = np.abs(theirs - again).max(1) < 10
    assert same.mean() > 0.95
