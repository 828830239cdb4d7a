"""Which shape: frames stretched until the gradients inside them are the same in all directions.

Baumberg's iteration: the second-moment matrix M of the gradients in a frame, A ← A M^{-1/2}, until
M is round. σ = √|det A| stays what it was.
"""

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import density
from caloric.descriptor.sampling import SquarePatch
from caloric.frames import sigmas
from caloric.image.scalespace import Ladder
from caloric.kernels.sift import Sift
from caloric.theory.gaussians import FloatArray, gaussian_2d

SAMPLING = SquarePatch(size=20, reach=4.5, blur=0.35)
WINDOW = 1.5 / 4.5
ANY = Sift(sigma_d=1.0, sigma_r=1.0)
STEPS = 10
ROUND = 0.05  # anisotropy below which a frame is done
LONGEST = 6.0  # ratio of axes beyond which a frame is an edge, and stays as it was
_BLOCK = 256


def second_moments(ladder: Ladder, maps: FloatArray) -> FloatArray:
    """(n, 2, 2): the Gaussian-weighted mean of ∇f ∇f^T in each frame's own coordinates."""
    window = gaussian_2d(SAMPLING.points(), WINDOW)
    result = np.empty((len(maps), 2, 2))
    for start in range(0, len(maps), _BLOCK):
        part = slice(start, start + _BLOCK)
        seen = density.measure_frames(ladder, maps[part], SAMPLING, ANY)
        mass = window * seen.weights.astype(np.float64) ** 2
        cos, sin = seen.cos.astype(np.float64), seen.sin.astype(np.float64)
        total = mass.sum(1)
        even, odd = (mass * (cos**2 - sin**2)).sum(1), 2 * (mass * cos * sin).sum(1)
        rows = [np.stack([total + even, odd], -1), np.stack([odd, total - even], -1)]
        result[part] = np.stack(rows, -2) / 2
    return result


def _anisotropy(moments: FloatArray) -> FloatArray:
    """0 for a round matrix, towards 1 for a line."""
    trace = moments[:, 0, 0] + moments[:, 1, 1]
    spread = np.hypot(moments[:, 0, 0] - moments[:, 1, 1], 2 * moments[:, 0, 1])
    return np.divide(spread, trace, out=np.zeros_like(trace), where=trace > 0)


def adapt(ladder: Ladder, maps: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """The adapted frames (n, 2, 3), upright, and which of them converged.

    A frame that does not settle, or grows longer than 6 : 1, is given back as it came.
    """
    sigma = sigmas(maps)
    shapes = np.tile(np.eye(2), (len(maps), 1, 1))
    settled = np.zeros(len(maps), bool)
    active = np.arange(len(maps))
    for _ in range(STEPS):
        if len(active) == 0:
            break
        current = np.concatenate(
            [sigma[active, None, None] * shapes[active], maps[active, :, 2:]], -1
        )
        moments = second_moments(ladder, current)
        done = _anisotropy(moments) < ROUND
        settled[active[done]] = True
        moments, active = moments[~done], active[~done]
        values, vectors = np.linalg.eigh(moments)
        usable = values[:, 0] > 1e-12 * values[:, 1]
        values, vectors, active = values[usable], vectors[usable], active[usable]
        # M^{-1/2}, of determinant 1; the product is made symmetric again so that it stays upright.
        scale = (values[:, 0] * values[:, 1])[:, None] ** 0.25 / np.sqrt(values)
        step = np.einsum("nij,nj,nkj->nik", vectors, scale, vectors)
        product = shapes[active] @ step
        u, s, _ = np.linalg.svd(product)
        shapes[active] = np.einsum("nij,nj,nkj->nik", u, s, u)
        active = active[s[:, 0] / s[:, 1] < LONGEST]
    good = settled & (np.linalg.cond(shapes) < LONGEST) if len(maps) else settled
    shapes[~good] = np.eye(2)
    return np.concatenate([sigma[:, None, None] * shapes, maps[:, :, 2:]], -1), good
