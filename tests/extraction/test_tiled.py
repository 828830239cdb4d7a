"""Features computed tile by tile do not depend on the tiles."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric.bench.speed import setting
from caloric.image import tiles
from caloric.runtime import native
from same_features import FOUR_TILES, agree


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_features": 300},
        {"upright": True, "descriptor": "heat"},
        {"descriptor": "sift", "domain_sizes": 3, "max_features": 200},
        {"detector": "opencv"},
        {"max_features": 0},
    ],
)
def test_tiles_do_not_change_features(options):
    image = photographs.gray("camera")
    assert len(tiles._cut(image.shape, FOUR_TILES)) >= 4
    agree(caloric.extract(image, **options), caloric.extract(image, memory=FOUR_TILES, **options))


def test_tiles_hardly_change_affine_frames():
    image = photographs.gray("coffee")
    whole = caloric.extract(image, affine=True, max_features=200)
    tiled = caloric.extract(image, affine=True, max_features=200, memory=FOUR_TILES)
    np.testing.assert_allclose(tiled.frames.maps, whole.frames.maps, atol=5e-3)


def test_tiles_of_color_images_with_masks_and_odd_shapes():
    image = photographs.color("coffee")[:397, :599]
    mask = np.zeros(image.shape[:2])
    mask[50:300, 200:500] = 1
    whole, tiled = (caloric.extract(image, mask=mask, memory=m) for m in (tiles.MEMORY, FOUR_TILES))
    agree(whole, tiled)
    assert len(whole) > 50


def test_detect_and_describe_in_tiles():
    image = photographs.gray("camera")
    features = caloric.extract(image, max_features=400)
    frames = caloric.detect(image, max_features=400, memory=FOUR_TILES)
    np.testing.assert_allclose(frames.maps, features.frames.maps, atol=1e-3)
    # Arbitrary frames: large, stretched, at the border and outside the image.
    rng = np.random.default_rng(0)
    maps = rng.uniform(-9, 9, (60, 2, 3))
    maps[:, :, 2] = rng.uniform(-40, 550, (60, 2))
    maps[:5, :, :2] *= 20
    other = caloric.Frames(maps, np.zeros(60))
    a, b = (caloric.describe(image, other, memory=m) for m in (tiles.MEMORY, FOUR_TILES))
    if native.core() is not None:
        assert a.tobytes() == b.tobytes()
    np.testing.assert_allclose(a, b, atol=2e-2)


@pytest.mark.parametrize("memory", [0, -1, "much", None, True, np.inf, np.nan])
def test_memory_must_be_a_positive_number(memory):
    with pytest.raises(caloric.InputError, match="memory must be"):
        caloric.extract(np.zeros((9, 9)), memory=memory)


@pytest.mark.parametrize("shape", [(7, 1500), (10, 1500), (14, 1500), (1500, 14), (15, 1500)])
def test_tiles_do_not_change_features_of_thin_images(shape):
    image = cv2.GaussianBlur(np.random.default_rng(0).random(shape), (0, 0), 1.0)
    image = np.clip(0.5 + 2 * (image - 0.5), 0, 1)
    agree(caloric.extract(image), caloric.extract(image, memory=1))


def test_long_thin_images_without_the_compiled_core():
    image = cv2.GaussianBlur(np.random.default_rng(0).random((16, 70_000)), (0, 0), 1.5)
    image = np.clip(0.5 + 3 * (image - 0.5), 0, 1)
    with setting(CALORIC_NATIVE="0"):
        features = caloric.extract(image, max_features=300)
    assert len(features) == 300
    if native.core() is not None:
        compiled = caloric.extract(image, max_features=300)
        cosines = np.einsum("ij,ij->i", features.descriptors, compiled.descriptors)
        assert np.median(cosines) > 0.999


def test_descriptors_are_independent_of_each_other():
    image = photographs.gray("camera")
    frames = caloric.detect(image, max_features=50)
    with_distant_frame = caloric.Frames(
        np.concatenate([frames.maps, [[[1, 0, 1e5], [0, 1, 1e5]]]]), np.zeros(len(frames) + 1)
    )
    expected = caloric.describe(image, frames)
    descriptors = caloric.describe(image, with_distant_frame)
    assert descriptors[:-1].tobytes() == expected.tobytes()
    assert not descriptors[-1].any()
