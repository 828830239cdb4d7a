"""Affine shape adaptation: frames are stretched until the gradients inside them are isotropic.

Baumberg's iteration computes the second-moment matrix M of the gradients in a frame and sets
A ← A M^{-1/2}, until M is a multiple of the identity. σ = √|det A| does not change. The final shape
is raised to the power STRENGTH.
"""

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import density
from caloric.descriptor.sampling import SquarePatch
from caloric.frames import sigmas
from caloric.image.scalespace import Ladder
from caloric.kernels.sift import Sift
from caloric.theory.gaussians import gaussian_2d
from caloric.types import ArrayOrTensor, FloatArray

SAMPLING = SquarePatch(size=20, reach=4.5, blur=0.35)
WINDOW = 1.5 / 4.5
ANY = Sift(sigma_d=1.0, sigma_r=1.0)  # selects gradients; its widths are not used
STEPS = 10
ROUND = 0.05  # anisotropy below which a frame has converged
# Exponent of the final shape. Estimates are noisy: on photographs, fountain-P11 and wide baselines
# a partially adapted shape yields more correct matches than a fully adapted one.
STRENGTH = 0.75
LONGEST = 6.0  # ratio of axes above which a frame is on an edge and stays circular
_BLOCK = 256


def second_moments(ladder: Ladder, maps: FloatArray) -> FloatArray:
    """Return xx, xy, yy (n, 3) of the Gaussian-weighted mean of ∇f ∇f^T in each frame."""
    window = gaussian_2d(SAMPLING.points(), WINDOW)
    result = np.empty((len(maps), 3))
    for start in range(0, len(maps), _BLOCK):
        part = slice(start, start + _BLOCK)
        measured = density.measure_frames(ladder, maps[part], SAMPLING, ANY)
        weights = measured.weights.astype(np.float64)
        cos, sin = (weights * v.astype(np.float64) for v in (measured.cos, measured.sin))
        result[part] = np.stack(moments(window, weights, cos, sin), -1)
    return result


# The arithmetic below works on arrays and on tensors. A symmetric matrix is given as xx, xy, yy.


def moments(
    window: ArrayOrTensor, weights: ArrayOrTensor, cos: ArrayOrTensor, sin: ArrayOrTensor
) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
    """Return xx, xy, yy (n,) of Σ window ∇f ∇f^T, from |∇f| and its two components (n, p)."""
    total = (window * weights * weights).sum(1)
    even, odd = (window * (cos * cos - sin * sin)).sum(1), (window * cos * sin).sum(1)
    return (total + even) / 2, odd, (total - even) / 2


def axes(
    xx: ArrayOrTensor, xy: ArrayOrTensor, yy: ArrayOrTensor
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return the larger and the smaller eigenvalue (n,)."""
    mean, radius = (xx + yy) / 2, (((xx - yy) / 2) ** 2 + xy * xy) ** 0.5
    return mean + radius, mean - radius


def anisotropy(xx: ArrayOrTensor, xy: ArrayOrTensor, yy: ArrayOrTensor) -> ArrayOrTensor:
    """Return (λ₁ − λ₂) / (λ₁ + λ₂) (n,), which is 0 for isotropic matrices and for zero."""
    large, small = axes(xx, xy, yy)
    trace = large + small
    return (large - small) / (trace + (trace <= 0))


def unit_power(
    xx: ArrayOrTensor, xy: ArrayOrTensor, yy: ArrayOrTensor, exponent: float
) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
    """Return a power of a positive matrix, scaled to determinant 1, as xx, xy, yy."""
    large, small = axes(xx, xy, yy)
    half, radius = (xx - yy) / 2, (large - small) / 2
    stretch = (large / small.clip(1e-30, None)) ** (exponent / 2)  # along the longer axis
    mid, swing = (stretch + 1 / stretch) / 2, (stretch - 1 / stretch) / 2
    unit = radius + (radius == 0)
    return mid + half / unit * swing, xy / unit * swing, mid - half / unit * swing


def adapted_shape(
    shape: tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor],
    moment: tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor],
) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
    """Return the next shape (P P^T)^{1/2} with P = S M^{-1/2}.

    It is the symmetric matrix that differs from P by a rotation, so the frame stays upright.
    """
    a, b, c = shape
    d, e, f = unit_power(*moment, -0.5)
    p, q, r, s = a * d + b * e, a * e + b * f, b * d + c * e, b * e + c * f
    return unit_power(p * p + q * q, p * r + q * s, r * r + s * s, 0.5)


def too_long(xx: ArrayOrTensor, xy: ArrayOrTensor, yy: ArrayOrTensor) -> ArrayOrTensor:
    """Return whether the ratio of axes is at least ``LONGEST``, (n,)."""
    large, small = axes(xx, xy, yy)
    return large >= LONGEST * small


def singular(xx: ArrayOrTensor, xy: ArrayOrTensor, yy: ArrayOrTensor) -> ArrayOrTensor:
    """Return whether a moment matrix is singular, (n,)."""
    trace = xx + yy
    return xx * yy - xy * xy <= 1e-12 * trace * trace


def adapt(ladder: Ladder, maps: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the adapted upright frames (n, 2, 3), and a mask (n,) of those that converged.

    A frame that does not converge, or whose ratio of axes reaches 6, becomes circular.
    """
    sigma = sigmas(maps)
    shapes = np.tile([1.0, 0.0, 1.0], (len(maps), 1))
    converged = np.zeros(len(maps), bool)
    active = np.arange(len(maps))
    for _ in range(STEPS):
        if len(active) == 0:
            break
        current = _with_shapes(maps[active], sigma[active], shapes[active])
        moment = second_moments(ladder, current)
        isotropic = anisotropy(*moment.T) < ROUND
        converged[active[isotropic]] = True
        usable = ~isotropic & ~singular(*moment.T)
        active, moment = active[usable], moment[usable]
        shape = adapted_shape(tuple(shapes[active].T), tuple(moment.T))
        shapes[active] = np.stack(shape, -1)
        active = active[~too_long(*shape)]
    good = converged & ~too_long(*shapes.T)
    shapes[~good] = [1.0, 0.0, 1.0]
    a, b, c = shapes.T
    shapes = np.stack(unit_power(a, b, c, STRENGTH), -1)
    return _with_shapes(maps, sigma, shapes), good


def _with_shapes(maps: FloatArray, sigma: FloatArray, shapes: FloatArray) -> FloatArray:
    """Return upright frames (n, 2, 3) of scale σ with shapes (n, 3) of determinant 1."""
    a, b, c = (sigma * shapes.T)[..., None]
    rows = np.stack([np.concatenate([a, b], 1), np.concatenate([b, c], 1)], 1)
    return np.concatenate([rows, maps[:, :, 2:]], -1)
