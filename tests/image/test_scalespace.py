"""The scale space: smoothing and windows."""

import numpy as np

from caloric.image import scalespace


def test_levels_have_their_nominal_smoothing():
    """The levels of a Gaussian blob are Gaussian blobs of larger width at the same position."""
    y, x = np.mgrid[:120, :140].astype(np.float64)
    width, center = 6.0, (63.3, 51.8)
    r2 = (x - center[0]) ** 2 + (y - center[1]) ** 2
    space = scalespace.build(np.exp(-r2 / (2 * width**2)).astype(np.float32))
    for level in space.ladder().levels[:12]:
        h, w = level.pixels.shape
        v, u = np.mgrid[:h, :w] * level.step + level.origin
        # Octave 0 assumes the blur of a camera, and interpolation adds 3/16.
        added = 3 / 16 - scalespace.CAMERA**2 if level.step < 1 else 0
        total = width**2 + level.sigma**2 + added
        blob = np.exp(-((u - center[0]) ** 2 + (v - center[1]) ** 2) / (2 * total))
        expected = blob * width**2 / total
        inner = (slice(h // 5, -h // 5), slice(w // 5, -w // 5))
        assert np.abs(level.pixels - expected)[inner].max() < 0.004


def test_a_window_of_an_octave_equals_that_part_of_the_octave():
    image = np.random.default_rng(0).random((90, 110)).astype(np.float32)
    whole = scalespace.octave(scalespace.Base(image, scalespace.SHARP, 1.0))
    reach = scalespace.reach(scalespace.SHARP)
    part = scalespace.octave(scalespace.Base(image[:, 10:], scalespace.SHARP, 1.0, (10, 0)))
    expected = whole.pixels[:, :, 10 + reach :]
    np.testing.assert_allclose(part.pixels[:, :, reach:], expected, atol=1e-6)
