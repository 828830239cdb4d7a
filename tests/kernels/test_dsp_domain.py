import kernel_draws
from caloric.theory import oracle


def test_integral():
    kernel_draws.assert_is_integral("dsp-domain", oracle.dsp_domain)
