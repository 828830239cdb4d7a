import kernel_draws
from caloric.theory import oracle


def test_the_kernel_equals_its_integral():
    kernel_draws.assert_is_integral("heat", oracle.heat, 4)
