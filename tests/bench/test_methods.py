"""The methods that the accuracy benchmarks compare."""

import cv2
import numpy as np
import pytest

import photographs
from caloric.bench import methods

IMAGE = photographs.gray("camera", (160, 160))


def test_images_of_any_type_are_converted_to_8_bit_grayscale():
    color = np.repeat(IMAGE[..., None], 3, 2)
    opaque = np.concatenate([color, np.full_like(color[..., :1], 255)], 2)
    for image in (IMAGE, color, opaque, IMAGE.astype(np.uint16) * 257, IMAGE / 255):
        gray = methods.gray(image)
        assert gray.dtype == np.uint8
        np.testing.assert_array_equal(gray, IMAGE)


def test_keypoints_are_the_strongest():
    all_keypoints = methods.opencv_keypoints(IMAGE, 10**6)
    strongest = methods.opencv_keypoints(IMAGE, 20)
    assert len(all_keypoints) > len(strongest) == 20
    weakest = min(k.response for k in strongest)
    assert sum(k.response > weakest for k in all_keypoints) < 20


def test_given_keypoints_are_described_in_their_order():
    keypoints = methods.opencv_keypoints(IMAGE, 30)
    positions = np.array([k.pt for k in keypoints])
    compared = methods.fixed()
    assert compared[0].name == methods.DEFAULT
    assert len({m.name for m in compared}) == len(compared)
    for method in compared:
        if "kornia" in method.name:
            continue
        frames, values = method.run(IMAGE, keypoints)
        np.testing.assert_allclose(frames.xy, positions, atol=1e-4)
        assert len(values) == 30
        if method.name.startswith("OpenCV"):
            np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, rtol=1e-5)
        assert len(method.run(IMAGE, ())[1]) == 0


def test_root_sift_is_the_root_of_opencvs_normalized_descriptors():
    keypoints = methods.opencv_keypoints(IMAGE, 30)
    raw = cv2.SIFT_create().compute(IMAGE, keypoints)[1]
    plain, root = methods._opencv(root=False), methods._opencv(root=True)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    np.testing.assert_allclose(plain.run(IMAGE, keypoints)[1], expected, atol=1e-6)
    expected = np.sqrt(raw / raw.sum(1, keepdims=True))
    np.testing.assert_allclose(root.run(IMAGE, keypoints)[1], expected, atol=1e-6)


def test_the_version_of_a_method_depends_on_its_options():
    versions = {
        methods.ours("sift", "x", **options).version
        for options in ({}, {"dtype": "uint8"}, {"detects": True}, {"domain_sizes": 3})
    }
    assert len(versions) == 4
    assert methods.ours("sift", "x").version in versions


@pytest.mark.parametrize("name", ["caloric", "our detector, sift"])
def test_pipelines_detect_their_own_frames(name):
    (method,) = (m for m in methods.pipelines() if m.name == name)
    assert method.detects
    assert len(method.run(IMAGE, ())[0]) > 50
