"""Fields under rotation, inversion, gain and offset."""

import numpy as np
import pytest

from caloric.descriptor import fields
from template_problems import photograph, unit


@pytest.mark.parametrize("name", ["orientation", "unsigned-orientation", "distribution-field"])
def test_fields_rotate_with_the_image(name):
    feature = fields.feature(name)
    pixels = unit(photograph("camera", (96, 96)))
    rotated = feature.measure(np.ascontiguousarray(np.rot90(pixels)), 16.0)
    # np.rot90 maps +x to −y, so the angle φ of a gradient becomes φ − π/2.
    expected = np.rot90(feature.measure(pixels, 16.0), axes=(1, 2)).copy()
    fields.rotated(expected, feature.harmonics, np.pi / 2)
    inner = np.s_[:, 12:-12, 12:-12]
    np.testing.assert_allclose(rotated[inner], expected[inner], atol=2e-3)


def test_unsigned_fields_are_invariant_to_inversion():
    feature = fields.feature("unsigned-orientation")
    pixels = unit(photograph("camera", (96, 96)))
    np.testing.assert_allclose(
        feature.measure(pixels, 16.0), feature.measure(1 - pixels, 16.0), atol=1e-3
    )


def test_gain_and_offset_hardly_change_fields():
    feature = fields.feature("orientation")
    pixels = unit(photograph("camera", (96, 96)))
    dark = feature.measure(0.1 + 0.5 * pixels, 16.0)
    assert np.abs(dark - feature.measure(pixels, 16.0)).mean() < 0.01
