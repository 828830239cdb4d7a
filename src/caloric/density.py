"""The density of a patch: how much of which feature is where (eq. 14), on an angular basis.

A pixel with weight ρ (|∇f| times its area) and angle φ is held as its first Fourier coefficients
ρ cos mφ, ρ sin mφ. Every kernel is smooth in φ, so its own series ends soon, and the product with
the density is then exact up to the kernel's neglected tail: the basis adds no error of its own,
where angular bins would.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.frames import sigmas
from caloric.kernels import Kernel
from caloric.sampling import Sampling, SquarePatch
from caloric.scalespace import WIDEST, Ladder
from caloric.theory.gaussians import FloatArray

# OpenCV's resampling addresses rows with 16 bits.
_ROWS = 16_384

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Measure:
    """Weights of n patches at p points, and cosine and sine of the angle φ there, all (n, p).

    For orientation kernels the weight is |∇f| × area and the angle that of ∇f, from +x towards +y;
    for intensity kernels the weight is the area and the angle 2π f / period.
    """

    weights: Floats
    cos: Floats
    sin: Floats

    @property
    def angles(self) -> Floats:
        """φ in (−π/2, 3π/2]: intensities from 0 to 1, at most half a period, lie well inside."""
        return np.asarray(np.arctan2(-self.cos, self.sin) + self.cos.dtype.type(np.pi / 2))


def gradients(patches: Floats) -> tuple[Floats, Floats]:
    """∂f/∂x and ∂f/∂y of patches (n, S, S), central differences, per unit of patch coordinates."""
    pitch = SquarePatch(patches.shape[-1]).pitch
    along_y, along_x = np.gradient(patches, pitch, axis=(1, 2))
    return np.asarray(along_x), np.asarray(along_y)


def measure(patches: Floats, kernel: Kernel) -> Measure:
    """What ``kernel`` sees of the patches (n, S, S)."""
    count, size = patches.shape[0], patches.shape[-1]
    areas = SquarePatch(size).areas().astype(patches.dtype)
    if kernel.feature == "intensity":
        return _of_values(patches.reshape(count, -1), areas, kernel)
    gx, gy = (g.reshape(count, -1) for g in gradients(patches))
    length = np.hypot(gx, gy)
    return Measure(length * areas, *_direction(gx, gy, length))


def _direction(gx: Floats, gy: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Cosine and sine of the gradient's angle; 0 where there is no gradient."""
    inverse = 1 / np.maximum(length, np.finfo(length.dtype).tiny)
    return gx * inverse, gy * inverse


def _of_values(values: Floats, areas: Floats, kernel: Kernel) -> Measure:
    angles = values * values.dtype.type(2 * np.pi / kernel.period)
    return Measure(np.broadcast_to(areas, values.shape), np.cos(angles), np.sin(angles))


@lru_cache(maxsize=16)
def _in_sigmas(sampling: Sampling) -> tuple[FloatArray, FloatArray, NDArray[np.float32]]:
    """Offsets (2, p) and smoothing (p,) in σ of a frame, and areas (p,): once a sampling."""
    width = sampling.half_width
    areas = sampling.areas().astype(np.float32)
    return width * sampling.points().T, width * sampling.smoothing(), areas


def measure_frames(
    ladder: Ladder, maps: FloatArray, sampling: Sampling, kernel: Kernel, power: float = 1.0
) -> Measure:
    """What ``kernel`` sees around frames, ``maps`` (n, 2, 3), at the points of a sampling; float32.

    The frame is u ↦ A u + t and the image in its coordinates f ∘ τ, so a gradient is A^T ∇f: it
    turns, scales and shears with the frame. Beyond the image there is nothing: no gradient, no
    intensity. The weight is area · (smoothing · |A^T ∇f|)^power, with the smoothing relative to the
    first point's: the theory has power 1, and for a sampling of one smoothing the factor is 1.
    Levels are smoothed alike in all directions; a frame that is not round is read at √|det A| times
    its sampling's smoothing, too sharp along its axis and too smooth across.
    """
    offsets, smoothing, areas = _in_sigmas(sampling)
    places = maps[:, :, :2] @ offsets + maps[:, :, 2:]
    x, y = places[:, 0], places[:, 1]
    levels = ladder.nearest(sigmas(maps)[:, None] * smoothing)
    if kernel.feature == "intensity":
        h, w = ladder.size
        inside = (x >= -0.5) & (x <= w - 0.5) & (y >= -0.5) & (y <= h - 0.5)
        values = _read(ladder, levels, x, y, "pixels")[..., 0]
        return _of_values(values, areas * inside, kernel)
    g = _read(ladder, levels, x, y, "gradient")
    shape = maps[:, :, :2].astype(np.float32)
    gx = g[..., 0] * shape[:, None, 0, 0] + g[..., 1] * shape[:, None, 1, 0]
    gy = g[..., 0] * shape[:, None, 0, 1] + g[..., 1] * shape[:, None, 1, 1]
    relative = (smoothing / smoothing[0]).astype(np.float32)
    length = np.hypot(gx, gy)
    weights = length * relative if power == 1 else (length * relative) ** np.float32(power)
    return Measure(weights * areas, *_direction(gx, gy, length))


def _read(
    ladder: Ladder,
    levels: NDArray[np.intp],
    x: FloatArray,
    y: FloatArray,
    what: Literal["pixels", "gradient"],
) -> NDArray[np.float32]:
    """Bilinear samples (n, p, channels) at (x, y), each from its own level of the ladder."""
    channels = 2 if what == "gradient" else 1
    result = np.zeros((levels.size, channels), np.float32)
    flat = levels.ravel()
    x, y = np.ascontiguousarray(x).ravel(), np.ascontiguousarray(y).ravel()
    order = np.argsort(flat.astype(np.uint8), kind="stable")  # small keys are sorted by radix
    ends = np.searchsorted(flat[order], np.arange(len(ladder.levels) + 1))
    for level, start, stop in zip(ladder.levels, ends, ends[1:], strict=False):
        if start == stop:
            continue
        some = order[start:stop]
        # OpenCV's resampling takes a picture, not a list: rows of 256, the last one filled up.
        rows = -(-len(some) // 256)
        grid = np.full((2, rows * 256), -9.0, np.float32)
        grid[0, : len(some)] = (x[some] - level.offset) / level.step
        grid[1, : len(some)] = (y[some] - level.offset) / level.step
        source = level.gradient if what == "gradient" else level.pixels
        border = cv2.BORDER_CONSTANT if what == "gradient" else cv2.BORDER_REPLICATE
        if max(source.shape) > WIDEST:
            places = grid[:, : len(some)]
            result[some] = _bilinear(source, places[0], places[1], zero=what == "gradient")
            continue
        for top in range(0, rows, _ROWS):
            part = grid[:, top * 256 : (top + _ROWS) * 256].reshape(2, -1, 256)
            read = cv2.remap(source, part[0], part[1], cv2.INTER_LINEAR, borderMode=border)
            there = some[top * 256 : (top + _ROWS) * 256]
            result[there] = read.reshape(-1, channels)[: len(there)]
    return result.reshape(*levels.shape, channels)


def _bilinear(
    source: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.float32], zero: bool
) -> NDArray[np.float32]:
    """Samples (k, channels) of an image too large for OpenCV's resampling; 0 or the rim outside."""
    h, w = source.shape[:2]
    left, top = np.floor(x).astype(np.intp), np.floor(y).astype(np.intp)
    total = np.zeros((len(x), source[0, 0].size), np.float32)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        i, j = top + row, left + column
        weight = (1 - np.abs(x - j)) * (1 - np.abs(y - i))
        if zero:
            weight = weight * ((i >= 0) & (i < h) & (j >= 0) & (j < w))
        pixels = source[np.clip(i, 0, h - 1), np.clip(j, 0, w - 1)].reshape(len(x), -1)
        total += weight[:, None] * pixels
    return total


def harmonics(density: Measure, order: int) -> Floats:
    """(n, 2·order + 1, p): ρ, then ρ cos mφ and ρ sin mφ for m = 1 to ``order``."""
    weights, cos, sin = density.weights, density.cos, density.sin
    result = np.empty((len(weights), 2 * order + 1, weights.shape[1]), weights.dtype)
    result[:, 0] = weights
    if order == 0:
        return result
    result[:, 1], result[:, 2] = weights * cos, weights * sin
    for m in range(2, order + 1):
        c, s = result[:, 2 * m - 3], result[:, 2 * m - 2]
        result[:, 2 * m - 1] = c * cos - s * sin
        result[:, 2 * m] = s * cos + c * sin
    return result
