"""Conversion of arrays to grayscale."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.image.pixels import to_gray


def test_grayscale_does_not_depend_on_the_memory_layout():
    image = photographs.color()
    expected = to_gray(image)
    np.testing.assert_array_equal(to_gray(np.asfortranarray(image)), expected)
    rotated = np.ascontiguousarray(np.rot90(image))
    np.testing.assert_array_equal(to_gray(np.rot90(rotated, -1)), expected)


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_the_error_for_an_invalid_range_states_the_range(device):
    image = np.linspace(30, 240, 40 * 50).reshape(40, 50)
    with pytest.raises(caloric.InputError, match="got 30 to 240"):
        caloric.extract(image, device=device)
