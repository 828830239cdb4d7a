"""Tiles cover the image, and reduced images are in memory or in a temporary file."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
import photographs
from caloric.extraction import tiled
from caloric.image import pixels, tiles
from caloric.options import ExtractOptions
from same_features import FOUR_TILES, agree


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(10**5, 10**9))
def test_every_position_belongs_to_one_tile(h, w, size):
    cut = tiles._cut((h, w), size)
    rng = np.random.default_rng(0)
    xy = rng.uniform(-9, max(h, w) + 9, (200, 2))
    owners = np.sum([tile.owns(xy) for tile in cut], axis=0)
    assert (owners == 1).all()
    for tile in cut:
        assert tile.top % 2 == tile.left % 2 == 0
        assert 0 <= tile.top < tile.bottom <= h
        assert 0 <= tile.left < tile.right <= w


def test_reduced_images_in_a_temporary_file_give_the_same_features(monkeypatch):
    image = photographs.gray("camera")
    whole = caloric.extract(image, max_features=200)
    shapes = []

    def allocate(shape, size):
        shapes.append(shape)
        return original(shape, 0)

    original = tiles._allocate
    monkeypatch.setattr(tiles, "_allocate", allocate)
    agree(whole, caloric.extract(image, max_features=200, memory=FOUR_TILES))
    assert shapes


@pytest.mark.skipif(
    not hasattr(os, "posix_fallocate"), reason="the platform cannot reserve disk space"
)
def test_a_full_disk_is_reported(monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tiles.os, "posix_fallocate", full)
    with pytest.raises(caloric.InputError, match="set TMPDIR to another directory"):
        tiles._allocate((100, 100), 0)


def test_a_kept_scale_space_is_built_once_and_describes_the_same(monkeypatch):
    image = photographs.gray("camera", (160, 120))
    features = caloric.extract(image, max_features=50)
    built = []
    build = tiles.build
    monkeypatch.setattr(tiles, "build", lambda *args: built.append(1) or build(*args))
    source = pixels.source(image)
    kept = tiles.KeptSource(source.size, source.read)
    options = ExtractOptions()
    described = [tiled.describe(kept, features.frames, options, tiles.MEMORY) for _ in range(2)]
    assert len(built) == 1
    # Without the compiled core, the last digits depend on which frames are described together.
    np.testing.assert_allclose(described[0], features.descriptors, atol=1e-6)
    np.testing.assert_array_equal(described[0], described[1])
