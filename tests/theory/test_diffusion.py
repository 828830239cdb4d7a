"""Closed forms of the diffusion at transformations other than the identity."""

import numpy as np
import pytest

import kernel_draws
from caloric.theory import diffusion, oracle


def test_linear_similarity_by_quadrature():
    """The mean over Z = [[a, −c], [c, a]] with Z^Tĝ along β: a sum over the length r of (a, c)."""
    for rng, beta, x, phi in kernel_draws.pairs(12):
        p = kernel_draws.sigmas(rng, ("sigma_d", "sigma_a"))
        z, b = rng.standard_normal(2) * 0.3 + [1, 0], 0.1 * rng.standard_normal(2)
        y = kernel_draws.near(rng, x, p)
        r = np.linspace(0, 12, 60_001)
        cos, sin = np.cos(phi - beta), np.sin(phi - beta)
        rotated = np.array([cos * x[0] - sin * x[1], sin * x[0] + cos * x[1]])
        prior = oracle._normal_2d(r[:, None] * [cos, sin] - z, p["sigma_a"])
        position = oracle._normal_2d(y - b - r[:, None] * rotated, p["sigma_d"])
        expected = (r * r * prior * position).sum() * (r[1] - r[0])
        got = diffusion.linear_similarity(beta, x, phi, y, z=z, b=b, **p)
        assert got == pytest.approx(expected, rel=1e-6)


def test_affine_around_a_general_transformation():
    """At (A₀, b₀) the closed form is the mean over A ~ N(A₀, σa²), summed over r and m."""
    rng = np.random.default_rng(7)
    for _ in range(4):
        A = np.eye(2) + 0.3 * rng.standard_normal((2, 2))
        b, x = 0.2 * rng.standard_normal(2), rng.uniform(-1, 1, 2)
        phi, sigma_d, sigma_a = rng.uniform(0, 6), 0.3, 0.25
        g, normal = np.array([np.cos(phi), np.sin(phi)]), np.array([-np.sin(phi), np.cos(phi)])
        pulled = A.T @ g
        beta = np.arctan2(pulled[1], pulled[0]) + 0.2 * rng.standard_normal()
        y = A @ x + b + 0.2 * rng.standard_normal(2)
        v = np.array([np.cos(beta), np.sin(beta)])
        r = np.linspace(0, 5, 2001)
        t = np.linspace(-10, 10, 201) * sigma_a
        m = (A.T @ normal)[:, None, None] + np.stack(np.meshgrid(t, t, indexing="ij"))
        prior_m = oracle._normal(t, sigma_a)[:, None] * oracle._normal(t, sigma_a)
        across = m[0] * x[0] + m[1] * x[1]
        offset = y - b
        along_part = oracle._normal(offset @ g - r * (v @ x), sigma_d)
        across_part = (prior_m * oracle._normal(offset @ normal - across, sigma_d)).sum()
        row = oracle._normal_2d(r[:, None] * v - pulled, sigma_a)
        expected = (
            (r * r * row * along_part).sum() * (r[1] - r[0]) * across_part * (t[1] - t[0]) ** 2
        )
        got = diffusion.affine(beta, x, phi, y, A=A, b=b, sigma_d=sigma_d, sigma_a=sigma_a)
        assert got == pytest.approx(expected, rel=1e-6)
