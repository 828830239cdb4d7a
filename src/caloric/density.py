"""The density of a patch: how much of which feature is where (eq. 14), on an angular basis.

A pixel with weight ρ (|∇f| times its area) and angle φ is held as its first Fourier coefficients
ρ cos mφ, ρ sin mφ. Every kernel is smooth in φ, so its own series ends soon, and the product with
the density is then exact up to the kernel's neglected tail: the basis adds no error of its own,
where angular bins would.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.kernels import Kernel
from caloric.sampling import SquarePatch

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Measure:
    """Weights and angles of n patches at p points, both (n, p).

    For orientation kernels the weight is |∇f| × area and the angle that of ∇f, from +x towards +y;
    for intensity kernels the weight is the area and the angle 2π f / period.
    """

    weights: Floats
    angles: Floats


def gradients(patches: Floats) -> tuple[Floats, Floats]:
    """∂f/∂x and ∂f/∂y of patches (n, S, S), central differences, per unit of patch coordinates."""
    pitch = SquarePatch(patches.shape[-1]).pitch
    along_y, along_x = np.gradient(patches, pitch, axis=(1, 2))
    return np.asarray(along_x), np.asarray(along_y)


def measure(patches: Floats, kernel: Kernel) -> Measure:
    """What ``kernel`` sees of the patches (n, S, S)."""
    count, size = patches.shape[0], patches.shape[-1]
    area = patches.dtype.type(SquarePatch(size).area())
    if kernel.feature == "intensity":
        angles = patches * patches.dtype.type(2 * np.pi / kernel.period)
        weights = np.full_like(patches, area)
    else:
        gx, gy = gradients(patches)
        weights, angles = np.hypot(gx, gy) * area, np.arctan2(gy, gx)
    return Measure(weights.reshape(count, -1), angles.reshape(count, -1))


def harmonics(density: Measure, order: int) -> Floats:
    """(n, 2·order + 1, p): ρ, then ρ cos mφ and ρ sin mφ for m = 1 to ``order``."""
    weights, angles = density.weights, density.angles
    result = np.empty((len(weights), 2 * order + 1, weights.shape[1]), weights.dtype)
    result[:, 0] = weights
    if order == 0:
        return result
    cos, sin = np.cos(angles), np.sin(angles)
    result[:, 1], result[:, 2] = weights * cos, weights * sin
    for m in range(2, order + 1):
        c, s = result[:, 2 * m - 3], result[:, 2 * m - 2]
        result[:, 2 * m - 1] = c * cos - s * sin
        result[:, 2 * m] = s * cos + c * sin
    return result
