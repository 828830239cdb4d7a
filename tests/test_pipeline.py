"""Describe, match and verify on synthetic views of photographs, and with other libraries."""

import hashlib
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from skimage import feature as skimage_feature
from skimage.feature import match_descriptors as skimage_match
from skimage.measure import ransac
from skimage.transform import AffineTransform
from threadpoolctl import threadpool_info

import caloric
import photographs
from caloric import Frames, viz
from caloric.interop import opencv, skimage
from caloric.kernels import KERNELS

VIEW = photographs.similarity(1.3, 25, (10.3, -4.2), (255, 255))


def pair(descriptor="caloric", **options):
    image = photographs.gray("camera")
    changed = photographs.warp(image, VIEW)
    return (
        caloric.extract(image, descriptor, max_features=800, **options),
        caloric.extract(changed, descriptor, max_features=800, **options),
    )


def correct(a, b, matches):
    """Return the fraction and the number of correct matches."""
    mapped = photographs.apply(VIEW, a.frames.xy[matches.indices[:, 0]])
    errors = np.linalg.norm(mapped - b.frames.xy[matches.indices[:, 1]], axis=1)
    return float(np.mean(errors < 3)), int(np.sum(errors < 3))


@pytest.mark.parametrize("descriptor", caloric.descriptors())
def test_most_matches_are_correct(descriptor):
    a, b = pair(descriptor)
    precision, count = correct(a, b, caloric.match(a, b))
    if descriptor in KERNELS and KERNELS[descriptor].feature == "intensity":
        assert count > 50
        return
    assert precision > 0.8
    assert count > 150


def test_descriptors_are_covariant_with_their_frames():
    """Frames are mapped to the warped image instead of being detected in it."""
    image = photographs.gray("camera")
    frames = caloric.detect(image, max_features=300)
    for change in (
        photographs.similarity(1.0, 0, (0.25, 0.5), (255, 255)),
        photographs.similarity(1.0, 40, (0, 0), (255, 255)),
        photographs.similarity(2.0, -70, (0, 0), (255, 255)),
        photographs.similarity(0.6, 10, (0, 0), (255, 255)),
        np.array([[1.0, 0.4, -60.0], [-0.1, 0.8, 70.0]]),
    ):
        A = change[:, :2]
        maps = np.concatenate(
            [A @ frames.maps[:, :, :2], photographs.apply(change, frames.xy)[..., None]], -1
        )
        moved = Frames(maps, frames.scores)
        reach = 12 * np.linalg.norm(moved.maps[:, :, :2], 2, axis=(1, 2))
        inside = (
            (np.abs(moved.xy - 255) + reach[:, None] < 255).all(1)
            & (np.abs(frames.xy - 255) + 12 * frames.sigma[:, None] < 255).all(1)
            & (np.minimum(moved.sigma, frames.sigma) > 1.6)
        )
        assert inside.sum() > 15
        changed = photographs.warp(image, change)
        for name in ("sift", "heat", "caloric"):
            before = caloric.describe(image, frames[inside], name)
            after = caloric.describe(changed, moved[inside], name)
            cosines = np.einsum("ij,ij->i", before, after)
            # The default reaches 60 σ, across the border of the image.
            assert np.median(cosines) > (0.9 if name == "caloric" else 0.97)


def test_descriptors_at_opencv_keypoints_match_as_well_as_opencvs():
    """SIFT at the same keypoints, both with root normalization."""
    image = photographs.gray("camera")
    changed = photographs.warp(image, VIEW)
    sift = cv2.SIFT_create(800)
    points = [sift.detect(i) for i in (image, changed)]
    theirs = [sift.compute(i, k)[1] for i, k in zip((image, changed), points, strict=True)]
    theirs = [np.sqrt(d / d.sum(1, keepdims=True)) for d in theirs]
    frames = [Frames.from_opencv(k) for k in points]
    ours = [caloric.describe(i, f, "sift") for i, f in zip((image, changed), frames, strict=True)]

    def count_correct(descriptors):
        matches = caloric.match(*descriptors)
        mapped = photographs.apply(VIEW, frames[0].xy[matches.indices[:, 0]])
        return np.sum(np.linalg.norm(mapped - frames[1].xy[matches.indices[:, 1]], axis=1) < 3)

    assert count_correct(ours) > 0.95 * count_correct(theirs)


def test_describe_checks_its_frames():
    image = photographs.gray("camera")
    with pytest.raises(caloric.InputError, match=r"Frames\.from_opencv"):
        caloric.describe(image, [1, 2, 3])
    assert caloric.describe(image, Frames.empty(), "heat").shape == (0, 128)
    stored = caloric.extract(image, max_features=20, dtype="uint8").descriptors
    assert stored.dtype == np.uint8


def test_pixel_types_agree():
    image = photographs.gray("camera")
    plain = caloric.extract(image, max_features=300)
    deep = caloric.extract(image.astype(np.uint16) * 257, max_features=300)
    real = caloric.extract(image / 255, max_features=300)
    for other in (deep, real):
        np.testing.assert_allclose(other.frames.maps, plain.frames.maps, atol=1e-3)
        np.testing.assert_allclose(other.descriptors, plain.descriptors, atol=5e-3)
    color = np.repeat(image[..., None], 3, 2)
    assert len(caloric.extract(color, max_features=300)) == 300


@pytest.mark.parametrize(
    "path", [pytest.param("0", marks=pytest.mark.slow), ""], ids=["plain", "core"]
)
def test_results_are_bit_identical_for_any_number_of_threads(path):
    code = (
        "import os, sys, hashlib, cv2, caloric\n"
        "from skimage import data\n"
        "cv2.setNumThreads(int(sys.argv[1]))\n"
        "f = caloric.extract(data.camera(), max_features=333)\n"
        "m = caloric.match(f, f, mutual=False, ratio=None)\n"
        "b = f.frames.maps.tobytes() + f.descriptors.tobytes() + m.distances.tobytes()\n"
        "left, right = (v[:400, :600] for v in data.stereo_motorcycle()[:2])\n"
        "for model in ('homography', 'fundamental'):\n"
        "    p = caloric.match_images(left, right, model=model, max_features=800, views=None)\n"
        "    b += p.all_points()[1].tobytes() + p.geometry.matrix.tobytes()\n"
        "    b += p.geometry.covariance.tobytes() + repr(p.geometry.confidence).encode()\n"
        "print(hashlib.sha256(b).hexdigest())"
    )
    digests = set()
    for threads in ("1", "2", "3", "8"):
        names = ("CALORIC_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, threads) | {"CALORIC_NATIVE": path}
        done = subprocess.run(
            [sys.executable, "-c", code, threads],
            capture_output=True, text=True, check=True, env=environment,
        )  # fmt: skip
        digests.add(done.stdout.strip())
    assert len(digests) == 1
    assert len(digests.pop()) == len(hashlib.sha256().hexdigest())


def test_the_limit_of_blas_threads_is_restored():
    """Overlapping calls do not lift the limit early."""

    def blas():
        return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

    before = blas()
    images = [np.random.default_rng(s).random((60 + 20 * s, 80)) for s in range(6)]
    alone = [caloric.extract(i).descriptors for i in images]
    assert blas() == before
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda i: caloric.extract(i).descriptors, images))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


def test_extract_match_and_verify_estimate_the_transform():
    a, b = pair()
    matches = caloric.match(a, b)
    geometry = caloric.verify(a, b, matches, model="affine")
    np.testing.assert_allclose(geometry.matrix, VIEW, atol=0.5)
    assert geometry.inliers.mean() > 0.7


def test_features_can_be_saved_and_loaded(tmp_path):
    a, _ = pair()
    path = tmp_path / "a b.npz"
    a.save(path)
    again = caloric.Features.load(path)
    np.testing.assert_array_equal(again.descriptors, a.descriptors)
    np.testing.assert_array_equal(again.frames.maps, a.frames.maps)
    assert (again.descriptor, again.image_size) == ("caloric", (512, 512))
    assert [p.name for p in tmp_path.iterdir()] == ["a b.npz"]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a)).descriptors, a.descriptors)
    bad = tmp_path / "bad.npz"
    for content in (b"", b"not a zip", path.read_bytes()[:2000]):
        bad.write_bytes(content)
        with pytest.raises(caloric.InputError, match="not a feature file"):
            caloric.Features.load(bad)
    np.savez(bad, maps=np.array([object()], dtype=object), about=np.zeros(1, np.uint8))
    with pytest.raises(caloric.InputError, match="not a feature file"):
        caloric.Features.load(bad)
    with pytest.raises(caloric.InputError, match="no such file"):
        caloric.Features.load(tmp_path / "none.npz")


def test_the_opencv_interface_works_with_opencv_code():
    image = cv2.cvtColor(photographs.gray("camera"), cv2.COLOR_GRAY2BGR)
    changed = photographs.warp(image, VIEW)
    sift = opencv.SIFT_create(500)
    assert pickle.loads(pickle.dumps(sift)) == sift
    kp1, des1 = sift.detectAndCompute(image, None)
    kp2, des2 = sift.detectAndCompute(changed, None)
    assert (sift.descriptorSize(), sift.descriptorType()) == (des1.shape[1], cv2.CV_32F)
    for matcher in (
        cv2.BFMatcher(sift.defaultNorm()),
        cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50}),
    ):
        good = [m for m, n in matcher.knnMatch(des1, des2, k=2) if m.distance < 0.8 * n.distance]
        mapped = photographs.apply(VIEW, np.array([kp1[m.queryIdx].pt for m in good]))
        errors = np.linalg.norm(mapped - [kp2[m.trainIdx].pt for m in good], axis=1)
        assert len(good) > 80
        assert np.mean(errors < 3) > 0.85
        drawn = cv2.drawMatches(image, kp1, changed, kp2, good, None)
        assert drawn.shape == (512, 1024, 3)
    keypoints = sift.detect(image, None)
    same, described = sift.compute(image, keypoints)
    assert len(same) == len(described) == len(kp1)
    np.testing.assert_allclose(described, des1, atol=0.05)  # of entries up to 255
    assert sift.detectAndCompute(np.zeros((40, 40), np.uint8), None) == ((), None)
    assert sift.compute(image, []) == ((), None)
    assert len(sift.detect([image, changed])) == 2
    both = sift.compute([image, changed], [keypoints, []])
    assert both[1][1] is None
    np.testing.assert_array_equal(both[1][0], described)
    np.testing.assert_array_equal(sift.detectAndCompute(cv2.UMat(image), None)[1], des1)
    assert not sift.empty()
    assert "caloric" in sift.getDefaultName()


def test_the_opencv_interface_accepts_the_arguments_of_opencv():
    image = photographs.gray("camera")
    few = opencv.SIFT_create(0, 3, 0.1, 5, 1.6)
    theirs = cv2.SIFT_create(0, 3, 0.1, 5, 1.6)
    assert 0.6 < len(few.detect(image, None)) / len(theirs.detect(image, None)) < 1.6
    assert (few.getContrastThreshold(), few.getEdgeThreshold()) == (0.1, 5)
    assert (few.getNOctaveLayers(), few.getSigma()) == (3, 1.6)
    few.setContrastThreshold(0.04)
    few.setEdgeThreshold(10)
    few.setNFeatures(30)
    assert len(few.detect(image, None)) == few.getNFeatures() == 30
    small = opencv.SIFT_create(20, descriptorType=cv2.CV_8U)
    assert small.detectAndCompute(image, None)[1].dtype == np.uint8
    assert small.descriptorType() == cv2.CV_8U
    for options in ({"nOctaveLayers": 5}, {"sigma": 1.2}, {"descriptorType": cv2.CV_64F}):
        with pytest.raises(caloric.InputError):
            opencv.SIFT_create(**options)
    with pytest.raises(caloric.InputError, match=r"cv2\.imread returns None"):
        small.detectAndCompute(None, None)
    with pytest.raises(caloric.InputError, match="call compute"):
        small.detectAndCompute(image, None, None, True)
    assert len(opencv.SIFT.create(0, 3, 0, 10, 1.6, True).detect(image)) > 1000
    with pytest.raises(caloric.InputError, match="contrast must be"):
        opencv.SIFT_create(contrastThreshold=-1).detect(image)


def test_the_skimage_interface_works_with_skimage_code():
    image = photographs.gray("camera")
    changed = photographs.warp(image, VIEW)
    extractor = skimage.SIFT(max_features=500)
    extractor.detect_and_extract(image)
    keypoints1, descriptors1 = extractor.keypoints, extractor.descriptors
    extractor.detect_and_extract(changed)
    keypoints2, descriptors2 = extractor.keypoints, extractor.descriptors
    matches = skimage_match(descriptors1, descriptors2, max_ratio=0.8, cross_check=True)
    source, target = keypoints1[matches[:, 0]], keypoints2[matches[:, 1]]
    model, inliers = ransac(
        (source[:, ::-1], target[:, ::-1]), AffineTransform, 3, 2, max_trials=300, rng=0
    )
    np.testing.assert_allclose(model.params[:2], VIEW, atol=1.0)
    assert inliers.mean() > 0.7
    extractor.detect(image)
    extractor.extract(image)
    np.testing.assert_allclose(extractor.descriptors, descriptors1, atol=1e-6)
    assert len(extractor.scales) == len(extractor.sigmas) == len(extractor.responses)
    assert set(extractor.scales) <= {0, 1, 2, 3}
    assert extractor.octaves.min() >= 0
    again = pickle.loads(pickle.dumps(extractor))
    np.testing.assert_array_equal(again.keypoints, extractor.keypoints)
    with pytest.raises(AttributeError):
        _ = extractor.color


def test_the_skimage_interface_has_the_angles_of_skimage():
    image = photographs.gray("camera")
    theirs, ours = skimage_feature.SIFT(), skimage.SIFT()
    theirs.detect(image)
    ours.detect(image)
    distances = np.linalg.norm(theirs.positions[:, None] - ours.positions, axis=2)
    nearest = distances.argmin(1)
    same_scale = np.abs(np.log2(theirs.sigmas / ours.sigmas[nearest])) < 0.2
    angles = theirs.orientations - ours.orientations[nearest]
    angles = np.abs((angles + np.pi) % (2 * np.pi) - np.pi)
    angles = angles[(distances.min(1) < 0.5) & same_scale]
    assert len(angles) > 200
    # scikit-image rounds to bins of 10° differently, by half a bin.
    assert np.median(angles) < 0.15


def test_the_skimage_interface_requires_detection_before_extraction():
    extractor = skimage.SIFT()
    with pytest.raises(caloric.InputError, match="call detect first"):
        extractor.extract(photographs.gray("camera"))
    with pytest.raises(AttributeError, match="call detect or detect_and_extract first"):
        _ = extractor.keypoints


def test_bright_floats_are_clipped_not_wrapped():
    image = 1.4 * photographs.gray("camera").astype(np.float32) / 255
    clipped = np.clip(image, 0, 1)
    bright = caloric.detect(image, detector="opencv", max_features=100, upright=True)
    np.testing.assert_array_equal(
        bright.xy,
        caloric.detect(clipped, detector="opencv", max_features=100, upright=True).xy,
    )
    drawn = viz.draw_matches(image, clipped, *np.zeros((2, 0, 2))).pixels
    np.testing.assert_array_equal(drawn[-512:, :512], drawn[-512:, -512:])
