"""Triton kernel for densities around frames; the PyTorch implementation is in density.py."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu import density
from caloric.gpu.pyramid import FrameBlock, Measurement, Pyramid, full_sizes
from caloric.gpu.scalespace_kernels import octave_length
from caloric.image.scalespace import SCALES

_POINTS = 128  # points of a sampling per program


@triton.jit
def _at(base, row, column, mask):
    return tl.load(base + row + column, mask=mask, other=0.0)


@triton.jit(do_not_specialize=["total", "start", "per_image", "octave_count", "level_count"])
def _measure(
    rows, maps, sigma_levels, offsets, factors, relative_levels,
    level_offset, level_width, level_scale, level_origin, sizes,
    result, total, start, per_image, octave_count, level_count, unit, power,
    SCALES: tl.constexpr, ORDER: tl.constexpr, POINTS: tl.constexpr,
    POWER: tl.constexpr, INTENSITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the harmonics of the density at a block of points around one frame."""
    blocks: tl.constexpr = (POINTS + BLOCK - 1) // BLOCK
    frame = (tl.program_id(0) // blocks).to(tl.int64)
    index = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    valid = index < POINTS
    a00, a01 = (
        tl.load(maps + 6 * frame).to(tl.float32),
        tl.load(maps + 6 * frame + 1).to(tl.float32),
    )
    a10, a11 = (
        tl.load(maps + 6 * frame + 3).to(tl.float32),
        tl.load(maps + 6 * frame + 4).to(tl.float32),
    )
    tx, ty = tl.load(maps + 6 * frame + 2), tl.load(maps + 6 * frame + 5)
    u, v = (
        tl.load(offsets + index, mask=valid, other=0.0),
        tl.load(offsets + POINTS + index, mask=valid, other=0.0),
    )
    factor = tl.load(factors + index, mask=valid, other=0.0)
    nearest = tl.load(sigma_levels + frame) + tl.load(
        relative_levels + index, mask=valid, other=0.0
    )
    nearest = tl.floor(nearest + 0.5)
    level = tl.minimum(tl.maximum(nearest, 0.0), level_count - 1.0).to(tl.int32)
    plane = tl.load(level_offset + level)
    width = tl.load(level_width + level)
    image = (start + frame) // per_image
    image_height, image_width = tl.load(sizes + 2 * image), tl.load(sizes + 2 * image + 1)
    octave = tl.minimum(level // SCALES, octave_count - 1)
    scale, origin = tl.load(level_scale + level), tl.load(level_origin + level)
    # Relative to the pixel at the center, as in density.py.
    x0, y0 = (tx - origin) * scale, (ty - origin) * scale
    cx, cy = tl.floor(x0), tl.floor(y0)
    x = (a00 * u + a01 * v) * scale + (x0 - cx).to(tl.float32)
    y = (a10 * u + a11 * v) * scale + (y0 - cy).to(tl.float32)
    border = (-0.5 - origin) * scale
    first_x, first_y = (border - cx).to(tl.float32), (border - cy).to(tl.float32)
    inside = valid & (x >= first_x) & (x <= first_x + image_width * scale)
    inside &= (y >= first_y) & (y <= first_y + image_height * scale)
    x = tl.where(inside, x, 0.0)
    y = tl.where(inside, y, 0.0)
    left, top = tl.floor(x), tl.floor(y)
    u, v = x - left, y - top
    column = tl.where(inside, cx.to(tl.int32) + left.to(tl.int32), 0)
    row = tl.where(inside, cy.to(tl.int32) + top.to(tl.int32), 0)
    rightmost = octave_length(image_width, octave) - 1
    bottom = octave_length(image_height, octave) - 1
    base = rows + image * total + plane
    x1 = tl.minimum(tl.maximum(column, 0), rightmost)
    x2 = tl.minimum(column + 1, rightmost)
    y1 = tl.minimum(tl.maximum(row, 0), bottom) * width
    y2 = tl.minimum(row + 1, bottom) * width
    b1, b2 = _at(base, y1, x1, inside), _at(base, y1, x2, inside)
    c1, c2 = _at(base, y2, x1, inside), _at(base, y2, x2, inside)
    if INTENSITY:
        value = (1 - v) * ((1 - u) * b1 + u * b2) + v * ((1 - u) * c1 + u * c2)
        cos, sin = tl.cos(value * unit), tl.sin(value * unit)
        weight = tl.where(inside, factor, 0.0)
    else:
        x0 = tl.minimum(tl.maximum(column - 1, 0), rightmost)
        x3 = tl.minimum(column + 2, rightmost)
        y0 = tl.minimum(tl.maximum(row - 1, 0), bottom) * width
        y3 = tl.minimum(row + 2, bottom) * width
        b0, b3 = _at(base, y1, x0, inside), _at(base, y1, x3, inside)
        c0, c3 = _at(base, y2, x0, inside), _at(base, y2, x3, inside)
        a1, a2 = _at(base, y0, x1, inside), _at(base, y0, x2, inside)
        d1, d2 = _at(base, y3, x1, inside), _at(base, y3, x2, inside)
        fx = (1 - v) * ((1 - u) * (b2 - b0) + u * (b3 - b1)) + v * (
            (1 - u) * (c2 - c0) + u * (c3 - c1)
        )
        fy = (1 - u) * ((1 - v) * (c1 - a1) + v * (d1 - b1)) + u * (
            (1 - v) * (c2 - a2) + v * (d2 - b2)
        )
        gx, gy = 0.5 * (fx * a00 + fy * a10), 0.5 * (fx * a01 + fy * a11)
        square = gx * gx + gy * gy
        nonzero = square > 1.1754943508222875e-38
        inverse = tl.where(nonzero, tl.rsqrt(tl.where(nonzero, square, 1.0)), 0.0)
        cos, sin = gx * inverse, gy * inverse
        length = square * inverse * scale
        if POWER == 2:
            length = tl.sqrt(length)
        elif POWER == 3:
            length = tl.where(
                nonzero, tl.exp2(power * tl.log2(tl.where(nonzero, length, 1.0))), 0.0
            )
        weight = tl.where(inside, length * factor, 0.0)
    out = result + frame * ((2 * ORDER + 1) * POINTS) + index
    kind = result.dtype.element_ty
    tl.store(out, weight.to(kind), mask=valid)
    c, s = weight * cos, weight * sin
    for m in tl.static_range(1, ORDER + 1):
        tl.store(out + (2 * m - 1) * POINTS, c.to(kind), mask=valid)
        tl.store(out + 2 * m * POINTS, s.to(kind), mask=valid)
        c, s = c * cos - s * sin, s * cos + c * sin


_POWERS = {1.0: 1, 0.5: 2}


def measure(
    rows: Tensor,
    pyramid: Pyramid,
    maps: Tensor,
    block: FrameBlock,
    measurement: Measurement,
    dtype: Any,
    sizes: Tensor | None = None,
) -> Tensor:
    """Return :func:`caloric.gpu.density.measure`, computed in float32."""
    device, kernel = rows.device, measurement.kernel
    power, order = measurement.power, measurement.order
    at = density.points(measurement.sampling, power, device, torch.float32)
    levels = density.levels_of(pyramid, device, torch.float32)
    sizes = full_sizes(pyramid, len(rows), device) if sizes is None else sizes
    n, p = len(maps), at.padded
    result = torch.empty((n, (2 * order + 1) * p), dtype=dtype, device=device)
    intensity = kernel.feature == "intensity"
    _measure[(n * triton.cdiv(p, _POINTS),)](
        rows, maps.double().contiguous(), density.sigma_levels(maps), at.offsets, at.factors,
        at.levels, levels.offset, levels.width, levels.scale, levels.origin, sizes, result,
        pyramid.total, block.start, block.per_image, len(pyramid.octaves), len(levels.offset),
        2 * np.pi / kernel.period if intensity else 0.0, float(power),
        SCALES=SCALES, ORDER=order, POINTS=p,
        POWER=_POWERS.get(power, 3), INTENSITY=intensity, BLOCK=_POINTS, num_warps=4,
    )  # fmt: skip
    return result
