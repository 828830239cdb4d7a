"""The Gaussian, its periodic form and w, compared with mpmath and their defining integrals."""

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad

from caloric.theory import oracle
from caloric.theory.gaussians import (
    decayed_w,
    gaussian,
    gaussian_2d,
    periodic_gaussian,
    stretched_gaussian,
    w,
)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 2.0])
def test_gaussians_have_unit_mass(sigma):
    t = np.linspace(-9 * sigma, 9 * sigma, 401)
    step = t[1] - t[0]
    plane = np.stack(np.meshgrid(t, t), -1)
    assert gaussian(t, sigma).sum() * step == pytest.approx(1, rel=1e-12)
    assert gaussian_2d(plane, sigma).sum() * step**2 == pytest.approx(1, rel=1e-12)


@given(st.floats(0.02, 12), st.floats(-20, 20))
def test_periodic_gaussian_is_its_defining_sum(sigma, phi):
    expected = oracle.wrapped(phi, sigma)
    assert periodic_gaussian(phi, sigma) == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("sigma", [0.1, np.pi / 4, 3.0, 3.2, 8.0])
def test_periodic_gaussian_has_unit_mass_on_the_circle(sigma):
    phi = 2 * np.pi * np.arange(400) / 400
    assert periodic_gaussian(phi, sigma).mean() * 2 * np.pi == pytest.approx(1, rel=1e-12)


def test_stretched_gaussian_is_the_normal_density():
    rng = np.random.default_rng(0)
    for _ in range(20):
        offset, axis = rng.standard_normal((2, 2))
        sigma, stretch = rng.uniform(0.1, 1, 2)
        cov = sigma**2 * np.eye(2) + stretch**2 * np.outer(axis, axis)
        expected = np.exp(-offset @ np.linalg.solve(cov, offset) / 2) / (
            2 * np.pi * np.sqrt(np.linalg.det(cov))
        )
        assert stretched_gaussian(offset, axis, sigma, stretch) == pytest.approx(
            expected, rel=1e-11
        )


def exact_w(z):
    with mpmath.workdps(60):
        z = mpmath.mpf(float(z))
        return mpmath.sqrt(mpmath.pi) * mpmath.exp(z * z) * (1 + 2 * z * z) * mpmath.erfc(z) - 2 * z


def test_w_agrees_with_sixty_digits():
    z = np.concatenate([np.linspace(-20, 6, 400), np.geomspace(6, 1e8, 100), [0.0, 3.0]])
    expected = [float(exact_w(v)) if v < 200 else v**-3 * (1 - 3 / v**2 + 45 / 4 / v**4) for v in z]
    assert np.max(np.abs(w(z) / expected - 1)) < 1e-11


def test_w_is_its_defining_integral():
    for z in (-2.0, 0.0, 0.7, 5.0):
        integral = 4 * quad(lambda r, z=z: r * r * np.exp(-r * r - 2 * r * z), 0, 40)[0]
        assert w(z) == pytest.approx(integral, rel=1e-9)


def test_decayed_w_agrees_with_sixty_digits():
    rng = np.random.default_rng(0)
    u = np.concatenate([rng.uniform(-300, 300, 200), rng.uniform(-4, 4, 200), [0.0]])
    excess = rng.uniform(0, 50, u.size)
    values = decayed_w(u, excess)
    for ui, ei, value in zip(u, excess, values, strict=True):
        with mpmath.workdps(60):
            exact = float(mpmath.exp(-(mpmath.mpf(ei) + mpmath.mpf(ui) ** 2)) * exact_w(-ui))
        assert value == pytest.approx(exact, rel=1e-10, abs=1e-300)
