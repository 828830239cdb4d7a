"""Gradient-orientation densities of patches and around frames."""

import numpy as np
import pytest

from caloric.descriptor import density, recipes
from caloric.image import scalespace

SIFT, FIELD = (recipes.descriptor(name) for name in ("sift", "distribution-field"))


def ramp(size, angle, slope=0.01):
    """An image whose gradient has one direction and one length."""
    y, x = np.mgrid[:size, :size].astype(np.float32)
    return (0.1 + slope * (np.cos(angle) * x + np.sin(angle) * y)).astype(np.float32)


@pytest.mark.parametrize("angle", [0.0, 0.4, 1.5])
def test_a_ramp_has_one_direction_and_a_constant_magnitude(angle):
    patch = ramp(16, angle)[None]
    measured = density.measure(patch, SIFT.kernel)
    np.testing.assert_allclose(measured.angles, angle, atol=1e-4)
    # The pitch of 16 pixels over [-1, 1] is 1/8, and the areas add up to 4.
    np.testing.assert_allclose(measured.weights.sum(), 4 * 0.01 * 8, rtol=1e-4)


def test_constant_patches_have_no_weight_and_no_direction():
    measured = density.measure(np.full((1, 8, 8), 0.5, np.float32), SIFT.kernel)
    assert not measured.weights.any()
    assert not measured.cos.any()
    assert not measured.sin.any()


def test_intensities_become_angles_below_half_a_period():
    values = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 8, 8)
    measured = density.measure(values, FIELD.kernel)
    np.testing.assert_allclose(
        measured.angles.ravel(), 2 * np.pi / FIELD.kernel.period * values.ravel(), atol=1e-5
    )
    assert measured.weights.sum() == pytest.approx(4, rel=1e-5)


def test_gradients_rotate_and_scale_with_the_frame():
    """The angle is relative to the frame, and the magnitude in units of its scale."""
    image = ramp(160, 0.9, slope=0.002)
    ladder = scalespace.build(image).ladder()
    maps = np.zeros((3, 2, 3))
    for row, (size, angle) in zip(maps, ((2, 0.0), (2, 0.7), (3, 0.0)), strict=True):
        c, s = size * np.cos(angle), size * np.sin(angle)
        row[:] = [[c, -s, 80], [s, c, 80]]
    measured = density.measure_frames(ladder, maps, SIFT.sampling, SIFT.kernel)
    for angles, expected in zip(measured.angles, (0.9, 0.2, 0.9), strict=True):
        np.testing.assert_allclose(angles, expected, atol=5e-3)
    mass = measured.weights.sum(1)
    np.testing.assert_allclose(mass / mass[0], (1, 1, 1.5), rtol=5e-3)


def test_points_outside_the_image_have_no_weight():
    ladder = scalespace.build(ramp(60, 0.3)).ladder()
    maps = np.array([[[2.0, 0, x], [0, 2, 30]] for x in (30.0, 0.0, 500.0)])
    weights = density.measure_frames(ladder, maps, SIFT.sampling, SIFT.kernel).weights
    offsets = density.in_sigmas(SIFT.sampling).offsets
    outside = 2 * offsets[0] < -0.5
    assert not weights[1, outside].any()
    assert (weights[1, ~outside & (np.abs(2 * offsets[1]) < 25)] > 0).all()
    assert not weights[2].any()


def test_harmonics_are_cosines_and_sines_of_multiples():
    rng = np.random.default_rng(0)
    angle, weights = rng.uniform(-3, 3, (2, 30)), rng.random((2, 30))
    terms = density.harmonics(density.Measure(weights, np.cos(angle), np.sin(angle)), 5)
    assert terms.shape == (2, 11, 30)
    np.testing.assert_array_equal(terms[:, 0], weights)
    for m in range(1, 6):
        np.testing.assert_allclose(terms[:, 2 * m - 1], weights * np.cos(m * angle), atol=1e-12)
        np.testing.assert_allclose(terms[:, 2 * m], weights * np.sin(m * angle), atol=1e-12)


def test_levels_too_large_for_opencv_give_similar_densities(monkeypatch):
    image = np.random.default_rng(0).random((70, 90), np.float32)
    ladder = scalespace.build(image).ladder()
    maps = np.array([[[2.0, 0.5, 40], [0, 2, 30]], [[3.0, 0, 5], [0, 3, 66]]])
    arguments = (ladder, maps, SIFT.sampling, SIFT.kernel)
    expected = density.measure_frames(*arguments)
    monkeypatch.setattr(density, "_MAX_SIDE", 10)
    measured = density.measure_frames(*arguments)
    # OpenCV rounds positions to 1/32 of a pixel.
    error = np.abs(measured.weights - expected.weights).sum() / expected.weights.sum()
    assert 0 < error < 0.05
