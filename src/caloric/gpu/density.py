"""Harmonics of the gradient-orientation density around the frames of a batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caloric.descriptor import density
from caloric.descriptor.sampling import Sampling
from caloric.gpu.caches import cached
from caloric.gpu.pyramid import FrameBlock, Measurement, Pyramid
from caloric.image.scalespace import FIRST, SCALES


def padding(count: int) -> int:
    """Return the number of points that pad ``count`` to a multiple of 16, for speed."""
    return -count % 16


def padded(values: Tensor) -> Tensor:
    """Return values padded with zeros along the last axis: see :func:`padding`."""
    return torch.nn.functional.pad(values, (0, padding(values.shape[-1])))


@dataclass(frozen=True, eq=False)
class Points:
    """A sampling on a device, padded to p points.

    ``offsets`` (2, p) are in σ; ``factors`` (p,), 0 for padding, multiply the power of the gradient
    magnitude; ``levels`` (p,) are the levels of the points relative to that of σ, in float64.
    """

    offsets: Tensor
    factors: Tensor
    levels: Tensor
    count: int

    @property
    def padded(self) -> int:
        """The number of points p, including padding."""
        return int(self.offsets.shape[1])


@cached
def points(sampling: Sampling, power: float, device: Any, dtype: Any) -> Points:
    """Return the points of a sampling on a device (cached)."""
    relative = density.in_sigmas(sampling)
    count = len(relative.areas)
    first = FIRST / 2  # the smoothing of the first level, in pixels of the image
    levels = SCALES * np.log2(relative.smoothing / first)

    def on_device(values: Any) -> Tensor:
        return padded(torch.as_tensor(np.array(values), dtype=dtype, device=device))

    factors = relative.areas.astype(np.float64) * relative.relative.astype(np.float64) ** power
    padded_levels = padded(torch.tensor(levels, dtype=torch.float64, device=device))
    return Points(on_device(relative.offsets), on_device(factors), padded_levels, count)


@dataclass(frozen=True, eq=False)
class Levels:
    """The levels of a pyramid on a device, as tensors (levels,); ``scale`` is 1 / step."""

    offset: Tensor
    height: Tensor
    width: Tensor
    scale: Tensor
    origin: Tensor


@cached
def levels_of(pyramid: Pyramid, device: Any, dtype: Any) -> Levels:
    """Return the levels of a pyramid on a device (cached)."""
    rows = [(o, v.height, v.width, 1 / v.step, v.origin) for o, v in pyramid.levels]
    columns = [*zip(*rows, strict=True)]
    integers = [torch.tensor(c, dtype=torch.int64, device=device) for c in columns[:3]]
    return Levels(*integers, *(torch.tensor(c, dtype=dtype, device=device) for c in columns[3:]))


def sigma_levels(maps: Tensor) -> Tensor:
    """Return the level (n,) of σ of each frame, relative to the level of 1 pixel.

    Computed in float64, so that rounding does not change which level is nearest.
    """
    a = maps.detach()[..., :2].double()
    determinant = a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    return SCALES / 2 * determinant.abs().clamp_min(1e-48).log2()


def directions(gx: Tensor, gy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return length, cosine and sine; for a zero gradient they and their derivatives are 0."""
    square = gx * gx + gy * gy
    nonzero = square > torch.finfo(gx.dtype).tiny
    length = torch.where(nonzero, square, 1.0).sqrt()
    inverse = torch.where(nonzero, 1 / length, 0.0)
    return torch.where(nonzero, length, 0.0), gx * inverse, gy * inverse


def powered(length: Tensor, power: float) -> Tensor:
    """Return length^power, with a derivative of 0 at 0."""
    if power == 1:
        return length
    nonzero = length > 0
    return torch.where(nonzero, torch.where(nonzero, length, 1.0) ** power, 0.0)


def harmonics(weights: Tensor, cos: Tensor, sin: Tensor, order: int) -> Tensor:
    """Return the harmonics (n, (2·order + 1) p) of :func:`density.harmonic_series`."""
    return torch.cat([*density.harmonic_series(weights, cos, sin, order)], 1)


def _along(
    axis: int,
    maps: Tensor,
    shapes: Tensor,
    points: Points,
    origin: Tensor,
    scale: Tensor,
    size: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the coordinates (n, p) of the points along an axis, in pixels of their levels.

    The results are the fraction, the pixel index, and whether the point is inside the image.
    Coordinates are computed relative to the pixel at the center of the frame, which is found in
    float64, so that their precision does not depend on where the frame is.
    """
    center = (maps[:, axis, 2:].double() - origin) * scale
    pixel = center.detach().floor()
    offset = (shapes[:, axis : axis + 1] @ points.offsets)[:, 0] * scale
    coordinate = offset + (center - pixel).to(shapes.dtype)
    first = ((-0.5 - origin.double()) * scale - pixel).to(shapes.dtype)
    inside = (coordinate >= first) & (coordinate <= first + size * scale)
    whole = coordinate.detach().clamp(-1e8, 1e8).floor()
    return coordinate - whole, torch.nan_to_num(pixel + whole).clamp(-9, 1e9).long(), inside


def measure(
    rows: Tensor,
    pyramid: Pyramid,
    maps: Tensor,
    block: FrameBlock,
    measurement: Measurement,
    dtype: Any,
    sizes: Tensor | None = None,
) -> Tensor:
    """Return harmonics (n, (2·order + 1) p) around frames (n, 2, 3) of pyramids (b, total).

    The images are as large as their layout; ``sizes`` are for the Triton kernels.

    This is :func:`caloric.descriptor.density.measure_frames` in PyTorch, differentiable with
    respect to pixels and frames. It is computed in the type of ``rows`` and returned as ``dtype``.
    """
    index = block.start + torch.arange(len(maps), device=maps.device)
    return _measure(rows, pyramid, maps, index // max(block.per_image, 1), measurement).to(dtype)


def _measure(
    rows: Tensor, pyramid: Pyramid, maps: Tensor, image: Tensor, measurement: Measurement
) -> Tensor:
    dtype, kernel, power = rows.dtype, measurement.kernel, measurement.power
    at = points(measurement.sampling, power, rows.device, dtype)
    levels = levels_of(pyramid, rows.device, dtype)
    nearest = torch.round(sigma_levels(maps)[:, None] + at.levels)
    level = torch.nan_to_num(nearest).clamp(0, len(levels.offset) - 1).long()
    offset, h, w = levels.offset[level], levels.height[level], levels.width[level]
    scale, origin = levels.scale[level], levels.origin[level]
    shapes = maps[:, :, :2].to(dtype)
    x, left, inside_x = _along(0, maps, shapes, at, origin, scale, pyramid.size[1])
    y, top, inside_y = _along(1, maps, shapes, at, origin, scale, pyramid.size[0])
    inside = inside_x & inside_y
    u, v = (torch.where(inside, part, 0.0).clamp(0, 1) for part in (x, y))
    start = offset + image[:, None] * pyramid.total
    flat = rows.reshape(-1)

    def pixel(dy: int, dx: int) -> Tensor:
        column = (left + dx).clamp_min(0).minimum(w - 1)
        row = (top + dy).clamp_min(0).minimum(h - 1)
        return flat[start + row * w + column]

    def read(right: int, down: int) -> Tensor:
        a, b = pixel(down, right), pixel(down, right + 1)
        c, d = pixel(down + 1, right), pixel(down + 1, right + 1)
        return (1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * c + u * d)

    if kernel.feature == "intensity":
        angle = read(0, 0) * (2 * np.pi / kernel.period)
        weights = at.factors * inside
        return harmonics(weights, angle.cos(), angle.sin(), measurement.order)
    fx, fy = read(1, 0) - read(-1, 0), read(0, 1) - read(0, -1)
    a = 0.5 * shapes
    gx = fx * a[:, 0, 0, None] + fy * a[:, 1, 0, None]
    gy = fx * a[:, 0, 1, None] + fy * a[:, 1, 1, None]
    length, cos, sin = directions(gx, gy)
    weights = torch.where(inside, powered(length * scale, power) * at.factors, 0.0)
    return harmonics(weights, cos, sin, measurement.order)
