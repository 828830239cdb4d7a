"""Diffusion of fields over rotation and scale."""

import numpy as np
import pytest

from caloric.theory import field_diffusion

SIZE = 33


def harmonic(order):
    """Return a smooth field z^m under a window, which rotations multiply by a phase."""
    y, x = np.mgrid[:SIZE, :SIZE] - (SIZE - 1) / 2
    z = (x + 1j * y) / SIZE
    return z**order * np.exp(-8 * np.abs(z) ** 2) if order else np.exp(-8 * np.abs(z) ** 2) + 0j


def test_without_spread_nothing_changes():
    fields = np.random.default_rng(0).random((3, SIZE, SIZE)).astype(np.float32)
    same = field_diffusion.diffuse(fields, [(0, 0), (1, 1)], 1e-9)
    np.testing.assert_allclose(same, fields, atol=1e-5)


def test_fields_that_rotate_with_the_plane_keep_their_phase():
    """e^{−imα} cancels the rotation of z^m; only the diffusion over scale remains."""
    for order in (1, 2):
        u = harmonic(order)
        fields = np.stack([u.real, u.imag]).astype(np.float32)
        real, imaginary = field_diffusion.diffuse(fields, [(order, 0)], 0.2)
        inner = np.abs(u) > 0.2 * np.abs(u).max()
        phase = np.angle((real + 1j * imaginary)[inner] / u[inner])
        assert np.abs(phase).max() < 0.02


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_constant_fields_decay(spread):
    """At the center, a constant u_m is multiplied by the mean of e^{−imα}, e^{−m²σ²/2}."""
    for order in (1, 2):
        fields = np.stack([np.ones((SIZE, SIZE)), np.zeros((SIZE, SIZE))]).astype(np.float32)
        real, imaginary = field_diffusion.diffuse(fields, [(order, 0)], spread)
        middle = SIZE // 2
        expected = np.exp(-((order * spread) ** 2) / 2)
        assert real[middle, middle] == pytest.approx(expected, abs=0.005)
        assert imaginary[middle, middle] == pytest.approx(0, abs=1e-6)
