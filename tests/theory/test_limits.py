"""Limits and invariances of the kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
from caloric.theory.diffusion import rotate
from caloric.theory.gaussians import gaussian_2d, w

ORIENTATION = ("sift", "dsp", "dsp-inner", "dsp-both", "dsp-domain", "heat", "similarity")


def plane(reach, side):
    line = np.linspace(-reach, reach, side)
    return np.stack(np.meshgrid(line, line), -1).reshape(-1, 2), (line[1] - line[0]) ** 2


def rho(delta, sigma_a):
    """∫ K_heat dy: σa/(2√2 π) e^{−1/2σa²} w(−cos δ / √2σa)."""
    scale = sigma_a / (2 * np.sqrt(2) * np.pi) * np.exp(-1 / (2 * sigma_a**2))
    return scale * w(-np.cos(delta) / (np.sqrt(2) * sigma_a))


def test_heat_with_vanishing_sigma_a_is_sift_with_a_sharp_angle():
    x, y, phi = np.array([0.4, 0.3]), np.array([0.5, 0.2]), 1.5
    results = {}
    for sigma_a in (0.1, 0.05, 0.02, 0.01):
        beta = phi + np.linspace(-10, 10, 2001) * sigma_a
        values = caloric.kernel("heat", sigma_d=0.3, sigma_a=sigma_a)(beta, x, phi, y)
        step = beta[1] - beta[0]
        mass = values.sum() * step
        mean = (values * (beta - phi)).sum() * step / mass
        spread = np.sqrt((values * (beta - phi - mean) ** 2).sum() * step / mass)
        results[sigma_a] = (mass / gaussian_2d(y - x, 0.3), spread / sigma_a)
    masses, spreads = np.array(list(results.values())).T
    assert masses[-1] == pytest.approx(1, abs=2e-3)
    assert spreads[-1] == pytest.approx(1, abs=2e-3)
    assert np.all(np.diff(np.abs(masses - 1)) < 0)


@pytest.mark.parametrize("name", ["dsp", "dsp-inner", "dsp-both", "dsp-domain"])
def test_vanishing_sigma_s_is_sift(name):
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-1, 1, (2, 50, 2))
    beta, phi = rng.uniform(0, 6, (2, 50))
    sift = caloric.kernel("sift", sigma_d=0.3, sigma_r=0.5)(beta, x, phi, y)
    pooled = caloric.kernel(name, sigma_d=0.3, sigma_r=0.5, sigma_s=1e-6)(beta, x, phi, y)
    np.testing.assert_allclose(pooled, sift, rtol=1e-8)


def test_similarity_without_scale_is_the_limit_of_vanishing_sigma_s():
    rng = np.random.default_rng(1)
    x, y = rng.uniform(-1, 1, (2, 50, 2))
    beta, phi = rng.uniform(0, 6, (2, 50))
    exact = caloric.kernel("similarity", sigma_d=0.3, sigma_r=0.5)(beta, x, phi, y)
    limit = caloric.kernel("similarity", sigma_d=0.3, sigma_r=0.5, sigma_s=1e-6)(beta, x, phi, y)
    np.testing.assert_allclose(limit, exact, rtol=1e-8)


def test_at_the_center_kernels_are_separable():
    rng = np.random.default_rng(2)
    x, y = np.zeros(2), rng.uniform(-1, 1, (60, 2))
    beta, phi = rng.uniform(0, 6, (2, 60))
    heat = caloric.kernel("heat", sigma_d=0.3, sigma_a=0.4)(beta, x, phi, y)
    np.testing.assert_allclose(heat, gaussian_2d(y, 0.3) * rho(beta - phi, 0.4), rtol=1e-12)
    sift = caloric.kernel("sift", sigma_d=0.3, sigma_r=0.5)(beta, x, phi, y)
    similarity = caloric.kernel("similarity", sigma_d=0.3, sigma_r=0.5)(beta, x, phi, y)
    np.testing.assert_allclose(similarity, sift, rtol=1e-12)
    for name, factor in (("dsp-inner", np.exp(0.02)), ("dsp", np.exp(0.02)), ("dsp-both", 1)):
        pooled = caloric.kernel(name, sigma_d=0.3, sigma_r=0.5, sigma_s=0.2)(beta, x, phi, y)
        np.testing.assert_allclose(pooled, factor * sift, rtol=1e-10)


@given(
    st.sampled_from(ORIENTATION),
    st.floats(-10, 10),
    st.tuples(*[st.floats(-1, 1)] * 4),
    st.tuples(*[st.floats(-7, 7)] * 2),
    st.floats(0.05, 0.8),
    st.floats(0.05, 0.8),
)
@settings(max_examples=200, deadline=None)
def test_kernels_are_invariant_to_joint_rotation(
    name, rotation, positions, angles, sigma_d, spread
):
    x, y = np.array(positions[:2]), np.array(positions[2:])
    beta, phi = angles
    p = {"sigma_a": spread} if name == "heat" else {"sigma_r": spread}
    if name.startswith("dsp"):
        p["sigma_s"] = 0.3
    kernel = caloric.kernel(name, sigma_d=sigma_d, **p)
    rotated = kernel(beta + rotation, rotate(x, rotation), phi + rotation, rotate(y, rotation))
    assert rotated == pytest.approx(kernel(beta, x, phi, y), rel=1e-7, abs=1e-12)


def test_heat_integrates_over_y_to_a_function_of_the_angle_alone():
    y, area = plane(4, 161)
    for x in (np.zeros(2), np.array([0.7, 0.0]), np.array([-0.5, 0.6])):
        for sigma_d in (0.25, 0.4):
            for sigma_a in (0.3, 0.5):
                for beta, phi in ((0.0, 0.0), (0.3, 1.0), (2.0, 1.2)):
                    total = (
                        caloric.kernel("heat", sigma_d=sigma_d, sigma_a=sigma_a)(
                            beta, x, phi, y
                        ).sum()
                        * area
                    )
                    assert total == pytest.approx(rho(beta - phi, sigma_a), rel=1e-7)


@pytest.mark.parametrize(
    ("sigma_a", "mass", "spread"),
    [(0.1, 1.005, 0.1), (0.2, 1.020, 0.2001), (0.3, 1.046, 0.301), (0.5, 1.136, 0.517)],
)
def test_sigma_a_is_the_orientation_bandwidth(sigma_a, mass, spread):
    delta = np.linspace(-np.pi, np.pi, 20001)
    values = rho(delta, sigma_a)
    step = delta[1] - delta[0]
    assert values.sum() * step == pytest.approx(mass, abs=6e-4)
    measured = np.sqrt((values * delta**2).sum() / values.sum())
    assert measured == pytest.approx(spread, rel=2e-3)


@pytest.mark.parametrize("name", ["sift", "similarity"])
def test_integral_over_beta_is_the_blurred_gradient(name):
    beta = 2 * np.pi * np.arange(720) / 720
    kernel = caloric.kernel(name, sigma_d=0.3, sigma_r=0.5)
    for x in (np.zeros(2), np.array([0.0, 0.5])):
        y = np.array([0.2, 0.3])
        total = kernel(beta, x, 0.7, y).sum() * 2 * np.pi / 720
        if name == "sift" or not x.any():
            assert total == pytest.approx(gaussian_2d(y - x, 0.3), rel=1e-9)
        else:
            assert total != pytest.approx(gaussian_2d(y - x, 0.3), rel=1e-2)
