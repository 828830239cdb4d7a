import numpy as np
import pytest

from caloric.kernels import KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_growth_is_sigma_d_at_each_position(name):
    x = np.array([0.3, -0.4])
    args = (0.2, x, 0.5, np.array([0.4, -0.2]))
    p = dict(KERNELS[name].defaults)
    grown = KERNELS[name](**p | {"sigma_d": 0.1, "growth": 0.5})(*args)
    constant = KERNELS[name](**p | {"sigma_d": np.hypot(0.1, 0.25)})(*args)
    assert grown == pytest.approx(constant, rel=1e-12)
