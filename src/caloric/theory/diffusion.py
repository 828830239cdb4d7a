"""Closed forms of the diffused energies g(·; σ) = cost ⋆ k_σ (eq. 13).

The orientation energy is linear in h(β, x; f ∘ τ_θ), so diffusing the energy is diffusing this
density (eq. 19). The functions below return kernels K(β, x; φ, y): the contribution of a pixel at y
with gradient angle φ to the diffused density at (β, x), per unit of |∇f|, for a diffusion centered
at any θ₀. At the identity these are the kernels of :mod:`caloric.kernels`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from caloric.theory.energy import Signal, integrate
from caloric.theory.gaussians import (
    decayed_w,
    gaussian,
    gaussian_2d,
    inner,
    periodic_gaussian,
    stretched_gaussian,
)
from caloric.theory.signals import Bumps
from caloric.types import FloatArray

_IDENTITY = np.eye(2)
_ORIGIN = np.zeros(2)
_TAIL = 6.5  # standard deviations; 1e-10 of the mass of a Gaussian is outside


def intensity_mismatch(
    image: Bumps, template: Signal, theta: float, support: tuple[float, float], sigma: float
) -> float:
    """Return E(θ) ⋆ k_σ = ∫ (f² ⋆ k_σ)(x − θ) − 2 p(x) (f ⋆ k_σ)(x − θ) + p(x)² dx, exactly.

    Blurring the energy over θ differs from blurring the image, because f is squared first.
    """
    blurred, squared = image.blurred(sigma), image.squared().blurred(sigma)

    def integrand(x: FloatArray) -> FloatArray:
        p = template(x)
        return squared(x - theta) - 2 * p * blurred(x - theta) + p * p

    return integrate(integrand, support)


def squared_choice(c: ArrayLike, sigma: float) -> FloatArray:
    """Return c² ⋆ k_σ = c² + σ², elementwise."""
    return np.asarray(c, np.float64) ** 2 + sigma**2


def binary_penalty(c: ArrayLike, sigma: float) -> float:
    """Return Σ c²(1 − c)² ⋆ k_σ = Σ c²(1 − c)² + σ²(6c² − 6c + 1) + 3σ⁴."""
    c = np.asarray(c, np.float64)
    terms = (c * (1 - c)) ** 2 + sigma**2 * (6 * c * c - 6 * c + 1) + 3 * sigma**4
    return float(np.sum(terms))


def choice_penalty(c: ArrayLike, sigma: float) -> float:
    """Return :func:`caloric.theory.energy.choice_penalty` ⋆ k_σ."""
    c = np.asarray(c, np.float64)
    return (float(np.sum(c)) - 1) ** 2 + c.size * sigma**2 + binary_penalty(c, sigma)


def choice_penalty_gradient(c: ArrayLike, sigma: float) -> FloatArray:
    """Return the gradient (n,) of :func:`choice_penalty` with respect to c (n,)."""
    c = np.asarray(c, np.float64)
    binary = 2 * c * (1 - c) * (1 - 2 * c) + sigma**2 * (12 * c - 6)
    return np.asarray(2 * (float(np.sum(c)) - 1) + binary)


def direction(angle: ArrayLike) -> FloatArray:
    """Return v(β) = (cos β, sin β), shape (..., 2)."""
    angle = np.asarray(angle, np.float64)
    return np.stack([np.cos(angle), np.sin(angle)], -1)


def rotate(x: ArrayLike, angle: ArrayLike) -> FloatArray:
    """Return R_α x (..., 2) for vectors x (..., 2) and angles (...), broadcast together."""
    x = np.asarray(x, np.float64)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.stack([cos * x[..., 0] - sin * x[..., 1], sin * x[..., 0] + cos * x[..., 1]], -1)


def log_scales(
    sigma_s: float, nodes: int | None, x: FloatArray, sigma: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return scales e^s and weights, (n,), with ∫ e^s F(e^s) k_σs(s) ds ≈ Σ_i weight_i F(scale_i).

    The factor e^s only shifts the Gaussian: e^s k_σs(s) = e^{σs²/2} k_σs(s − σs²). The nodes are
    equally spaced in s: for Gaussian integrands this rule converges exponentially once the spacing
    is below their width. For the wide pooling of DSP-SIFT it needs far fewer nodes than
    Gauss-Hermite quadrature.

    F(e^s) = k_σ(y − e^s x) has width σ / (e^s |x|) in s. If ``nodes`` is None, the spacing is that
    width at the largest |x|/σ and at a scale 2.5 σs above the middle, which is exact to about 1e-8
    of the peak. At most 8193 nodes are used.
    """
    if sigma_s == 0:
        return np.ones(1), np.ones(1)
    if nodes is None:
        farthest = float(np.max(np.hypot(x[..., 0], x[..., 1]) / sigma, initial=0))
        finest = sigma_s * farthest * float(np.exp(sigma_s**2 + 2.5 * sigma_s))
        nodes = min(int(np.ceil(2 * _TAIL * max(2.0, finest))) | 1, 8193)
    t = np.linspace(-_TAIL, _TAIL, nodes) if nodes > 1 else np.zeros(1)
    mass = np.exp(-0.5 * t * t)
    return np.exp(sigma_s**2 + sigma_s * t), np.exp(sigma_s**2 / 2) * mass / mass.sum()


def linear_scale(x: ArrayLike, y: ArrayLike, sigma: ArrayLike, sigma_s: float) -> FloatArray:
    """Return ∫ a k_σ(y − ax) N(a; 1, σs²) da, the diffusion over a scale that enters linearly::

        N(y; x, σ² I + σs² x xᵀ) (σ² + σs² x·y) / (σ² + σs²|x|²)

    The Gaussian is stretched along x; the fraction is the mean of a given y.
    """
    x, y, sigma = (np.asarray(value, np.float64) for value in (x, y, sigma))
    mean = (sigma**2 + sigma_s**2 * inner(x, y)) / (sigma**2 + sigma_s**2 * inner(x, x))
    return np.asarray(stretched_gaussian(y - x, x, sigma, sigma_s) * mean)


def similarity(
    beta: ArrayLike,
    x: ArrayLike,
    phi: ArrayLike,
    y: ArrayLike,
    *,
    sigma_d: float,
    sigma_r: float,
    alpha: float = 0.0,
    s: float = 0.0,
    b: ArrayLike = _ORIGIN,
) -> FloatArray:
    """Return the kernel of τ(x) = e^s R_α x + b diffused over α and b, exactly::

        e^s k̃_σr(φ − α − β) k_σd(y − e^s R_{φ−β} x − b)

    The paper calls this intractable and replaces R_{φ−β} by R_α, which gives SIFT (Lemma 1). In
    fact the Dirac comb fixes α = φ − β before the convolution (erratum 6).
    """
    beta, phi = np.asarray(beta, np.float64), np.asarray(phi, np.float64)
    rotated = rotate(x, phi - beta)
    offset = np.asarray(y, np.float64) - np.exp(s) * rotated - np.asarray(b, np.float64)
    angular = periodic_gaussian(phi - alpha - beta, sigma_r)
    return np.asarray(np.exp(s) * angular * gaussian_2d(offset, sigma_d))


@dataclass(frozen=True, eq=False)
class Exponent:
    """u, P − u² and τ of a kernel e^{−P} w(−u) / τ³, all of one shape."""

    u: FloatArray
    excess: FloatArray
    tau: FloatArray


def similarity_exponent(
    axis: FloatArray,
    rotated: FloatArray,
    z: FloatArray,
    y: FloatArray,
    half_a: float,
    half_d: float,
) -> Exponent:
    """Return the exponent of τ(x) = Zx + b, with v(φ−β) (..., 2) and R_{φ−β}x (..., 2)::

        τ² = half_a + half_d |x|²,   u = [half_a ⟨z, v(φ−β)⟩ + half_d y·R_{φ−β}x] / τ
        P = half_a |z|² + half_d |y|²

    Here half_a = 1/2σa² and half_d = 1/2σd². With p = (√half_a z, √half_d y) and
    q = (√half_a v(φ−β), √half_d R_{φ−β}x) in R⁴, P − u² is the squared distance of p from the line
    through 0 and q. It is computed in this form to avoid cancellation.
    """
    tau = np.sqrt(half_a + half_d * inner(rotated, rotated))
    u = (half_a * (axis @ z) + half_d * inner(rotated, y)) / tau
    foot = (u / tau)[..., None]
    excess = half_a * ((z - foot * axis) ** 2).sum(-1) + half_d * ((y - foot * rotated) ** 2).sum(
        -1
    )
    return Exponent(u, excess, tau)


def affine_exponent(
    v: FloatArray,
    xv: FloatArray,
    gy: FloatArray,
    pulled: FloatArray,
    sigma_d: ArrayLike,
    sigma_a: float,
) -> Exponent:
    """Return the exponent of τ(x) = Ax + b, with v(β), x·v, ĝ·(y − b) and A^Tĝ::

        τ² = (x·v)²/2σd² + 1/2σa²,   u = [ĝ·(y − b) x·v/σd² + A^Tĝ·v/σa²] / 2τ
        P  = (ĝ·(y − b))²/2σd² + |A^Tĝ|²/2σa²

    P − u² is computed as a sum of squares (Lagrange's identity), which avoids overflow and
    cancellation for any σa.
    """
    sigma_d = np.asarray(sigma_d, np.float64)
    tau2 = xv**2 / (2 * sigma_d**2) + 1 / (2 * sigma_a**2)
    tau = np.sqrt(tau2)
    across = pulled[..., 0] * v[..., 1] - pulled[..., 1] * v[..., 0]
    u = (gy * xv / sigma_d**2 + inner(pulled, v) / sigma_a**2) / (2 * tau)
    spread = (gy * v[..., 0] - xv * pulled[..., 0]) ** 2 + (
        gy * v[..., 1] - xv * pulled[..., 1]
    ) ** 2
    excess = (spread / (sigma_d * sigma_a) ** 2 + across**2 / sigma_a**4) / (4 * tau2)
    return Exponent(u, excess, tau)


def linear_similarity(
    beta: ArrayLike,
    x: ArrayLike,
    phi: ArrayLike,
    y: ArrayLike,
    *,
    sigma_d: float,
    sigma_a: float,
    z: ArrayLike = (1.0, 0.0),
    b: ArrayLike = _ORIGIN,
) -> FloatArray:
    """Return the kernel of τ(x) = Zx + b diffused over a, c and b, with Z = [[a, −c], [c, a]].

    The diffusion is centered at z = (a₀, c₀) and b. The gradient is transformed by Z^T, and
    Z^T ĝ = r v(β) fixes Z = r R_{φ−β}. The remaining integral, of r² times two Gaussians over
    r ≥ 0, is::

        K = e^{−P} w(−u) / (4 τ³ (2πσa²)(2πσd²))

    with u, P and τ of :func:`similarity_exponent`.
    """
    x, z = np.asarray(x, np.float64), np.asarray(z, np.float64)
    y = np.asarray(y, np.float64) - np.asarray(b, np.float64)
    delta = np.asarray(phi, np.float64) - np.asarray(beta, np.float64)
    half_a, half_d = 1 / (2 * sigma_a**2), 1 / (2 * sigma_d**2)
    e = similarity_exponent(direction(delta), rotate(x, delta), z, y, half_a, half_d)
    scale = 4 * e.tau**3 * (2 * np.pi * sigma_a**2) * (2 * np.pi * sigma_d**2)
    return decayed_w(e.u, e.excess) / scale


def affine(
    beta: ArrayLike,
    x: ArrayLike,
    phi: ArrayLike,
    y: ArrayLike,
    *,
    sigma_d: ArrayLike,
    sigma_a: float,
    A: ArrayLike = _IDENTITY,
    b: ArrayLike = _ORIGIN,
) -> FloatArray:
    """Return the kernel of τ(x) = Ax + b diffused over all six parameters (Lemma 2, corrected)::

        K = e^{−P} w(−u) / (8√2 π^{3/2} σd σa² τ³) · k_{√(σd² + σa²|x|²)}(ĝ·(Ax + b − y)⊥)

    with u, P and τ of :func:`affine_exponent`. The last factor and the integral over y are missing
    from the printed Lemma 2 and its box (erratum 10).
    """
    x, A = np.asarray(x, np.float64), np.asarray(A, np.float64)
    y = np.asarray(y, np.float64) - np.asarray(b, np.float64)
    v, g = direction(beta), direction(phi)
    pulled = g @ A
    sigma_d = np.asarray(sigma_d, np.float64)
    e = affine_exponent(v, inner(x, v), inner(g, y), pulled, sigma_d, sigma_a)
    offset = x @ A.T - y
    side = g[..., 0] * offset[..., 1] - g[..., 1] * offset[..., 0]
    width = np.sqrt(sigma_d**2 + sigma_a**2 * inner(x, x))
    constant = 8 * np.sqrt(2) * np.pi**1.5 * sigma_d * sigma_a**2
    value = decayed_w(e.u, e.excess) / (constant * e.tau**3)
    return np.asarray(value * gaussian(side, width))
