import pytest

import kernel_draws
from caloric.theory import oracle


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_the_kernel_equals_its_integral(count):
    kernel_draws.assert_is_integral("heat", oracle.heat, count)
