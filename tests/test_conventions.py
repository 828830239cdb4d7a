"""In which order others have SIFT's bins, found by what goes up and down together with ours."""

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
    """Of all orders by place or by angle, turned and mirrored, the one that fits by far."""
    together = standard(ours).T @ standard(theirs)
    found = []
    for by, up, left, way, first in product(("place", "angle"), (0, 1), (0, 1), (1, -1), range(8)):
        row, column = 3 - ROW if up else ROW, 3 - COLUMN if left else COLUMN
        which = (way * BIN + first) % 8
        place = row * 4 + column
        entry = place * 8 + which if by == "place" else which * 16 + place
        found.append((together[ENTRY, entry].mean(), (by, up, left, way, first)))
    (best, how), (second, _), *_ = sorted(found, reverse=True)
    assert best > second + 0.2
    return how


def image():
    return photographs.gray("astronaut")


def test_opencvs_bins_go_from_x_towards_minus_y():
    keypoints, theirs = cv2.SIFT_create(1000).detectAndCompute(image(), None)
    frames = caloric.Frames.from_opencv(keypoints)
    ours = caloric.describe(image(), frames, "sift", normalisation="clip")
    assert order(ours, theirs) == ("place", 0, 0, -1, 0)


def test_kornias_bins_come_angle_by_angle():
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


def test_colmaps_bins_are_opencvs(tmp_path):
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
        (own,) = database.read_all_images()
        keypoints = np.asarray(database.read_keypoints(own.image_id))
        theirs = np.asarray(database.read_descriptors(own.image_id).data)
    finally:
        database.close()
    frames = caloric.Frames.from_colmap(keypoints)
    ours = caloric.describe(image(), frames, "sift", normalisation="clip")
    assert order(ours, theirs) == ("place", 0, 0, -1, 0)
