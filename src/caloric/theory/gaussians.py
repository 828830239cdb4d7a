"""The Gaussian, the periodic Gaussian, and the function w of the affine closed form."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

_SQRT_PI = np.sqrt(np.pi)
# Beyond this the closed form of w loses digits to cancellation; 30 terms of the recurrence do not.
_W_SWITCH = 3.0
_W_TERMS = 30


def inner(a: FloatArray, b: FloatArray) -> FloatArray:
    """a·b over the last axis."""
    return np.asarray(np.einsum("...i,...i->...", a, b))


def gaussian(x: ArrayLike, sigma: ArrayLike) -> FloatArray:
    """k_σ in one dimension, elementwise: (2πσ²)^(-1/2) exp(-x²/2σ²)  (eq. 1).

    The paper prints the exponent -dim; it must be -dim/2 for unit mass (erratum 1).
    """
    x, sigma = np.asarray(x, np.float64), np.asarray(sigma, np.float64)
    return np.asarray(np.exp(-0.5 * (x / sigma) ** 2) / (np.sqrt(2 * np.pi) * sigma))


def gaussian_2d(x: ArrayLike, sigma: ArrayLike) -> FloatArray:
    """k_σ of vectors x (..., 2): (2πσ²)^(-1) exp(-|x|²/2σ²)  (eq. 1, corrected)."""
    x, sigma = np.asarray(x, np.float64), np.asarray(sigma, np.float64)
    squared = inner(x, x) / sigma**2
    return np.asarray(np.exp(-0.5 * squared) / (2 * np.pi * sigma**2))


def periodic_gaussian(phi: ArrayLike, sigma: float) -> FloatArray:
    """k̃_σ(φ) = Σ_n k_σ(φ + 2πn) = 1/2π Σ_m exp(-σ²m²/2) cos(mφ)  (eq. 1).

    The first sum is short for a narrow Gaussian, the second for a wide one.
    """
    phi = np.remainder(np.asarray(phi, np.float64) + np.pi, 2 * np.pi) - np.pi
    if sigma < np.pi:
        reach = int(np.ceil(9 * sigma / (2 * np.pi))) + 1
        wraps = (gaussian(phi + 2 * np.pi * n, sigma) for n in range(-reach, reach + 1))
        return sum(wraps, np.zeros_like(phi))
    harmonics = (2 * np.exp(-0.5 * (sigma * m) ** 2) * np.cos(m * phi) for m in range(1, 4))
    return (1 + sum(harmonics, np.zeros_like(phi))) / (2 * np.pi)


def w(z: ArrayLike) -> FloatArray:
    """w(z) = √π e^{z²} (1 + 2z²) erfc(z) − 2z = 4 ∫₀^∞ r² e^{−r²−2rz} dr  (under eq. 6).

    For large z the two printed terms cancel; there w = 8 r₋₁ r₀ r₁ with the all-positive recurrence
    r_{k−1} = 1 / 2(z + (k+1) r_k). For z below −26 the value itself leaves float64:
    use :func:`decayed_w`, which never forms e^{z²}.
    """
    # Imported where it is used: it takes longer to import than all the rest of the library.
    from scipy.special import erfcx

    z = np.asarray(z, np.float64)
    result = np.empty_like(z)
    large = z > _W_SWITCH
    small = z[~large]
    result[~large] = _SQRT_PI * (1 + 2 * small**2) * erfcx(small) - 2 * small
    result[large] = 8 * _ratios(z[large], 3)
    return result


def _ratios(z: FloatArray, count: int) -> FloatArray:
    """r₋₁ r₀ … of ``count`` factors: ∫₀^∞ r^n e^{−r²−2rz} dr is n! times n + 1 of them."""
    ratio = 1 / (2 * (z + np.sqrt(z**2 + _W_TERMS)))
    product = np.ones_like(z)
    for k in range(_W_TERMS, -1, -1):
        ratio = 1 / (2 * (z + (k + 1) * ratio))
        if k < count:
            product *= ratio
    return product


def decayed_w(u: ArrayLike, excess: ArrayLike) -> FloatArray:
    """e^{−P} w(−u) with P = u² + excess, without overflow for any u and any excess ≥ 0.

    The growing factor e^{u²} of w(−u) meets e^{−P} before either is computed:
    e^{−excess} [√π (1 + 2u²)(1 + erf u) + 2u e^{−u²}] for u ≥ 0, and e^{−P} w(|u|) below.
    """
    from scipy.special import erf

    u, excess = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(excess, np.float64))
    decay = np.exp(-excess)
    fall = np.exp(-u * u)
    result = np.empty(u.shape)
    ahead = u >= 0
    forward = u[ahead]
    result[ahead] = _SQRT_PI * (1 + 2 * forward**2) * (1 + erf(forward)) + 2 * forward * fall[ahead]
    result[~ahead] = fall[~ahead] * w(-u[~ahead])
    return np.asarray(decay * result)


def decayed_mean(u: ArrayLike, excess: ArrayLike) -> FloatArray:
    """e^{−P} ∫₀^∞ r e^{−r²+2ru} dr with P = u² + excess: what the slope of :func:`decayed_w` needs.

    d/du w(−u) = 8 ∫ r³ e^{−r²+2ru} dr = 2u w(−u) + 8 ∫ r e^{−r²+2ru} dr, by parts.
    """
    from scipy.special import erf, erfcx

    u, excess = np.broadcast_arrays(np.asarray(u, np.float64), np.asarray(excess, np.float64))
    fall = np.exp(-u * u)
    result = np.empty(u.shape)
    ahead, behind = u >= 0, u < -_W_SWITCH
    between = ~ahead & ~behind
    forward, back = u[ahead], u[between]
    result[ahead] = (_SQRT_PI * forward * (1 + erf(forward)) + fall[ahead]) / 2
    result[between] = fall[between] * (1 + _SQRT_PI * back * erfcx(-back)) / 2
    result[behind] = fall[behind] * _ratios(-u[behind], 2)
    return np.asarray(np.exp(-excess) * result)


def stretched_gaussian(
    offset: ArrayLike, axis: ArrayLike, sigma: ArrayLike, stretch: float
) -> FloatArray:
    """N(offset; 0, σ²I + s² a aᵀ): a Gaussian of width σ, stretched along the vector a.

    Both arrays are (..., 2). Written as [σ²|o|² + s²(a×o)²] / σ²(σ² + s²|a|²), a sum of squares
    that needs no division by |a|: at a = 0 it is k_σ.
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
