"""Conversion of arrays to grayscale."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.image.pixels import as_unit_range, rec601, to_gray


def test_grayscale_does_not_depend_on_the_memory_layout():
    image = photographs.color()
    expected = to_gray(image)
    np.testing.assert_array_equal(to_gray(np.asfortranarray(image)), expected)
    rotated = np.ascontiguousarray(np.rot90(image))
    np.testing.assert_array_equal(to_gray(np.rot90(rotated, -1)), expected)


def test_tables_for_bytes_give_the_same_grayscale():
    image = np.random.default_rng(0).integers(0, 256, (70, 61, 3), np.uint8)
    channels = as_unit_range(image, "image")
    expected = rec601(*(channels[..., i] for i in range(3)))
    assert expected.dtype == np.float32
    for given in (image, np.asfortranarray(image), image[:, ::-1].copy()[:, ::-1]):
        np.testing.assert_array_equal(to_gray(given), expected)
    np.testing.assert_array_equal(to_gray(image[..., ::-1])[::2, 3:], to_gray(image[::2, 3:, ::-1]))


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_the_error_for_an_invalid_range_states_the_range(device):
    image = np.linspace(30, 240, 40 * 50).reshape(40, 50)
    with pytest.raises(caloric.InputError, match="got 30 to 240"):
        caloric.extract(image, device=device)
