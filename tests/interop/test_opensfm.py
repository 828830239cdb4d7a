"""OpenSfM datasets, read as OpenSfM reads them."""

import gzip
import pickle
import pickletools
from io import BytesIO

import cv2
import numpy as np
import pytest
from PIL import Image

import caloric
from caloric.interop import exporters, opensfm
from caloric.interop.conversion import in_file_axes
from caloric.interop.exporters import Request
from caloric.matching.two_views import TwoViews


def load_features(path):
    """Return points, descriptors and colors, checked as by FeaturesData.from_file, version 3."""
    data = np.load(path, allow_pickle=False)
    assert data["OPENSFM_FEATURES_VERSION"] == 3
    assert len(data["segmentations"]) == len(data["instances"]) == 0
    assert data["points"].dtype == data["descriptors"].dtype == np.float32
    return data["points"], data["descriptors"], data["colors"].astype(float)


def load_matches(path):
    """Return the matches of an image as DataSet.load_matches does."""
    return pickle.load(BytesIO(gzip.decompress(path.read_bytes())))


def denormalized(points, width, height):
    """Return positions in pixels as denormalized_image_coordinates does."""
    size = max(width, height)
    return points[:, :2] * size - 0.5 + np.array([width, height]) / 2


@pytest.fixture
def images(tmp_path):
    rng = np.random.default_rng(0)
    directory = tmp_path / "images"
    (directory / "day 1").mkdir(parents=True)
    pixels = cv2.resize(rng.integers(0, 255, (30, 40, 3), np.uint8), (160, 120))
    Image.fromarray(pixels).save(directory / "a.png")
    Image.fromarray(pixels[..., 0]).save(directory / "day 1" / "ä.png")
    return directory


NAMES = ("a.png", "day 1/ä.png")


def extracted(images, name):
    return caloric.extract(caloric.read_image(images / name), max_features=80)


def pair(features, model="fundamental", matrix=True):
    matches = caloric.match(*features, ratio=None)
    geometry = np.eye(3) if matrix else None
    indices = matches.indices.astype(np.uint32)
    inliers = np.arange(0, len(indices), 2, dtype=np.uint32)
    return TwoViews(*NAMES, indices, matches.distances.astype("f4"), inliers, geometry, model)


def export(images, target, pairs=()):
    features = [extracted(images, name) for name in NAMES]
    request = Request(target, NAMES, images, pairs=True)
    exporters.write(opensfm.OpenSfm(request), zip(NAMES, features, strict=True), pairs)
    return features


def test_opensfm_reads_positions_colors_and_descriptors(images, tmp_path):
    features = export(images, tmp_path / "out")
    for name, expected in zip(NAMES, features, strict=True):
        path = tmp_path / "out" / "features" / f"{name}.features.npz"
        points, descriptors, colors = load_features(path)
        np.testing.assert_allclose(denormalized(points, 160, 120), expected.frames.xy, atol=1e-3)
        assert np.abs(points[:, :2]).max() <= 0.5
        keypoints = expected.frames.to_opencv()
        np.testing.assert_allclose(points[:, 2] * 160, [k.size for k in keypoints], rtol=1e-4)
        np.testing.assert_allclose(points[:, 3], [k.angle % 360 for k in keypoints], atol=1e-2)
        assert descriptors.shape == (len(expected), 128)
        assert descriptors.min() >= 0
        image = np.asarray(Image.open(images / name).convert("RGB"))
        x, y = np.rint(expected.frames.xy).astype(int).T
        np.testing.assert_array_equal(colors, image[y, x])


def test_opensfm_reads_matches_of_verified_pairs(images, tmp_path):
    features = [extracted(images, name) for name in NAMES]
    two = pair(features)
    export(images, tmp_path / "out", [two])
    first, second = (
        load_matches(tmp_path / "out" / "matches" / f"{name}_matches.pkl.gz") for name in NAMES
    )
    assert second == {}
    assert list(first) == [NAMES[1]]
    np.testing.assert_array_equal(first[NAMES[1]], two.inlier_matches)
    assert first[NAMES[1]].dtype == np.int64
    assert first[NAMES[1]].flags["W"]
    once = (tmp_path / "out" / "matches" / "a.png_matches.pkl.gz").read_bytes()
    export(images, tmp_path / "again", [two])
    assert (tmp_path / "again" / "matches" / "a.png_matches.pkl.gz").read_bytes() == once


def test_pairs_without_geometry_have_no_matches(images, tmp_path):
    features = [extracted(images, name) for name in NAMES]
    export(images, tmp_path / "failed", [pair(features, matrix=False)])
    assert load_matches(tmp_path / "failed" / "matches" / "a.png_matches.pkl.gz") == {}
    unverified = pair(features, model="", matrix=False)
    export(images, tmp_path / "all", [unverified])
    (matches,) = load_matches(tmp_path / "all" / "matches" / "a.png_matches.pkl.gz").values()
    np.testing.assert_array_equal(matches, unverified.matches)


def test_matches_can_be_read_by_old_versions_of_numpy(images, tmp_path):
    """The only names in the file are those that exist in all versions."""
    export(images, tmp_path / "out", [pair([extracted(images, name) for name in NAMES])])
    data = gzip.decompress((tmp_path / "out" / "matches" / "a.png_matches.pkl.gz").read_bytes())
    strings = [argument for _, argument, _ in pickletools.genops(data) if type(argument) is str]
    assert {"numpy", "ndarray", "builtins", "bytearray"} <= set(strings)
    assert not any("core" in text for text in strings)


def test_colors_of_rotated_photographs(tmp_path):
    """Features are in the axes of the file, whose pixels OpenSfM does not rotate."""
    rng = np.random.default_rng(0)
    pixels = cv2.resize(rng.integers(0, 255, (30, 40, 3), np.uint8), (160, 120))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    upright = caloric.read_image(tmp_path / "a.png")
    assert upright.shape[:2] == (160, 120)
    features = in_file_axes(caloric.extract(upright, max_features=60), 6)
    colors = opensfm.colors(tmp_path / "a.png", features)
    x, y = np.rint(features.frames.xy).astype(int).T
    np.testing.assert_array_equal(colors, pixels[y, x])


def test_a_missing_image_directory_is_an_error_before_the_work(images, tmp_path):
    with pytest.raises(caloric.InputError, match="--images"):
        opensfm.OpenSfm(Request(tmp_path / "out", NAMES))
    with pytest.raises(caloric.InputError, match=r"b\.png: no such image"):
        opensfm.OpenSfm(Request(tmp_path / "out", ("b.png",), images))
    assert not (tmp_path / "out").exists()
