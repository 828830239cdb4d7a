"""Every kernel compared with a simulation: the gradients of an image moved at random.

The simulation does not use the kernels. The descriptor at x is the mean over the random moves; it
must agree with the integral of the kernel over the image within the noise of the simulation.
"""

import numpy as np
import pytest

import caloric
from caloric.theory import oracle

IMAGE = oracle.Blobs((1.0, -0.7, 0.5), ((0.3, 0.1), (-0.4, 0.35), (0.1, -0.5)), (0.3, 0.25, 0.35))
BINS = 24
SAMPLES = 1_000_000
POSITIONS = (np.zeros(2), np.array([0.5, 0.0]), np.array([0.4, -0.6]), np.array([-0.2, 0.3]))


def integral_per_bin(kernel, x, edges):
    """Return the integrals of weight(y) K(β, x; φ(y), y) over y and each bin of β."""
    line = np.linspace(-3, 3, 121)
    y = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    area = (line[1] - line[0]) ** 2
    if kernel.feature == "intensity":
        phi, weight = IMAGE.value(y), np.full(len(y), area)
    else:
        g = IMAGE.gradient(y)
        phi, weight = np.arctan2(g[:, 1], g[:, 0]), np.hypot(g[:, 0], g[:, 1]) * area
    keep = weight > 1e-9 * weight.max()
    nodes, mass = np.polynomial.legendre.leggauss(3)
    half = np.diff(edges) / 2
    beta = edges[:-1, None] + half[:, None] * (1 + nodes)
    values = kernel(beta[..., None], x, phi[keep], y[keep]) @ weight[keep]
    return half * (values @ mass)


RANGES = {
    "sigma_d": (0.2, 0.35), "sigma_r": (0.3, 0.9), "sigma_s": (0.1, 0.35),
    "sigma_a": (0.2, 0.6), "sigma_l": (0.08, 0.2),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sift", ("sigma_d", "sigma_r")),
        ("dsp", ("sigma_d", "sigma_r", "sigma_s")),
        ("dsp-inner", ("sigma_d", "sigma_r", "sigma_s")),
        ("dsp-both", ("sigma_d", "sigma_r", "sigma_s")),
        ("dsp-domain", ("sigma_d", "sigma_r", "sigma_s")),
        ("similarity", ("sigma_d", "sigma_r")),
        ("similarity", ("sigma_d", "sigma_r", "sigma_s")),
        ("heat", ("sigma_d", "sigma_a")),
        ("distribution-field", ("sigma_d", "sigma_l")),
        ("distribution-field-heat", ("sigma_d", "sigma_a", "sigma_l")),
    ],
)
def test_kernels_agree_with_monte_carlo(name, parameters):
    rng = np.random.default_rng(len(name))
    squares = []
    for number, x in enumerate(POSITIONS):
        p = {key: rng.uniform(*RANGES[key]) for key in parameters}
        if name == "dsp-domain":
            # The inverse size is Gaussian and must stay away from 0.
            p["sigma_s"] /= 2
        kernel = caloric.kernel(name, **p)
        levels = kernel.feature == "intensity"
        edges = np.linspace(-0.9, 1.2, BINS + 1) if levels else np.linspace(0, 2 * np.pi, BINS + 1)
        mean, error = oracle.monte_carlo(name, IMAGE, x, edges, SAMPLES, number, **p)
        expected = integral_per_bin(kernel, x, edges)
        # The error of almost empty bins is not Gaussian.
        filled = expected > 1e-3 * expected.max()
        squares.append(((mean - expected)[filled] / error[filled]) ** 2)
        assert np.linalg.norm(mean - expected) < 0.01 * np.linalg.norm(expected)
    per_bin = float(np.mean(np.concatenate(squares)))
    assert 0.5 < per_bin < 2, f"chi-squared per bin {per_bin:.2f}"


def test_lemma_1_is_only_an_approximation():
    """The simulation rejects SIFT, which neglects the rotation of x."""
    edges, x = np.linspace(0, 2 * np.pi, BINS + 1), POSITIONS[2]
    p = {"sigma_d": 0.25, "sigma_r": 0.6}
    mean, error = oracle.monte_carlo("similarity", IMAGE, x, edges, SAMPLES, 0, **p)
    lemma = integral_per_bin(caloric.kernel("sift", **p), x, edges)
    assert np.mean(((mean - lemma) / error) ** 2) > 100
