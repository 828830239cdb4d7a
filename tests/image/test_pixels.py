"""Pixels of arrays as grayscale."""

import numpy as np

import photographs
from caloric.image.pixels import to_grey


def test_grey_does_not_depend_on_how_an_array_lies_in_memory():
    image = photographs.colour()
    expected = to_grey(image)
    np.testing.assert_array_equal(to_grey(np.asfortranarray(image)), expected)
    turned = np.ascontiguousarray(np.rot90(image))
    np.testing.assert_array_equal(to_grey(np.rot90(turned, -1)), expected)
