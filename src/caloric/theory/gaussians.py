"""The Gaussian, the periodic Gaussian, and the function w of the affine closed form."""

import numpy as np
from numpy.typing import ArrayLike

from caloric.types import FloatArray

_SQRT_PI = np.sqrt(np.pi)
# For larger arguments the closed form of w suffers from cancellation; a recurrence is used instead.
_W_SWITCH = 3.0
_W_TERMS = 30


def inner(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return a·b over the last axis."""
    return np.asarray(np.einsum("...i,...i->...", a, b))


def gaussian(x: ArrayLike, sigma: ArrayLike) -> FloatArray:
    """Return k_σ in one dimension, elementwise: (2πσ²)^(-1/2) exp(-x²/2σ²)  (eq. 1).

    The paper prints the exponent -dim; it must be -dim/2 for unit mass (erratum 1).
    """
    x, sigma = np.asarray(x, np.float64), np.asarray(sigma, np.float64)
    return np.asarray(np.exp(-0.5 * (x / sigma) ** 2) / (np.sqrt(2 * np.pi) * sigma))


def gaussian_2d(x: ArrayLike, sigma: ArrayLike) -> FloatArray:
    """Return k_σ (...) of vectors x (..., 2): (2πσ²)^(-1) exp(-|x|²/2σ²)  (eq. 1, corrected)."""
    x, sigma = np.asarray(x, np.float64), np.asarray(sigma, np.float64)
    squared = inner(x, x) / sigma**2
    return np.asarray(np.exp(-0.5 * squared) / (2 * np.pi * sigma**2))


def periodic_gaussian(phi: ArrayLike, sigma: float) -> FloatArray:
    """Return k̃_σ(φ) = Σ_n k_σ(φ + 2πn) = 1/2π Σ_m exp(-σ²m²/2) cos(mφ)  (eq. 1).

    The first sum converges fast for a narrow Gaussian, the second for a wide one.
    """
    phi = np.remainder(np.asarray(phi, np.float64) + np.pi, 2 * np.pi) - np.pi
    if sigma < np.pi:
        reach = int(np.ceil(9 * sigma / (2 * np.pi))) + 1
        wraps = (gaussian(phi + 2 * np.pi * n, sigma) for n in range(-reach, reach + 1))
        return sum(wraps, np.zeros_like(phi))
    harmonics = (2 * np.exp(-0.5 * (sigma * m) ** 2) * np.cos(m * phi) for m in range(1, 4))
    return (1 + sum(harmonics, np.zeros_like(phi))) / (2 * np.pi)


def w(z: ArrayLike) -> FloatArray:
    """Return w(z) = √π e^{z²} (1 + 2z²) erfc(z) − 2z = 4 ∫₀^∞ r² e^{−r²−2rz} dr  (under eq. 6).

    For large z the two printed terms cancel; then w = 8 r₋₁ r₀ r₁ with the positive recurrence
    r_{k−1} = 1 / 2(z + (k+1) r_k). For z < −26 the value overflows float64; use :func:`decayed_w`,
    which does not compute e^{z²}.
    """
    # SciPy takes longer to import than the rest of the library.
    from scipy.special import erfcx

    z = np.asarray(z, np.float64)
    result = np.empty_like(z)
    large = z > _W_SWITCH
    small = z[~large]
    result[~large] = _SQRT_PI * (1 + 2 * small**2) * erfcx(small) - 2 * small
    result[large] = 8 * _ratios(z[large], 3)
    return result


def _ratios(z: FloatArray, count: int) -> FloatArray:
    """Return r₋₁ r₀ …, the product of ``count`` factors.

    ∫₀^∞ rⁿ e^{−r²−2rz} dr is n! times the product of n + 1 factors.
    """
    ratio = 1 / (2 * (z + np.sqrt(z**2 + _W_TERMS)))
    product = np.ones_like(z)
    for k in range(_W_TERMS, -1, -1):
        ratio = 1 / (2 * (z + (k + 1) * ratio))
        if k < count:
            product *= ratio
    return product


def decayed_w(u: ArrayLike, excess: ArrayLike) -> FloatArray:
    """Return e^{−P} w(−u) with P = u² + excess, without overflow for any u and any excess ≥ 0.

    The factor e^{u²} of w(−u) is canceled with e^{−P} analytically:
    e^{−excess} [√π (1 + 2u²)(1 + erf u) + 2u e^{−u²}] for u ≥ 0, and e^{−P} w(|u|) for u < 0.
    """
    from scipy.special import erf

    u, excess = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(excess, np.float64))
    decay = np.exp(-excess)
    fall = np.exp(-u * u)
    result = np.empty(u.shape)
    positive = u >= 0
    plus = u[positive]
    result[positive] = _SQRT_PI * (1 + 2 * plus**2) * (1 + erf(plus)) + 2 * plus * fall[positive]
    result[~positive] = fall[~positive] * w(-u[~positive])
    return np.asarray(decay * result)


def decayed_mean(u: ArrayLike, excess: ArrayLike) -> FloatArray:
    """Return e^{−P} ∫₀^∞ r e^{−r²+2ru} dr with P = u² + excess.

    It gives the derivative of :func:`decayed_w`:
    d/du w(−u) = 8 ∫ r³ e^{−r²+2ru} dr = 2u w(−u) + 8 ∫ r e^{−r²+2ru} dr, by parts.
    """
    from scipy.special import erf, erfcx

    u, excess = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(excess, np.float64))
    fall = np.exp(-u * u)
    result = np.empty(u.shape)
    positive, far = u >= 0, u < -_W_SWITCH
    near = ~positive & ~far
    plus, minus = u[positive], u[near]
    result[positive] = (_SQRT_PI * plus * (1 + erf(plus)) + fall[positive]) / 2
    result[near] = fall[near] * (1 + _SQRT_PI * minus * erfcx(-minus)) / 2
    result[far] = fall[far] * _ratios(-u[far], 2)
    return np.asarray(np.exp(-excess) * result)


def stretched_gaussian(
    offset: ArrayLike, axis: ArrayLike, sigma: ArrayLike, stretch: float
) -> FloatArray:
    """Return N(offset; 0, σ²I + s² a aᵀ), a Gaussian of width σ stretched along the vector a.

    Both vectors are (..., 2). The exponent [σ²|o|² + s²(a×o)²] / 2σ²(σ² + s²|a|²) is a sum of
    squares without a division by |a|; at a = 0 the result is k_σ.
    """
    offset, axis, sigma = (
        np.asarray(offset, np.float64),
        np.asarray(axis, np.float64),
        np.asarray(sigma),
    )
    long = sigma**2 + stretch**2 * inner(axis, axis)
    cross = axis[..., 0] * offset[..., 1] - axis[..., 1] * offset[..., 0]
    squared = inner(offset, offset)
    exponent = (squared + (stretch * cross / sigma) ** 2) / (2 * long)
    return np.asarray(np.exp(-exponent) / (2 * np.pi * sigma * np.sqrt(long)))
