"""Diffused fields compared with blurs, closed forms and random similarities."""

import cv2
import numpy as np

from caloric.alignment import diffusion
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from template_problems import photograph, unit


def _diffused(feature, values, sigma, model="similarity", over="all"):
    radius = max(values.shape[1:]) / 2
    return diffusion.Diffuser(feature, radius, over).apply(values, model, sigma, 0.0, 1)


def test_partial_diffusion_is_a_blur_times_a_factor():
    feature = fields.feature("orientation")
    values = feature.measure(unit(photograph("camera", (64, 64))), 16.0)
    diffused = _diffused(feature, values, 6.0, over="partial")
    for channel, order in enumerate((0, 1, 1, 2, 2)):
        factor = np.exp(-((order * SCHEDULE.rotation_diffusion * 6 / 32) ** 2) / 4)
        blurred = cv2.GaussianBlur(values[channel], (0, 0), 6.0, borderType=cv2.BORDER_CONSTANT)
        np.testing.assert_allclose(diffused[channel], factor * blurred, atol=0.01)
    still = _diffused(feature, values, 6.0, model="translation")
    np.testing.assert_allclose(still, fields.blurred(values, 6.0), atol=1e-6)


def test_all_diffused_fields_are_the_mean_of_random_similarities():
    """A Monte Carlo mean of e^{−imα} u_m(e^s R_α x) over α and s, for a blurred u."""
    feature = fields.feature("orientation")
    values = fields.blurred(feature.measure(unit(photograph("camera", (64, 64))), 16.0), 4.0)
    sigma, center = 5.0, np.full(2, 31.5)
    diffused = _diffused(feature, values, 0.0001, over="partial")
    np.testing.assert_allclose(diffused, values, atol=1e-4)
    blurred = fields.blurred(values, sigma)
    diffused = _diffused(feature, values, sigma)
    rng = np.random.default_rng(0)
    spread = sigma / 32 / np.sqrt(2)
    total = np.zeros_like(values)
    for angle, log_scale in spread * rng.standard_normal((4000, 2)):
        c, s = np.exp(log_scale) * np.array([np.cos(angle), np.sin(angle)])
        A = np.array([[c, -s], [s, c]])
        moved = fields.sampled(blurred, np.column_stack([A, center - A @ center]), (64, 64))
        total += fields.rotated(moved, feature.harmonics, angle)
    expected = total / 4000
    inner = np.s_[:, 8:-8, 8:-8]
    worst = np.abs(diffused[inner] - expected[inner]).max()
    assert worst < 0.04 * np.abs(expected[inner]).max()
    # Partial diffusion differs.
    assert np.abs(blurred[inner] - expected[inner]).max() > 3 * worst


def test_affine_diffused_distribution_fields_widen_with_distance():
    feature = fields.feature("distribution-field-heat")
    values = feature.measure(unit(photograph("camera", (64, 64))), 16.0)
    diffused = _diffused(feature, values, 4.0)
    y, x = np.mgrid[:64, :64]
    for row, column in ((32, 32), (20, 44), (40, 12)):
        distance = ((row - 31.5) ** 2 + (column - 31.5) ** 2) / 32**2
        variance = 16 * (1 + distance)
        window = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * variance))
        expected = (window * values).sum((1, 2)) / (2 * np.pi * variance)
        np.testing.assert_allclose(diffused[:, row, column], expected, atol=0.01)
