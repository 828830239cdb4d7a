from itertools import pairwise

import numpy as np
import pytest

import caloric
import kernel_draws
from caloric.theory import oracle


def test_the_kernel_equals_its_integral():
    kernel_draws.assert_is_integral("dsp", oracle.dsp)


@pytest.mark.parametrize(("sigma_s", "length"), [(0.2, 0.3), (0.3, 0.5), (0.3, 1.0)])
def test_dsp_converges_to_the_log_scale_diffusion(sigma_s, length):
    """The closed forms only approximate it."""
    p = {"sigma_d": 0.2, "sigma_r": 0.5, "sigma_s": sigma_s}
    x, y = np.array([length, 0.0]), np.array([length * 1.1, 0.1])
    target = oracle.dsp(oracle.Pair(0.0, x, 0.0, y), **p)
    errors = [
        abs(caloric.kernel("dsp", nodes=n, **p)(0.0, x, 0.0, y) / target - 1)
        for n in (5, 9, 17, 33, 65, 129)
    ]
    assert errors[-1] < 1e-9
    assert errors[0] > 1e-2
    assert all(b < a or b < 1e-9 for a, b in pairwise(errors))
    for closed in ("dsp-inner", "dsp-both"):
        error = abs(caloric.kernel(closed, **p)(0.0, x, 0.0, y) / target - 1)
        assert 1e-4 < error < 0.2


@pytest.mark.parametrize(
    ("name", "sigma_s", "lengths", "expected"),
    [
        ("dsp-inner", 0.2, (0.5, 1, 2, 4), (0.0076, 0.0144, 0.0239, 0.033)),
        ("dsp-inner", 0.5, (0.5, 1, 2, 4), (0.064, 0.104, 0.148, 0.204)),
        ("dsp-both", 0.2, (0.5, 1, 2, 4), (0.021, 0.023, 0.028, 0.034)),
        ("dsp-both", 0.5, (0.5, 1, 2, 4), (0.116, 0.118, 0.140, 0.187)),
    ],
)
def test_the_closed_forms_have_the_known_errors(name, sigma_s, lengths, expected):
    """Relative L2 errors over y with respect to the exact log-scale diffusion, for σd = 1."""
    line = np.linspace(-6, 16, 177)
    plane = np.stack(np.meshgrid(line, np.linspace(-6, 6, 49)), -1)
    for length, error in zip(lengths, expected, strict=True):
        x = np.array([float(length), 0.0])
        target = caloric.kernel("dsp", sigma_d=1, sigma_r=1, sigma_s=sigma_s)(0, x, 0, plane)
        closed = caloric.kernel(name, sigma_d=1, sigma_r=1, sigma_s=sigma_s)(0, x, 0, plane)
        measured = np.linalg.norm(closed - target) / np.linalg.norm(target)
        assert measured == pytest.approx(error, rel=0.06, abs=5e-4)
