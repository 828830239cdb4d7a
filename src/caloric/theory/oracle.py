"""Slow, independent computation of the integrals that define the kernels, for tests and errata.

No code is shared with the closed forms: densities come from :mod:`scipy.stats`, integrals are sums
on fine grids, and the Monte Carlo method transforms an image at random and computes histograms of
its gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from caloric.types import FloatArray

_REACH = 10.0  # standard deviations


@dataclass(frozen=True, eq=False)
class Pair:
    """A descriptor entry (β, x) and a pixel (φ, y), with x and y of shape (2,)."""

    beta: float
    x: FloatArray
    phi: float
    y: FloatArray


def _normal(x: FloatArray, sigma: float) -> FloatArray:
    return np.asarray(norm.pdf(x, scale=sigma))


def _normal_2d(x: FloatArray, sigma: float) -> FloatArray:
    return np.asarray(norm.pdf(x[..., 0], scale=sigma) * norm.pdf(x[..., 1], scale=sigma))


def _line(center: float, sigma: float, nodes: int) -> tuple[FloatArray, float]:
    """Return equally spaced nodes over ±10σ, and their spacing."""
    grid = np.linspace(center - _REACH * sigma, center + _REACH * sigma, nodes)
    return grid, float(grid[1] - grid[0])


def wrapped(phi: float, sigma: float) -> float:
    """Return the periodic Gaussian by its defining sum, with 200 terms on each side."""
    return float(np.sum(_normal(phi + 2 * np.pi * np.arange(-200.0, 201.0), sigma)))


def sift(at: Pair, *, sigma_d: float, sigma_r: float) -> float:
    """Return eq. 2 as printed."""
    return wrapped(at.beta - at.phi, sigma_r) * float(_normal_2d(at.y - at.x, sigma_d))


def _scale_integral(
    outer: Callable[[FloatArray], FloatArray],
    offset: Callable[[FloatArray], FloatArray],
    center: float,
    sigma_d: float,
    sigma_s: float,
) -> float:
    s, step = _line(center, sigma_s, 40_001)
    values = outer(s) * _normal_2d(offset(s[:, None]), sigma_d) * _normal(s - center, sigma_s)
    return float(values.sum() * step)


def dsp(at: Pair, *, sigma_d: float, sigma_r: float, sigma_s: float) -> float:
    """Return k̃ · ∫ e^s k_σd(y − e^s x) k_σs(s) ds, the log-scale diffusion of eq. 22."""
    integral = _scale_integral(np.exp, lambda s: at.y - np.exp(s) * at.x, 0.0, sigma_d, sigma_s)
    return wrapped(at.beta - at.phi, sigma_r) * integral


def dsp_inner(at: Pair, *, sigma_d: float, sigma_r: float, sigma_s: float) -> float:
    """Return k̃ · ∫ e^s k_σd(y − (1+s)x) k_σs(s) ds, with only the inner exponential linearized."""
    integral = _scale_integral(np.exp, lambda s: at.y - (1 + s) * at.x, 0.0, sigma_d, sigma_s)
    return wrapped(at.beta - at.phi, sigma_r) * integral


def dsp_both(at: Pair, *, sigma_d: float, sigma_r: float, sigma_s: float) -> float:
    """Return k̃ · ∫ (1+s) k_σd(y − (1+s)x) k_σs(s) ds, with both exponentials linearized."""
    integral = _scale_integral(
        lambda s: 1 + s, lambda s: at.y - (1 + s) * at.x, 0.0, sigma_d, sigma_s
    )
    return wrapped(at.beta - at.phi, sigma_r) * integral


def dsp_domain(at: Pair, *, sigma_d: float, sigma_r: float, sigma_s: float) -> float:
    """Return k̃ · ∫ c k_σd(cy − x) N(c; 1, σs²) dc, with the whole patch rescaled by 1/c."""
    integral = _scale_integral(lambda c: c, lambda c: c * at.y - at.x, 1.0, sigma_d, sigma_s)
    return wrapped(at.beta - at.phi, sigma_r) * integral


def similarity_bin(
    at: Pair, half: float, *, sigma_d: float, sigma_r: float, sigma_s: float = 0.0
) -> float:
    """Return the mass that a pixel (φ, y) adds to the bin β ± half at x, over all (α, s, b).

    After a rotation by α the gradient has the direction φ − α, so the mass is an integral over an
    interval of α and its periodic copies, and no Dirac comb is needed.
    """
    nodes, weights = np.polynomial.legendre.leggauss(200)
    s, step = _line(0.0, sigma_s, 1_001) if sigma_s else (np.zeros(1), 1.0)
    prior = _normal(s, sigma_s) if sigma_s else np.ones(1)
    total = 0.0
    for wrap in range(-4, 5):
        alpha = at.phi - at.beta + half * nodes + 2 * np.pi * wrap
        rotated = _rotations(alpha) @ at.x
        moved = np.exp(s)[None, :, None] * rotated[:, None, :]
        inner = (np.exp(s) * prior * _normal_2d(at.y - moved, sigma_d)).sum(1) * step
        total += float(half * (weights * _normal(alpha, sigma_r) * inner).sum())
    return total


def heat(at: Pair, *, sigma_d: float, sigma_a: float) -> float:
    """Return the mean over A ~ N(I, σa²) of |A^Tĝ| δ(∠A^Tĝ − β) k_σd(y − Ax), as a triple sum.

    A has two rows in the basis of the gradient: p = A^Tĝ, which must be r v(β) (area element
    r dr dβ), and m = A^Tĝ⊥, which is unconstrained. The sum is over r, m₁ and m₂.
    """
    v = np.array([np.cos(at.beta), np.sin(at.beta)])
    g = np.array([np.cos(at.phi), np.sin(at.phi)])
    normal = np.array([-g[1], g[0]])
    length = float(np.hypot(*at.x))
    fine = min(sigma_a, sigma_d / max(length, 1e-12)) / 3
    count = int(np.ceil(2 * _REACH * sigma_a / fine)) | 1
    r, step_r = np.linspace(0, 1 + _REACH * sigma_a, 2 * count + 1, retstep=True)
    m1, step_1 = _line(float(normal[0]), sigma_a, count)
    m2, step_2 = _line(float(normal[1]), sigma_a, count)
    row = r[:, None] * v
    weight_r = r * r * _normal_2d(row - g, sigma_a)
    weight_r[0] /= 2
    along = r * float(v @ at.x)
    across = (m1[:, None] * at.x[0] + m2[None, :] * at.x[1]).ravel()
    weight_m = (
        _normal(m1 - normal[0], sigma_a)[:, None] * _normal(m2 - normal[1], sigma_a)
    ).ravel()
    total = 0.0
    for i in np.flatnonzero(weight_r > weight_r.max() * 1e-18):
        offset = at.y - along[i] * g - across[:, None] * normal
        total += float(weight_r[i] * (weight_m @ _normal_2d(offset, sigma_d)))
    return total * float(step_r) * step_1 * step_2


def distribution_field(at: Pair, *, sigma_d: float, sigma_l: float) -> float:
    """Return eq. 8 as printed."""
    return float(norm.pdf(at.beta, at.phi, sigma_l)) * float(_normal_2d(at.y - at.x, sigma_d))


def distribution_field_heat(at: Pair, *, sigma_d: float, sigma_a: float, sigma_l: float) -> float:
    """Return k_σl · the mean over A ~ N(I, σa²) of k_σd(y − Ax), summed over the entries of A."""
    length = float(np.hypot(*at.x))
    fine = min(sigma_a, sigma_d / max(length, 1e-12)) / 3
    count = int(np.ceil(2 * _REACH * sigma_a / fine)) | 1
    mean = 1.0
    for row in range(2):
        first, step_1 = _line(float(row == 0), sigma_a, count)
        second, step_2 = _line(float(row == 1), sigma_a, count)
        prior = _normal(first - first.mean(), sigma_a)[:, None] * _normal(
            second - second.mean(), sigma_a
        )
        mapped = first[:, None] * at.x[0] + second * at.x[1]
        mean *= float((prior * _normal(at.y[row] - mapped, sigma_d)).sum() * step_1 * step_2)
    return float(norm.pdf(at.beta, at.phi, sigma_l)) * mean


@dataclass(frozen=True)
class Blobs:
    """An image of round Gaussians, f(y) = Σ a_i e^{−|y−m_i|²/2s_i²}, and its gradient."""

    heights: tuple[float, ...]
    centers: tuple[tuple[float, float], ...]
    widths: tuple[float, ...]

    def value(self, y: FloatArray) -> FloatArray:
        """Return f (...) at y (..., 2)."""
        result = np.zeros(y.shape[:-1])
        for a, m, s in zip(self.heights, self.centers, self.widths, strict=True):
            result += a * np.exp(-((y - np.array(m)) ** 2).sum(-1) / (2 * s * s))
        return result

    def gradient(self, y: FloatArray) -> FloatArray:
        """Return ∇f (..., 2) at y (..., 2)."""
        result = np.zeros(y.shape)
        for a, m, s in zip(self.heights, self.centers, self.widths, strict=True):
            offset = y - np.array(m)
            bump = a * np.exp(-(offset**2).sum(-1) / (2 * s * s))
            result -= (bump / (s * s))[..., None] * offset
        return result


@dataclass(frozen=True, eq=False)
class _Moves:
    """n random transformations of a point: mapped points, maps of gradients, and weights."""

    points: FloatArray
    gradient_map: FloatArray | None
    weight: FloatArray


def _rotations(alpha: FloatArray) -> FloatArray:
    cos, sin = np.cos(alpha), np.sin(alpha)
    return np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)


def _move(
    name: str, x: FloatArray, rng: np.random.Generator, n: int, p: dict[str, float]
) -> _Moves:
    """Return n samples of the transformation over which the kernel ``name`` averages."""
    b = p["sigma_d"] * rng.standard_normal((n, 2))
    ones = np.ones(n)
    if name in ("sift", "distribution-field"):
        return _Moves(x + b, None, ones)
    if name in ("heat", "distribution-field-heat"):
        A = np.eye(2) + p["sigma_a"] * rng.standard_normal((n, 2, 2))
        return _Moves(A @ x + b, np.swapaxes(A, 1, 2), ones)
    s = p.get("sigma_s", 0.0) * rng.standard_normal(n)
    if name == "similarity":
        Z = np.exp(s)[:, None, None] * _rotations(p["sigma_r"] * rng.standard_normal(n))
        return _Moves(Z @ x + b, np.swapaxes(Z, 1, 2), ones)
    if name == "dsp":
        return _Moves(np.exp(s)[:, None] * x + b, None, np.exp(s))
    if name == "dsp-inner":
        return _Moves((1 + s)[:, None] * x + b, None, np.exp(s))
    if name == "dsp-both":
        return _Moves((1 + s)[:, None] * x + b, None, 1 + s)
    if name == "dsp-domain":
        return _Moves((x + b) / (1 + s)[:, None], None, 1 / (1 + s))
    raise ValueError(f"no oracle for {name!r}")


def monte_carlo(
    name: str,
    image: Blobs,
    x: FloatArray,
    edges: FloatArray,
    samples: int,
    seed: int,
    **p: float,
) -> tuple[FloatArray, FloatArray]:
    """Return the mean mass per bin at x over random transformations, and its standard error.

    The bins between ``edges`` are directions in [0, 2π) for orientation kernels and levels for
    distribution fields. The kernels of the SIFT and DSP family do not rotate x with the gradient;
    for them the rotation is noise added to the angle, which is the approximation of Lemma 1.
    """
    rng = np.random.default_rng(seed)
    bins = len(edges) - 1
    total, squares = np.zeros(bins), np.zeros(bins)
    block = 250_000
    for start in range(0, samples, block):
        n = min(block, samples - start)
        moves = _move(name, x, rng, n, p)
        if "sigma_l" in p:
            feature = image.value(moves.points) + p["sigma_l"] * rng.standard_normal(n)
            mass = moves.weight
        else:
            g = image.gradient(moves.points)
            if moves.gradient_map is not None:
                g = np.einsum("nij,nj->ni", moves.gradient_map, g)
            angle = np.arctan2(g[:, 1], g[:, 0])
            if moves.gradient_map is None:
                angle = angle + p["sigma_r"] * rng.standard_normal(n)
            feature = np.remainder(angle, 2 * np.pi)
            mass = moves.weight * np.hypot(g[:, 0], g[:, 1])
        total += np.histogram(feature, edges, weights=mass)[0]
        squares += np.histogram(feature, edges, weights=mass**2)[0]
    mean = total / samples
    error = np.sqrt(np.maximum(squares / samples - mean**2, 0) / samples)
    return mean, error
