"""The exact diffused energy of two densities, its gradient, and alignment by minimizing it.

    d(θ; σ) = −∬ dh_p(β, x) dh_f(φ, y) K(β, x; φ, y | θ, σ)      (eq. 15, diffused as in eq. 19)

with K of :mod:`caloric.theory.diffusion` at θ, in closed form for τ(x) = Zx + b (rotation, scale
and translation) and for τ(x) = Ax + b. The sums over all pairs of points are exact but slow.
:func:`caloric.align` runs the same algorithm on sampled fields, which is fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from caloric.theory import diffusion
from caloric.theory.continuation import Path, continuation
from caloric.theory.diffusion import Exponent
from caloric.theory.energy import OrientationDensity
from caloric.theory.gaussians import (
    decayed_mean,
    decayed_w,
    gaussian,
    gaussian_2d,
    inner,
    periodic_gaussian,
)
from caloric.types import FloatArray


@dataclass(frozen=True, eq=False)
class Slope:
    """An energy and its gradient by the parameters."""

    energy: float
    gradient: FloatArray


def _with_slopes(
    e: Exponent, u_slopes: FloatArray, p_slopes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return e^{−P} w(−u) (n, N) and its derivatives (p, n, N), given those of u and P::

    e^{−P} [w (2u u' − P') + 8 u' ∫ r e^{−r²+2ru} dr]
    """
    value, mean = decayed_w(e.u, e.excess), decayed_mean(e.u, e.excess)
    return value, value * (2 * e.u * u_slopes - p_slopes) + 8 * mean * u_slopes


def similarity(
    image: OrientationDensity, template: OrientationDensity, point: FloatArray, sigma: float
) -> Slope:
    """Return d(θ; σ) and its gradient for τ(x) = [[a, −c], [c, a]] x + b, all four diffused by σ.

    θ = (a, c, b₁, b₂).
    """
    z, y = point[:2], image.points - point[2:]
    x = template.points[:, None]
    delta = image.angles - template.angles[:, None]
    rotated, axis = diffusion.rotate(x, delta), diffusion.direction(delta)
    half = 1 / (2 * sigma**2)
    e = diffusion.similarity_exponent(axis, rotated, z, y, half, half)
    components = np.concatenate([np.moveaxis(axis, -1, 0), -np.moveaxis(rotated, -1, 0)])
    u_slopes = half * components / e.tau
    flat = np.zeros_like(e.u)
    p_slopes = 2 * half * np.stack([flat + z[0], flat + z[1], flat - y[:, 0], flat - y[:, 1]])
    value, slope = _with_slopes(e, u_slopes, p_slopes)
    constant = 4 * e.tau**3 * (2 * np.pi * sigma**2) ** 2
    weight = -template.weights[:, None] * image.weights / constant
    return Slope(float((weight * value).sum()), np.einsum("ij,pij->p", weight, slope))


def affine(
    image: OrientationDensity, template: OrientationDensity, point: FloatArray, sigma: float
) -> Slope:
    """Return d(θ; σ) and its gradient for τ(x) = Ax + b, all six parameters diffused by σ.

    θ = (A₁₁, A₁₂, A₂₁, A₂₂, b₁, b₂).
    """
    A, y = point[:4].reshape(2, 2), image.points - point[4:]
    x = template.points[:, None]
    v, g = diffusion.direction(template.angles)[:, None], diffusion.direction(image.angles)
    pulled = g @ A
    half = 1 / (2 * sigma**2)
    xv, gy = inner(x, v), inner(g, y)
    e = diffusion.affine_exponent(v, xv, gy, pulled, sigma, sigma)
    flat = np.zeros_like(e.u)
    u_slopes = half * np.stack(
        [flat + g[:, i] * v[..., j] for i in (0, 1) for j in (0, 1)]
        + [-g[:, i] * xv for i in (0, 1)]
    ) / e.tau  # fmt: skip
    p_slopes = 2 * half * np.stack(
        [flat + g[:, i] * pulled[:, j] for i in (0, 1) for j in (0, 1)]
        + [flat - gy * g[:, i] for i in (0, 1)]
    )  # fmt: skip
    value, slope = _with_slopes(e, u_slopes, p_slopes)
    offset = x @ A.T - y
    side = g[:, 0] * offset[..., 1] - g[:, 1] * offset[..., 0]
    width2 = sigma**2 * (1 + inner(x, x))
    lateral = gaussian(side, np.sqrt(width2))
    normal = np.stack([-g[:, 1], g[:, 0]])
    side_slopes = np.stack(
        [flat + normal[i] * x[..., j] for i in (0, 1) for j in (0, 1)]
        + [flat + normal[i] for i in (0, 1)]
    )
    constant = 8 * np.sqrt(2) * np.pi**1.5 * sigma**3 * e.tau**3
    weight = -template.weights[:, None] * image.weights * lateral / constant
    slope = slope - value * side / width2 * side_slopes
    return Slope(float((weight * value).sum()), np.einsum("ij,pij->p", weight, slope))


def translation(
    image: OrientationDensity, template: OrientationDensity, point: FloatArray, sigma: float
) -> Slope:
    """Return d(θ; σ) and its gradient for τ(x) = x + b at θ = b, with b and orientations diffused.

    A shift does not rotate gradients, and the product of two Dirac combs is undefined. Therefore
    orientations are diffused by k̃_σ, as in SIFT (Lemma 1).
    """
    offset = image.points - template.points[:, None] - point
    angular = periodic_gaussian(image.angles - template.angles[:, None], sigma)
    mass = template.weights[:, None] * image.weights * angular * gaussian_2d(offset, sigma)
    return Slope(-float(mass.sum()), -np.einsum("ij,ijk->k", mass, offset) / sigma**2)


def widest_shift(image: OrientationDensity, template: OrientationDensity) -> FloatArray:
    """Return the minimizer (2,) of :func:`translation` for σ → ∞: the centers of mass coincide.

    In this limit all pairs of points have the same weight, and the energy is a parabola. A template
    in a larger image is then always moved to the image's center of mass. For this reason
    :mod:`caloric.alignment.search` compares all positions.
    """
    centers = [(d.weights @ d.points) / d.weights.sum() for d in (image, template)]
    return np.asarray(centers[0] - centers[1])


ENERGIES = {"translation": translation, "similarity": similarity, "affine": affine}


def align(
    image: OrientationDensity,
    template: OrientationDensity,
    sigmas: Sequence[float],
    start: FloatArray,
    *,
    model: str = "similarity",
    bounds: Sequence[tuple[float, float]] | None = None,
) -> Path:
    """Return the path of Algorithm 1 on the exact diffused energy from a starting point (p,)."""
    energy = partial(ENERGIES[model], image, template)
    return continuation(
        lambda point, sigma: energy(point, sigma).energy,
        sigmas,
        start[None],
        gradient=lambda point, sigma: energy(point, sigma).gradient,
        bounds=bounds,
    )
