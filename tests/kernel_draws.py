"""Compare kernels with their defining integrals at random entries, pixels and widths."""

import numpy as np
import pytest

from caloric.kernels import KERNELS
from caloric.theory.oracle import Pair

RANGES = {
    "sigma_d": (0.1, 0.5), "sigma_r": (0.15, 1.2), "sigma_s": (0.05, 0.6),
    "sigma_a": (0.05, 0.8), "sigma_l": (0.03, 0.3),
}  # fmt: skip


def pairs(count, seed=0):
    """Yield (rng, β, x, φ), including x = 0, x on an axis, and gradients along both axes."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        x = np.zeros(2) if i == 0 else np.array([0.6, 0.0]) if i == 1 else rng.uniform(-1, 1, 2)
        phi = 0.0 if i == 2 else np.pi / 2 if i == 3 else rng.uniform(0, 2 * np.pi)
        yield rng, phi + 0.5 * rng.standard_normal(), x, phi


def sigmas(rng, names, ranges=RANGES):
    return {name: rng.uniform(*ranges[name]) for name in names}


def near(rng, x, p):
    """Return a point y where a kernel with the parameters ``p`` is not negligible."""
    stretch = p.get("sigma_s", p.get("sigma_a", 0.0))
    return x + (p["sigma_d"] + stretch * np.hypot(*x)) * rng.standard_normal(2)


def assert_is_integral(name, integral, count=40, **ranges):
    """Assert that the kernel equals ``integral(Pair(β, x, φ, y), **parameters)`` to 1e-6.

    ``ranges`` adds ranges of parameters that are not in ``RANGES``, for example ``nu=(3, 20)``.
    """
    ranges = RANGES | ranges
    cls = KERNELS[name]
    names = [parameter for parameter in cls.defaults if parameter in ranges]
    for rng, beta, x, phi in pairs(count):
        if cls.feature == "intensity":
            beta, phi = rng.uniform(0, 1, 2)
        p = sigmas(rng, names, ranges)
        y = near(rng, x, p)
        expected = integral(Pair(beta, x, phi, y), **p)
        assert cls(**p)(beta, x, phi, y) == pytest.approx(expected, rel=1e-6), (p, beta, x, phi, y)
