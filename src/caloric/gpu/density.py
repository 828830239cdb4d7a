"""The harmonics of the density around the frames of a batch, the input of the tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caloric.descriptor import density
from caloric.descriptor.sampling import Sampling
from caloric.gpu.caches import once
from caloric.gpu.pyramid import Measurement, Owners, Pyramid
from caloric.image.scalespace import FIRST, SCALES


def padding(count: int) -> int:
    """Return the number of zero points that pad ``count`` to a multiple of 16, for speed."""
    return -count % 16


def padded(values: Tensor) -> Tensor:
    """Return the values padded with zeros along the last axis: see :func:`padding`."""
    return torch.nn.functional.pad(values, (0, padding(values.shape[-1])))


@dataclass(frozen=True, eq=False)
class Points:
    """A sampling on a device, padded to p points.

    ``offsets`` (2, p) are in σ; ``factors`` (p,) multiply the power of the gradient, 0 for padding;
    ``levels`` (p,) is the difference between the level of a point and that of σ, in float64.
    """

    offsets: Tensor
    factors: Tensor
    levels: Tensor
    count: int

    @property
    def padded(self) -> int:
        """The number of points p, including padding."""
        return int(self.offsets.shape[1])


@once
def points(sampling: Sampling, power: float, device: Any, dtype: Any) -> Points:
    """Return the points of a sampling on a device (cached)."""
    relative = density.in_sigmas(sampling)
    count = len(relative.areas)
    first = FIRST / 2  # the smoothing of the first level, in pixels of the image
    levels = SCALES * np.log2(relative.smoothing / first)

    def on_device(values: Any) -> Tensor:
        return padded(torch.as_tensor(np.array(values), dtype=dtype, device=device))

    factors = relative.areas.astype(np.float64) * relative.relative.astype(np.float64) ** power
    rungs_above = padded(torch.tensor(levels, dtype=torch.float64, device=device))
    return Points(on_device(relative.offsets), on_device(factors), rungs_above, count)


@dataclass(frozen=True, eq=False)
class Ladder:
    """The levels of a pyramid on a device, each attribute (levels,); ``scale`` is 1 / step."""

    offset: Tensor
    height: Tensor
    width: Tensor
    scale: Tensor
    origin: Tensor


@once
def ladder(pyramid: Pyramid, device: Any, dtype: Any) -> Ladder:
    """Return the levels of a pyramid on a device (cached)."""
    rows = [(o, v.height, v.width, 1 / v.step, v.origin) for o, v in pyramid.levels]
    columns = [*zip(*rows, strict=True)]
    whole = [torch.tensor(c, dtype=torch.int64, device=device) for c in columns[:3]]
    return Ladder(*whole, *(torch.tensor(c, dtype=dtype, device=device) for c in columns[3:]))


def rungs(maps: Tensor) -> Tensor:
    """Return the number of levels (n,) by which σ lies above 1 pixel.

    It is computed in float64, so that rounding does not change which level is nearest.
    """
    a = maps.detach()[..., :2].double()
    determinant = a[..., 0, 0] * a[..., 1, 1] - a[..., 0, 1] * a[..., 1, 0]
    return SCALES / 2 * determinant.abs().clamp_min(1e-48).log2()


def directions(gx: Tensor, gy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return length, cosine and sine; where the gradient is 0, they and their derivatives are 0."""
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
    """Return (n, (2·order + 1) p): the series of :func:`density.harmonic_series`."""
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
    """Return the positions (n, p) of the points along an axis, in pixels of their levels.

    They are given as a fraction, a pixel index, and whether the point is inside the image. Offsets
    are relative to the pixel at the center of the frame, which is computed in float64, so that the
    precision at the image border does not depend on its coordinates.
    """
    center = (maps[:, axis, 2:].double() - origin) * scale
    pixel = center.detach().floor()
    offset = (shapes[:, axis : axis + 1] @ points.offsets)[:, 0] * scale
    place = offset + (center - pixel).to(shapes.dtype)
    first = ((-0.5 - origin.double()) * scale - pixel).to(shapes.dtype)
    inside = (place >= first) & (place <= first + size * scale)
    whole = place.detach().clamp(-1e8, 1e8).floor()
    return place - whole, torch.nan_to_num(pixel + whole).clamp(-9, 1e9).long(), inside


def measured(
    rows: Tensor, pyramid: Pyramid, maps: Tensor, owners: Owners, what: Measurement, dtype: Any
) -> Tensor:
    """Return harmonics (n, (2·order + 1) p) around frames (n, 2, 3) of pyramids (b, total).

    This is :func:`caloric.descriptor.density.measure_frames` in PyTorch, differentiable with
    respect to pixels and frames. It is computed in the type of the rows and returned as ``dtype``.
    """
    image = (owners.begin + torch.arange(len(maps), device=maps.device)) // max(owners.per, 1)
    return _measured(rows, pyramid, maps, image, what).to(dtype)


def _measured(
    rows: Tensor, pyramid: Pyramid, maps: Tensor, image: Tensor, what: Measurement
) -> Tensor:
    dtype, kernel = rows.dtype, what.kernel
    at, levels = (
        points(what.sampling, what.power, rows.device, dtype),
        ladder(pyramid, rows.device, dtype),
    )
    wanted = torch.round(rungs(maps)[:, None] + at.levels)
    level = torch.nan_to_num(wanted).clamp(0, len(levels.offset) - 1).long()
    offset, h, w = levels.offset[level], levels.height[level], levels.width[level]
    scale, origin = levels.scale[level], levels.origin[level]
    shapes = maps[:, :, :2].to(dtype)
    x, left, inside_x = _along(0, maps, shapes, at, origin, scale, pyramid.size[1])
    y, top, inside_y = _along(1, maps, shapes, at, origin, scale, pyramid.size[0])
    inside = inside_x & inside_y
    u, v = (torch.where(inside, part, 0.0).clamp(0, 1) for part in (x, y))
    begin = offset + image[:, None] * pyramid.total
    flat = rows.reshape(-1)

    def pixel(dy: int, dx: int) -> Tensor:
        column = (left + dx).clamp_min(0).minimum(w - 1)
        row = (top + dy).clamp_min(0).minimum(h - 1)
        return flat[begin + row * w + column]

    def read(right: int, down: int) -> Tensor:
        a, b = pixel(down, right), pixel(down, right + 1)
        c, d = pixel(down + 1, right), pixel(down + 1, right + 1)
        return (1 - v) * ((1 - u) * a + u * b) + v * ((1 - u) * c + u * d)

    if kernel.feature == "intensity":
        angle = read(0, 0) * (2 * np.pi / kernel.period)
        weights = at.factors * inside
        return harmonics(weights, angle.cos(), angle.sin(), what.order)
    fx, fy = read(1, 0) - read(-1, 0), read(0, 1) - read(0, -1)
    a = 0.5 * shapes
    gx = fx * a[:, 0, 0, None] + fy * a[:, 1, 0, None]
    gy = fx * a[:, 0, 1, None] + fy * a[:, 1, 1, None]
    length, cos, sin = directions(gx, gy)
    weights = torch.where(inside, powered(length * scale, what.power) * at.factors, 0.0)
    return harmonics(weights, cos, sin, what.order)
