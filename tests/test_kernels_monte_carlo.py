"""Every kernel against what it means: an image moved at random, its gradients looked at.

Nothing of the kernels is in the simulation. The descriptor at x is the mean over the moves; it must
agree with the kernel's integral over the image within the simulation's own noise.
"""

import numpy as np
import pytest

import caloric
from caloric.theory import oracle

IMAGE = oracle.Blobs((1.0, -0.7, 0.5), ((0.3, 0.1), (-0.4, 0.35), (0.1, -0.5)), (0.3, 0.25, 0.35))
BINS = 24
SAMPLES = 1_000_000
PLACES = (np.zeros(2), np.array([0.5, 0.0]), np.array([0.4, -0.6]))


def integral_per_bin(kernel, x, edges):
    """∫ over each bin of ∫ weight(y) K(β, x; φ(y), y) dy, on a fine grid."""
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


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("sift", {"sigma_d": 0.25, "sigma_r": 0.5}),
        ("dsp", {"sigma_d": 0.25, "sigma_r": 0.5, "sigma_s": 0.3}),
        ("dsp-inner", {"sigma_d": 0.25, "sigma_r": 0.5, "sigma_s": 0.3}),
        ("dsp-both", {"sigma_d": 0.25, "sigma_r": 0.5, "sigma_s": 0.3}),
        ("dsp-domain", {"sigma_d": 0.25, "sigma_r": 0.5, "sigma_s": 0.15}),
        ("similarity", {"sigma_d": 0.25, "sigma_r": 0.6}),
        ("similarity", {"sigma_d": 0.25, "sigma_r": 0.6, "sigma_s": 0.3}),
        ("heat", {"sigma_d": 0.25, "sigma_a": 0.3}),
        ("heat", {"sigma_d": 0.2, "sigma_a": 0.6}),
        ("distribution-field", {"sigma_d": 0.25, "sigma_l": 0.1}),
        ("distribution-field-heat", {"sigma_d": 0.25, "sigma_a": 0.4, "sigma_l": 0.1}),
    ],
)
def test_monte_carlo(name, parameters):
    kernel = caloric.kernel(name, **parameters)
    levels = kernel.feature == "intensity"
    edges = np.linspace(-0.9, 1.2, BINS + 1) if levels else np.linspace(0, 2 * np.pi, BINS + 1)
    squares = []
    for number, x in enumerate(PLACES):
        mean, error = oracle.monte_carlo(name, IMAGE, x, edges, SAMPLES, number, **parameters)
        expected = integral_per_bin(kernel, x, edges)
        # Bins that almost nothing falls into have no Gaussian error bar to compare with.
        seen = expected > 1e-4 * expected.max()
        squares.append(((mean - expected)[seen] / error[seen]) ** 2)
        assert np.linalg.norm(mean - expected) < 0.01 * np.linalg.norm(expected)
    per_bin = float(np.mean(np.concatenate(squares)))
    assert 0.5 < per_bin < 2, f"chi-squared per bin {per_bin:.2f}"


def test_lemma_1_is_only_an_approximation():
    """The simulation that confirms the exact similarity kernel rejects SIFT, which neglects R x."""
    edges, x = np.linspace(0, 2 * np.pi, BINS + 1), PLACES[2]
    p = {"sigma_d": 0.25, "sigma_r": 0.6}
    mean, error = oracle.monte_carlo("similarity", IMAGE, x, edges, SAMPLES, 0, **p)
    lemma = integral_per_bin(caloric.kernel("sift", **p), x, edges)
    assert np.mean(((mean - lemma) / error) ** 2) > 100
