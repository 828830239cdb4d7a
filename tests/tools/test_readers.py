"""``python -m tools readers``: the rules of hloc's matcher, and a reconstruction with COLMAP."""

import cv2
import numpy as np
import pytest

from caloric.descriptor import normalize
from caloric.interop import colmap_command
from tools import readers


def test_rules_of_hloc_compare_squared_distances():
    angles = np.radians([0, 30, 90, 100])
    a = np.float32(np.stack([np.cos(angles), np.sin(angles)], 1))
    rotated = np.radians([5, 33, 95])
    b = np.float32(np.stack([np.cos(rotated), np.sin(rotated)], 1))
    # Rows 2 and 3 are equally far from row 2 of b; the ratio test rejects them.
    assert readers.hloc()(a, b)[:2].tolist() == [[0, 0], [1, 1]]
    assert readers.hloc(ratio=0.8)(a, b).tolist() == [[0, 0], [1, 1]]
    assert readers.hloc(distance=0.06)(a, b).tolist() == [[1, 1]]


def test_the_table_has_a_row_per_matcher_and_method():
    result = {
        "of": 5, "matches": 900, "inliers": 800, "images": 5, "points": 1234,
        "mean error, pixels": 0.5,
    }  # fmt: skip
    none = result | {"images": 0, "points": 0, "mean error, pixels": None}
    report = {"about": {}, "lund": {"hloc, NN-ratio": {"caloric": result, "RootSIFT": none}}}
    (text,) = readers.lines(report)
    assert "| lund | hloc, NN-ratio | caloric | 5 of 5 | 1,234 | 0.50 px | 800 of 900 |" in text
    assert "| RootSIFT | 0 of 5 | 0 | no model |" in text


@pytest.mark.slow
@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable")
def test_unrelated_images_give_no_model(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        noise = cv2.GaussianBlur(rng.random((200, 200), np.float32), (0, 0), 2)
        pixels = cv2.normalize(noise, None, 0, 255, cv2.NORM_MINMAX).astype(np.uint8)
        cv2.imwrite(str(tmp_path / f"{name}.png"), pixels)
    paths = sorted(tmp_path.glob("*.png"))
    for extract in readers.METHODS.values():
        images = extract(paths, 200)
        assert all((image.descriptors >= 0).all() for image in images)
        lengths = np.linalg.norm(images[0].descriptors, axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-4)
        result = readers.model(images, tmp_path, readers.RULES["hloc, NN-ratio"])
        assert result["images"] == 0
    assert normalize.to_uint8(images[0].descriptors).dtype == np.uint8
