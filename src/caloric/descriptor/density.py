"""The gradient-orientation density of a patch (eq. 14), in an angular Fourier basis.

A pixel with weight ρ (|∇f| times its area) and angle φ is represented by its first Fourier
coefficients ρ cos mφ, ρ sin mφ. Every kernel is smooth in φ, so its Fourier series is short, and
the product with the density is exact up to the neglected tail of the kernel. Angular bins would
add a quantization error.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.sampling import Sampling, SquarePatch
from caloric.frames import sigmas
from caloric.image.scalespace import Ladder
from caloric.kernels import Kernel
from caloric.types import FloatArray

Floats = NDArray[np.floating]
V = TypeVar("V", bound=Any)
_MAX_SIDE = 32_766  # pixels; OpenCV's remap has 16-bit coordinates


@dataclass(frozen=True, eq=False)
class Measure:
    """The weights of n patches at p points, and the cosine and sine of the angle φ, all (n, p).

    For orientation kernels the weight is |∇f| × area and the angle that of ∇f, from +x towards +y;
    for intensity kernels the weight is the area and the angle 2π f / period.
    """

    weights: Floats
    cos: Floats
    sin: Floats

    @property
    def angles(self) -> Floats:
        """φ (n, p) in (−π/2, 3π/2], where intensities, at most half a period, do not wrap."""
        return np.asarray(np.arctan2(-self.cos, self.sin) + self.cos.dtype.type(np.pi / 2))


def gradients(patches: Floats) -> tuple[Floats, Floats]:
    """Return ∂f/∂x and ∂f/∂y of patches (n, S, S), by central differences, in patch coordinates."""
    pitch = SquarePatch(patches.shape[-1]).pitch
    along_y, along_x = np.gradient(patches, pitch, axis=(1, 2))
    return np.asarray(along_x), np.asarray(along_y)


def measure(patches: Floats, kernel: Kernel) -> Measure:
    """Return the density (n, S²) of patches (n, S, S) for the feature of ``kernel``."""
    count, size = patches.shape[0], patches.shape[-1]
    areas = SquarePatch(size).areas().astype(patches.dtype)
    if kernel.feature == "intensity":
        return _intensity_measure(patches.reshape(count, -1), areas, kernel)
    gx, gy = (g.reshape(count, -1) for g in gradients(patches))
    length = np.hypot(gx, gy)
    return Measure(length * areas, *_direction(gx, gy, length))


def _direction(gx: Floats, gy: Floats, length: Floats) -> tuple[Floats, Floats]:
    """Return the cosine and sine of the gradient's angle, 0 where there is no gradient."""
    inverse = 1 / np.maximum(length, np.finfo(length.dtype).tiny)
    return gx * inverse, gy * inverse


def _intensity_measure(values: Floats, areas: Floats, kernel: Kernel) -> Measure:
    angles = values * values.dtype.type(2 * np.pi / kernel.period)
    return Measure(np.broadcast_to(areas, values.shape), np.cos(angles), np.sin(angles))


@dataclass(frozen=True, eq=False)
class Points:
    """A sampling in units of σ of a frame.

    ``offsets`` (2, p) from the center, the largest of length ``reach``; ``smoothing`` (p,), and
    ``relative`` to that of the first point; ``areas`` (p,). ``runs`` are slices of consecutive
    points with the same smoothing, which are read from the same level.
    """

    offsets: NDArray[np.float32]
    reach: float
    smoothing: FloatArray
    relative: NDArray[np.float32]
    areas: NDArray[np.float32]
    runs: tuple[slice, ...]

    def factors(self, power: float) -> NDArray[np.float32]:
        """Return area · smoothing^power (p,), the factor of the gradient raised to ``power``."""
        return np.asarray(self.areas * self.relative**power, np.float32)


@lru_cache(maxsize=16)
def in_sigmas(sampling: Sampling) -> Points:
    """Return the points of a sampling in units of σ, cached."""
    width = sampling.half_width
    smoothing = width * sampling.smoothing()
    cuts = [0, *(np.flatnonzero(np.diff(smoothing)) + 1).tolist(), len(smoothing)]
    offsets = width * sampling.points().T
    return Points(
        np.ascontiguousarray(offsets, np.float32),
        float(np.hypot(*offsets).max()),
        smoothing,
        np.asarray(smoothing / smoothing[0], np.float32),
        sampling.areas().astype(np.float32),
        tuple(slice(*ends) for ends in pairwise(cuts)),
    )


def levels_of(ladder: Ladder, maps: FloatArray, points: Points) -> NDArray[np.intp]:
    """Return the index of the level (n, runs) from which each run of points is read."""
    smoothing = points.smoothing[[run.start for run in points.runs]]
    return ladder.nearest(sigmas(maps)[:, None] * smoothing)


def measure_frames(
    ladder: Ladder, maps: FloatArray, sampling: Sampling, kernel: Kernel, power: float = 1.0
) -> Measure:
    """Return the density (n, p), float32, around frames ``maps`` (n, 2, 3) for a kernel's feature.

    In the coordinates of a frame u ↦ A u + t the gradient is A^T ∇f. The weight of a point is
    area · (smoothing · |A^T ∇f|)^power, with the smoothing relative to that of the first point, or
    0 outside the image; the theory has power 1. Levels are smoothed isotropically: the smoothing of
    a frame that is not circular is that of the sampling times √|det A|, which is too little along
    its longer axis and too much across it. Consecutive frames that read the same level are
    processed together.
    """
    points = in_sigmas(sampling)
    positions = _locate(ladder, maps, points)
    if kernel.feature == "intensity":
        areas = np.broadcast_to(points.areas, positions.x.shape).copy()
        areas[positions.crossing] *= positions.inside
        return _intensity_measure(positions.read(ladder, 0, 0), areas, kernel)
    # The central difference of interpolated pixels is the interpolated central difference.
    fx = positions.read(ladder, 1, 0)
    fx -= positions.read(ladder, -1, 0)
    fy = positions.read(ladder, 0, 1)
    fy -= positions.read(ladder, 0, -1)
    a = 0.5 * maps[:, None, :, :2].astype(np.float32)
    gx = fx * a[..., 0, 0] + fy * a[..., 1, 0]
    gy = fx * a[..., 0, 1] + fy * a[..., 1, 1]
    # Not cv2.magnitude, whose last bit depends on the alignment of the array.
    length = np.sqrt(gx * gx + gy * gy)
    cos, sin = _direction(gx, gy, length)
    length *= positions.scale
    length[positions.crossing] *= positions.inside
    weights = length if power == 1 else length ** np.float32(power)
    return Measure(weights * points.factors(power), cos, sin)


@dataclass(frozen=True, eq=False)
class _Positions:
    """The positions of the points of n frames: ``x`` and ``y`` (n, p) in pixels of their levels.

    ``parts`` are the (frames, points, level) that are read together; ``scale`` (n, p) is 1 / step.
    ``crossing`` are the frames that may cross the image border; ``inside`` is a mask of their
    points that are in the image. All points of other frames are.
    """

    parts: tuple[tuple[slice, slice, int], ...]
    scale: NDArray[np.float32]
    x: NDArray[np.float32]
    y: NDArray[np.float32]
    crossing: NDArray[np.intp]
    inside: NDArray[np.bool_]

    def read(self, ladder: Ladder, right: int, down: int) -> NDArray[np.float32]:
        """Return bilinear samples (n, p) at an offset in level pixels, with a replicated border."""
        x = self.x + np.float32(right) if right else self.x
        y = self.y + np.float32(down) if down else self.y
        result = np.empty_like(x)
        for rows, run, level in self.parts:
            pixels = ladder.levels[level].pixels
            if max(pixels.shape) > _MAX_SIDE:
                result[rows, run] = _bilinear(pixels, x[rows, run], y[rows, run])
                continue
            cv2.remap(
                pixels,
                x[rows, run],
                y[rows, run],
                cv2.INTER_LINEAR,
                dst=result[rows, run],
                borderMode=cv2.BORDER_REPLICATE,
            )
        return result


def _bilinear(
    pixels: NDArray[np.float32], x: NDArray[np.float32], y: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the result of cv2.remap for a level that is too large for it."""
    (h, w), left, top = pixels.shape, np.floor(x), np.floor(y)
    u, v = x - left, y - top

    def pixel(row: int, column: int) -> NDArray[np.float32]:
        i, j = np.clip(top + row, 0, h - 1), np.clip(left + column, 0, w - 1)
        return np.asarray(pixels[i.astype(np.intp), j.astype(np.intp)])

    across = [pixel(i, 0) * (1 - u) + pixel(i, 1) * u for i in (0, 1)]
    return np.asarray(across[0] * (1 - v) + across[1] * v)


def _locate(ladder: Ladder, maps: FloatArray, points: Points) -> _Positions:
    (h, w), centers = ladder.size, maps[:, :, 2]
    levels = levels_of(ladder, maps, points)
    scale = 1 / np.array([level.step for level in ladder.levels])[levels]
    origin = np.array([level.origin for level in ladder.levels])[levels]
    corner = np.array([level.corner for level in ladder.levels])[levels]
    x, y = (maps[:, i, :2].astype(np.float32) @ points.offsets for i in (0, 1))
    # No point is farther from the center than the longer axis times the reach.
    square = (maps[:, :, :2] ** 2).sum((1, 2))
    longest = np.sqrt((square + np.sqrt(np.maximum(square**2 - 4 * sigmas(maps) ** 4, 0))) / 2)
    reach = longest * points.reach
    to_border = np.minimum(centers, (w - 1, h - 1) - centers).min(1) + 0.5
    crossing = np.flatnonzero(reach > to_border)
    column, row = (v[crossing] + centers[crossing, i, None] for i, v in enumerate((x, y)))
    inside = (column >= -0.5) & (column <= w - 0.5) & (row >= -0.5) & (row <= h - 0.5)
    shift = (centers[:, None] - origin[..., None]) * scale[..., None] - corner
    shift = np.clip(shift, -1e9, 1e9)  # outside any image
    lengths = [run.stop - run.start for run in points.runs]

    def to_points(per_run: FloatArray) -> NDArray[np.float32]:
        return np.repeat(per_run.astype(np.float32), lengths, axis=1)

    scales = to_points(scale)
    for v, offset in ((x, shift[..., 0]), (y, shift[..., 1])):
        v *= scales
        v += to_points(offset)
    parts = []
    for run, run_levels in zip(points.runs, levels.T, strict=True):
        cuts = [0, *(np.flatnonzero(np.diff(run_levels)) + 1).tolist(), len(run_levels)]
        parts += [(slice(a, b), run, int(run_levels[a])) for a, b in pairwise(cuts)]
    return _Positions(tuple(parts), scales, x, y, crossing, inside)


def harmonic_series(weights: V, cos: V, sin: V, order: int) -> Iterator[V]:
    """Yield ρ, then ρ cos mφ and ρ sin mφ for m = 1 to ``order``, for arrays or tensors."""
    yield weights
    if order == 0:
        return
    c, s = weights * cos, weights * sin
    yield from (c, s)
    for _ in range(2, order + 1):
        c, s = c * cos - s * sin, s * cos + c * sin
        yield from (c, s)


def harmonics(density: Measure, order: int) -> Floats:
    """Return the terms of :func:`harmonic_series`, (n, 2·order + 1, p)."""
    weights = density.weights
    result = np.empty((len(weights), 2 * order + 1, weights.shape[1]), weights.dtype)
    for i, term in enumerate(harmonic_series(weights, density.cos, density.sin, order)):
        result[:, i] = term
    return result
