"""The order of SIFT's bins in other libraries, determined by correlation with ours."""

from itertools import product

import cv2
import numpy as np
import pytest

import caloric
import photographs

ENTRY = np.arange(128)
ROW, COLUMN, BIN = ENTRY // 32, ENTRY // 8 % 4, ENTRY % 8


def standard(values):
    centered = np.asarray(values, float) - np.mean(values, 0)
    return centered / (np.linalg.norm(centered, axis=0) + 1e-9)


def order(ours, theirs):
    """Return the order of entries, among all rotations and reflections, that correlates best.

    It is (major axis, flipped rows, flipped columns, direction of the angles, first angle).
    """
    correlation = standard(ours).T @ standard(theirs)
    scores = []
    majors = ("position", "angle")
    for major, up, left, sign, first in product(majors, (0, 1), (0, 1), (1, -1), range(8)):
        row, column = 3 - ROW if up else ROW, 3 - COLUMN if left else COLUMN
        angle = (sign * BIN + first) % 8
        position = row * 4 + column
        entry = position * 8 + angle if major == "position" else angle * 16 + position
        scores.append((correlation[ENTRY, entry].mean(), (major, up, left, sign, first)))
    (best, best_order), (second, _), *_ = sorted(scores, reverse=True)
    assert best > second + 0.2
    return best_order


def image():
    return photographs.gray("astronaut")


def test_angles_of_opencv_increase_from_x_towards_minus_y():
    keypoints, theirs = cv2.SIFT_create(1000).detectAndCompute(image(), None)
    frames = caloric.Frames.from_opencv(keypoints)
    ours = caloric.describe(image(), frames, "sift", normalisation="clip")
    assert order(ours, theirs) == ("position", 0, 0, -1, 0)


def test_kornia_orders_bins_by_angle():
    feature = pytest.importorskip("kornia.feature")
    import torch

    rng = np.random.default_rng(0)
    corners = rng.integers(0, 470, (600, 2))
    patches = np.stack([image()[y : y + 32, x : x + 32] for x, y in corners])
    module = feature.SIFTDescriptor(32, 8, 4, rootsift=False)
    with torch.no_grad():
        theirs = module(torch.from_numpy(patches)[:, None].float() / 255).numpy()
    ours = caloric.describe_patches(patches, "sift", normalisation="clip")
    assert order(ours, theirs) == ("angle", 0, 0, 1, 0)


def test_colmap_orders_bins_like_opencv(tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    (tmp_path / "images").mkdir()
    cv2.imwrite(str(tmp_path / "images" / "a.png"), image())
    options = pycolmap.FeatureExtractionOptions()
    options.use_gpu = False
    options.sift.max_num_features = 1000
    pycolmap.logging.minloglevel = 2
    pycolmap.extract_features(
        str(tmp_path / "a.db"), str(tmp_path / "images"), extraction_options=options
    )
    database = pycolmap.Database.open(str(tmp_path / "a.db"))
    try:
        (stored,) = database.read_all_images()
        keypoints = np.asarray(database.read_keypoints(stored.image_id))
        theirs = np.asarray(database.read_descriptors(stored.image_id).data)
    finally:
        database.close()
    frames = caloric.Frames.from_colmap(keypoints)
    ours = caloric.describe(image(), frames, "sift", normalisation="clip")
    assert order(ours, theirs) == ("position", 0, 0, -1, 0)
