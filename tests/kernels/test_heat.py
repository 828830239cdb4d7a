import pytest

import kernel_draws
from caloric.theory import oracle


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.slow)])
def test_integral(count):
    """With a triple sum at each of the random entries and pixels, the special cases first."""
    kernel_draws.assert_is_integral("heat", oracle.heat, count)
