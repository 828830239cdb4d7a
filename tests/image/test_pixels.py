"""Pixels of arrays as grayscale."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.image.pixels import to_gray


def test_gray_does_not_depend_on_how_an_array_lies_in_memory():
    image = photographs.color()
    expected = to_gray(image)
    np.testing.assert_array_equal(to_gray(np.asfortranarray(image)), expected)
    turned = np.ascontiguousarray(np.rot90(image))
    np.testing.assert_array_equal(to_gray(np.rot90(turned, -1)), expected)


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_the_error_for_a_wrong_range_names_the_whole_range(device):
    image = np.linspace(30, 240, 40 * 50).reshape(40, 50)
    with pytest.raises(caloric.InputError, match="got 30 to 240"):
        caloric.extract(image, device=device)
