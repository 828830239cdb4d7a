import numpy as np
import pytest

import caloric
import kernel_draws
from caloric.theory import oracle


@pytest.mark.parametrize("names", [("sigma_d", "sigma_r"), ("sigma_d", "sigma_r", "sigma_s")])
def test_the_mass_of_a_bin_equals_its_integral(names):
    nodes, weights = np.polynomial.legendre.leggauss(200)
    half = 0.35
    for rng, beta, x, phi in kernel_draws.pairs(12):
        p = kernel_draws.sigmas(rng, names)
        y = kernel_draws.near(rng, x, p)
        values = caloric.kernel("similarity", **p)(beta + half * nodes, x, phi, y)
        expected = oracle.similarity_bin(oracle.Pair(beta, x, phi, y), half, **p)
        assert half * (weights @ values) == pytest.approx(expected, rel=1e-6)
