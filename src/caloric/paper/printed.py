"""The formulas of the paper as printed, including their errors, which they serve to measure.

Equation numbers are the paper's.
"""

import numpy as np
from scipy.special import erfc

from caloric.theory import diffusion
from caloric.theory.gaussians import gaussian, gaussian_2d, stretched_gaussian
from caloric.types import FloatArray


def printed_gaussian(squared_length: FloatArray, sigma: FloatArray, dim: int) -> FloatArray:
    """Return eq. 1 as printed, with exponent −dim."""
    return np.exp(-squared_length / (2 * sigma**2)) * (2 * np.pi * sigma**2) ** (-dim)


def printed_inner_box(x: FloatArray, y: FloatArray, sigma_d: float, sigma_s: float) -> FloatArray:
    """Return eq. 24, the boxed closed form 1, which is correct but divides by |x|."""
    length = np.hypot(x[..., 0], x[..., 1])
    center = 1 - ((x * y).sum(-1) + sigma_d**2) / length**2
    near, far = sigma_d / length, np.sqrt(sigma_s**2 + (sigma_d / length) ** 2)
    return gaussian_2d(y - x, sigma_d) / gaussian(center, near) * gaussian(center, far)


def printed_both_box(x: FloatArray, y: FloatArray, sigma_d: float, sigma_s: float) -> FloatArray:
    """Return closed form 2 (eqs. 26 to 29) with the constant of eq. 28: σs instead of σs²."""
    xy, xx = (x * y).sum(-1), (x * x).sum(-1)
    blob = stretched_gaussian(y - x, x, sigma_d, sigma_s)
    return np.asarray(blob * (sigma_d**2 + sigma_s * xy) / (sigma_d**2 + sigma_s**2 * xx))


def printed_both_intro(x: FloatArray, y: FloatArray, sigma_d: float, sigma_s: float) -> FloatArray:
    """Return eq. 5 with the constant of eq. 28: an extra k_σd, −σs, and |x + y|."""
    xy, xx = (x * y).sum(-1), (x * x).sum(-1)
    blob = stretched_gaussian(y + x, x, sigma_d, sigma_s)
    factor = (sigma_d**2 - sigma_s * xy) / (sigma_d**2 + sigma_s**2 * xx)
    return np.asarray(gaussian_2d(y - x, sigma_d) * blob * factor)


def printed_dsp(x: FloatArray, y: FloatArray, sigma_d: float, spread: float) -> FloatArray:
    """Return eq. 3 as printed: k_σ(y − x) pooled over σ ~ N(σd, spread²), with x not scaled."""
    # Uniform steps of log |σ|, since the printed domain includes σ = 0.
    t, step = np.linspace(np.log(1e-6), np.log(sigma_d + 8 * spread), 801, retstep=True)
    sigmas = np.exp(t)
    both_signs = gaussian(sigmas - sigma_d, spread) + gaussian(-sigmas - sigma_d, spread)
    weights = both_signs * sigmas * step
    squared = ((y - x) ** 2).sum(-1)[..., None]
    pooled = np.exp(-squared / (2 * sigmas**2)) / (2 * np.pi * sigmas**2) @ weights
    return np.asarray(pooled)


def printed_heat_box(
    beta: FloatArray, x: FloatArray, phi: FloatArray, y: FloatArray, sigma_d: float, sigma_a: float
) -> FloatArray:
    """Return Lemma 2 with its constant; it lacks the factor across the gradient."""
    v, g = diffusion.direction(beta), diffusion.direction(phi)
    xv, gy = (x * v).sum(-1), (y * g).sum(-1)
    tau = np.sqrt(xv**2 / (2 * sigma_d**2) + 1 / (2 * sigma_a**2))
    z = -(gy * xv / sigma_d**2 + (g * v).sum(-1) / sigma_a**2) / (2 * tau)
    w = np.sqrt(np.pi) * np.exp(z * z) * (1 + 2 * z * z) * erfc(z) - 2 * z
    decay = np.exp(-(gy**2) / (2 * sigma_d**2) - 1 / (2 * sigma_a**2))
    constant = 8 * np.sqrt(2) * np.pi**1.5 * sigma_d * sigma_a**2
    return np.asarray(decay * w / (constant * tau**3))
