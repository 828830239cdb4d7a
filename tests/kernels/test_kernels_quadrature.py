"""Every kernel equals its defining integral, by quadrature that shares no formula with it."""

from dataclasses import MISSING, fields
from itertools import pairwise

import numpy as np
import pytest

import caloric
from caloric.kernels import KERNELS
from caloric.theory import diffusion, oracle

X_AXIS, ORIGIN = np.array([0.6, 0.0]), np.zeros(2)


def draws(seed, count):
    """Random configurations, x = 0 and axis-aligned gradients and places among them."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        x = ORIGIN if i == 0 else X_AXIS if i == 1 else rng.uniform(-1, 1, 2)
        phi = 0.0 if i == 2 else np.pi / 2 if i == 3 else rng.uniform(0, 2 * np.pi)
        beta = phi + 0.5 * rng.standard_normal()
        yield rng, beta, x, phi


def near(rng, x, sigma_d, stretch=0.0):
    """A point where the kernel is not negligible."""
    return x + (sigma_d + stretch * np.hypot(*x)) * rng.standard_normal(2)


def sigmas(rng, *names):
    ranges = {
        "sigma_d": (0.1, 0.5), "sigma_r": (0.15, 1.2), "sigma_s": (0.05, 0.6),
        "sigma_a": (0.05, 0.8), "sigma_l": (0.03, 0.3),
    }  # fmt: skip
    return {name: rng.uniform(*ranges[name]) for name in names}


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("dsp", oracle.dsp),
        ("dsp-inner", oracle.dsp_inner),
        ("dsp-both", oracle.dsp_both),
        ("dsp-domain", oracle.dsp_domain),
    ],
)
def test_scale_pooling(name, reference):
    for rng, beta, x, phi in draws(1, 40):
        p = sigmas(rng, "sigma_d", "sigma_r", "sigma_s")
        y = near(rng, x, p["sigma_d"], p["sigma_s"])
        expected = reference(beta, x, phi, y, **p)
        assert caloric.kernel(name, **p)(beta, x, phi, y) == pytest.approx(expected, rel=1e-6)


def test_sift():
    for rng, beta, x, phi in draws(2, 40):
        p = sigmas(rng, "sigma_d", "sigma_r")
        y = near(rng, x, p["sigma_d"])
        expected = oracle.sift(beta, x, phi, y, **p)
        assert caloric.kernel("sift", **p)(beta, x, phi, y) == pytest.approx(expected, rel=1e-6)


def test_heat():
    for rng, beta, x, phi in draws(3, 16):
        p = sigmas(rng, "sigma_d", "sigma_a")
        y = near(rng, x, p["sigma_d"], p["sigma_a"])
        expected = oracle.heat(beta, x, phi, y, **p)
        assert caloric.kernel("heat", **p)(beta, x, phi, y) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("with_scale", [False, True])
def test_similarity_mass_of_a_bin(with_scale):
    nodes, weights = np.polynomial.legendre.leggauss(200)
    for rng, beta, x, phi in draws(4, 12):
        p = sigmas(rng, "sigma_d", "sigma_r", *(["sigma_s"] if with_scale else []))
        y = near(rng, x, p["sigma_d"], p.get("sigma_s", 0))
        low, high = beta - 0.4, beta + 0.3
        middle, half = (low + high) / 2, (high - low) / 2
        values = caloric.kernel("similarity", **p)(middle + half * nodes, x, phi, y)
        expected = oracle.similarity_bin(low, high, x, phi, y, **p)
        assert half * (weights @ values) == pytest.approx(expected, rel=1e-6)


def test_distribution_fields():
    for rng, _, x, _ in draws(5, 30):
        level, value = rng.uniform(0, 1, 2)
        p = sigmas(rng, "sigma_d", "sigma_l")
        y = near(rng, x, p["sigma_d"])
        expected = oracle.distribution_field(level, x, value, y, **p)
        got = caloric.kernel("distribution-field", **p)(level, x, value, y)
        assert got == pytest.approx(expected, rel=1e-6)
        p |= sigmas(rng, "sigma_a")
        expected = oracle.distribution_field_heat(level, x, value, y, **p)
        got = caloric.kernel("distribution-field-heat", **p)(level, x, value, y)
        assert got == pytest.approx(expected, rel=1e-6)


def test_growth_is_sigma_d_at_each_place():
    x = np.array([0.3, -0.4])
    args = (0.2, x, 0.5, np.array([0.4, -0.2]))
    for name in KERNELS:
        recipe = {"sigma_r": 0.4, "sigma_s": 0.2, "sigma_a": 0.3, "sigma_l": 0.1}
        cls = type(caloric.kernel(name, sigma_d=1, **_needed(name, recipe)))
        p = _needed(name, recipe)
        grown = cls(sigma_d=0.1, growth=0.5, **p)(*args)
        assert grown == pytest.approx(cls(sigma_d=np.hypot(0.1, 0.25), **p)(*args), rel=1e-12)


def _needed(name, values):
    required = {f.name for f in fields(KERNELS[name]) if f.default is MISSING}
    return {k: v for k, v in values.items() if k in required}


@pytest.mark.parametrize(("sigma_s", "length"), [(0.2, 0.3), (0.3, 0.5), (0.3, 1.0)])
def test_dsp_converges_as_nodes_grow(sigma_s, length):
    """To the log-scale diffusion: the target of the closed forms, which they only approximate."""
    p = {"sigma_d": 0.2, "sigma_r": 0.5, "sigma_s": sigma_s}
    x, y = np.array([length, 0.0]), np.array([length * 1.1, 0.1])
    target = oracle.dsp(0.0, x, 0.0, y, **p)
    errors = [
        abs(caloric.kernel("dsp", nodes=n, **p)(0.0, x, 0.0, y) / target - 1)
        for n in (5, 9, 17, 33, 65, 129)
    ]
    assert errors[-1] < 1e-9
    assert errors[0] > 1e-2
    assert all(b < a or b < 1e-9 for a, b in pairwise(errors))
    for closed in ("dsp-inner", "dsp-both"):
        off = abs(caloric.kernel(closed, **p)(0.0, x, 0.0, y) / target - 1)
        assert 1e-4 < off < 0.2


@pytest.mark.parametrize(
    ("name", "sigma_s", "lengths", "expected"),
    [
        ("dsp-inner", 0.2, (0.5, 1, 2, 4), (0.0076, 0.0144, 0.0239, 0.033)),
        ("dsp-inner", 0.5, (0.5, 1, 2, 4), (0.064, 0.104, 0.148, 0.204)),
        ("dsp-both", 0.2, (0.5, 1, 2, 4), (0.021, 0.023, 0.028, 0.034)),
        ("dsp-both", 0.5, (0.5, 1, 2, 4), (0.116, 0.118, 0.140, 0.187)),
    ],
)
def test_error_of_the_closed_forms(name, sigma_s, lengths, expected):
    """Relative L2 error over y against the exact log-scale diffusion, σd = 1: the known table."""
    line = np.linspace(-6, 16, 177)
    plane = np.stack(np.meshgrid(line, np.linspace(-6, 6, 49)), -1)
    for length, error in zip(lengths, expected, strict=True):
        x = np.array([float(length), 0.0])
        target = caloric.kernel("dsp", sigma_d=1, sigma_r=1, sigma_s=sigma_s)(0, x, 0, plane)
        closed = caloric.kernel(name, sigma_d=1, sigma_r=1, sigma_s=sigma_s)(0, x, 0, plane)
        measured = np.linalg.norm(closed - target) / np.linalg.norm(target)
        assert measured == pytest.approx(error, rel=0.06, abs=5e-4)


def test_linear_similarity_by_quadrature():
    """E over Z = [[a, −c], [c, a]] with Z^Tĝ along β: a sum over the length r of (a, c)."""
    for rng, beta, x, phi in draws(6, 12):
        p = sigmas(rng, "sigma_d", "sigma_a")
        z, b = rng.standard_normal(2) * 0.3 + [1, 0], 0.1 * rng.standard_normal(2)
        y = near(rng, x, p["sigma_d"], p["sigma_a"])
        r = np.linspace(0, 12, 60_001)
        cos, sin = np.cos(phi - beta), np.sin(phi - beta)
        turned = np.array([cos * x[0] - sin * x[1], sin * x[0] + cos * x[1]])
        prior = oracle._normal_2d(r[:, None] * [cos, sin] - z, p["sigma_a"])
        place = oracle._normal_2d(y - b - r[:, None] * turned, p["sigma_d"])
        expected = (r * r * prior * place).sum() * (r[1] - r[0])
        got = diffusion.linear_similarity(beta, x, phi, y, z=z, b=b, **p)
        assert got == pytest.approx(expected, rel=1e-6)


def test_affine_around_a_general_transformation():
    """At (A₀, b₀) the closed form is the expectation over A ~ N(A₀, σa²), summed over r and m."""
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
