"""Large images: tiles give what the whole gives, files are read by windows, memory is bounded."""

import os

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
import photographs
from caloric.bench.speed import setting
from caloric.image import tiles
from caloric.runtime import memory, native
from same_features import agree

TILES = 20_000_000  # bytes: an image of 512 x 512 in four tiles


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
def test_tiles_make_no_difference(options):
    image = photographs.grey("camera")
    assert len(tiles._cut(image.shape, TILES)) >= 4
    agree(caloric.extract(image, **options), caloric.extract(image, memory=TILES, **options))


def test_tiles_make_no_difference_to_affine_frames():
    image = photographs.grey("coffee")
    whole = caloric.extract(image, affine=True, max_features=200)
    tiled = caloric.extract(image, affine=True, max_features=200, memory=TILES)
    np.testing.assert_allclose(tiled.frames.maps, whole.frames.maps, atol=5e-3)


def test_tiles_of_colour_masks_and_odd_shapes():
    image = photographs.colour("coffee")[:397, :599]
    mask = np.zeros(image.shape[:2])
    mask[50:300, 200:500] = 1
    found = [caloric.extract(image, mask=mask, memory=m) for m in (tiles.MEMORY, TILES)]
    agree(*found)
    assert len(found[0]) > 50


def test_detect_and_describe_in_tiles():
    image = photographs.grey("camera")
    found = caloric.extract(image, max_features=400)
    frames = caloric.detect(image, max_features=400, memory=TILES)
    np.testing.assert_allclose(frames.maps, found.frames.maps, atol=1e-3)
    # Frames of anybody: large, stretched, at the rim and beyond it.
    rng = np.random.default_rng(0)
    maps = rng.uniform(-9, 9, (60, 2, 3))
    maps[:, :, 2] = rng.uniform(-40, 550, (60, 2))
    maps[:5, :, :2] *= 20
    other = caloric.Frames(maps, np.zeros(60))
    a, b = (caloric.describe(image, other, memory=m) for m in (tiles.MEMORY, TILES))
    if native.core() is not None:
        assert a.tobytes() == b.tobytes()
    np.testing.assert_allclose(a, b, atol=2e-2)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(10**5, 10**9))
def test_every_place_is_one_tiles(h, w, size):
    cut = tiles._cut((h, w), size)
    rng = np.random.default_rng(0)
    xy = rng.uniform(-9, max(h, w) + 9, (200, 2))
    owners = np.sum([tile.owns(xy) for tile in cut], axis=0)
    assert (owners == 1).all()
    for tile in cut:
        assert tile.top % 2 == tile.left % 2 == 0
        assert 0 <= tile.top < tile.bottom <= h
        assert 0 <= tile.left < tile.right <= w


@pytest.mark.parametrize("wrong", [0, -1, "much", None, True, np.inf, np.nan])
def test_memory_is_a_number_of_bytes(wrong):
    with pytest.raises(caloric.InputError, match="memory must be"):
        caloric.extract(np.zeros((9, 9)), memory=wrong)


def test_a_call_keeps_no_more_memory_than_it_was_allowed():
    """Less than is kept between calls, or more; afterwards it is as before."""

    def spare():
        return sum(buffer.nbytes for buffer in memory._spare.values())

    with memory.kept_up_to(10_000):
        for count in (2000, 100_000):
            memory.workspace(count)
        assert spare() <= 10_000
    with memory.kept_up_to(2 * memory.KEPT):
        large = [memory.workspace(memory.KEPT // 4) for _ in range(2)]
        del large
        assert spare() > memory.KEPT
    assert spare() <= memory.KEPT


def test_what_is_kept_may_be_in_a_file(monkeypatch):
    image = photographs.grey("camera")
    whole = caloric.extract(image, max_features=200)
    seen = []

    def room(shape, size):
        seen.append(shape)
        return original(shape, 0)

    original = tiles._room
    monkeypatch.setattr(tiles, "_room", room)
    agree(whole, caloric.extract(image, max_features=200, memory=TILES))
    assert seen


def test_memory_is_used_again_and_never_shared(monkeypatch):
    monkeypatch.setattr(memory, "_spare", {})
    first = memory.workspace(1000)
    first[:] = 1
    part = first[10:20].reshape(2, 5)
    second = memory.workspace(1000)
    second[:] = 2
    assert (part == 1).all()
    address = first.ctypes.data
    del first
    third = memory.workspace(1000)
    third[:] = 3
    assert (part == 1).all()  # a part keeps the whole
    del part
    assert memory.workspace(900).ctypes.data == address


# ---- files


@pytest.mark.parametrize("shape", [(7, 1500), (10, 1500), (14, 1500), (1500, 14), (15, 1500)])
def test_thin_images_in_tiles(shape):
    image = cv2.GaussianBlur(np.random.default_rng(0).random(shape), (0, 0), 1.0)
    image = np.clip(0.5 + 2 * (image - 0.5), 0, 1)
    agree(caloric.extract(image), caloric.extract(image, memory=1))


def test_long_thin_images_without_the_core():
    image = cv2.GaussianBlur(np.random.default_rng(0).random((16, 70_000)), (0, 0), 1.5)
    image = np.clip(0.5 + 3 * (image - 0.5), 0, 1)
    with setting(CALORIC_NATIVE="0"):
        plain = caloric.extract(image, max_features=300)
    assert len(plain) == 300
    if native.core() is not None:
        compiled = caloric.extract(image, max_features=300)
        cosines = np.einsum("ij,ij->i", plain.descriptors, compiled.descriptors)
        assert np.median(cosines) > 0.999


def test_a_descriptor_does_not_depend_on_the_others():
    image = photographs.grey("camera")
    frames = caloric.detect(image, max_features=50)
    one_far = caloric.Frames(
        np.concatenate([frames.maps, [[[1, 0, 1e5], [0, 1, 1e5]]]]), np.zeros(len(frames) + 1)
    )
    alone, beside = caloric.describe(image, frames), caloric.describe(image, one_far)
    assert alone.tobytes() == beside[:-1].tobytes()
    assert not beside[-1].any()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="no room is promised here")
def test_no_room_for_a_temporary_file(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tiles.os, "posix_fallocate", full)
    with pytest.raises(caloric.InputError, match="set TMPDIR to another folder"):
        tiles._room((100, 100), 0)
