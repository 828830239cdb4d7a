"""The scale space by Triton kernels; the plain form is in scalespace.py."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu.once import once
from caloric.gpu.scalespace import LAYERS, Pyramid
from caloric.image import scalespace
from caloric.image.scalespace import SCALES


@triton.jit
def _mirror(index, count):
    period = tl.maximum(2 * (count - 1), 1)
    index = tl.abs(index) % period
    return tl.minimum(index, period - index)


@triton.jit
def _blur_down(
    source, result, taps, height, width, source_stride, result_stride,
    REACH: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr,
):  # fmt: skip
    """Smooth the columns of planes (h, w), one tile per program."""
    x = tl.program_id(0) * BX + tl.arange(0, BX)[None, :]
    first = tl.program_id(1) * BY
    y = first + tl.arange(0, BY)[:, None]
    image = tl.program_id(2).to(tl.int64)
    source += image * source_stride
    inside = (x < width) & (y < height)
    total = tl.zeros((BY, BX), tl.float32)
    if (first >= REACH) & (first + BY + REACH <= height):
        for t in tl.static_range(-REACH, REACH + 1):
            pixels = tl.load(source + (y + t) * width + x, mask=inside, other=0.0)
            total += tl.load(taps + (t + REACH)) * pixels
    else:
        for t in range(-REACH, REACH + 1):
            at = _mirror(y + t, height) * width + x
            total += tl.load(taps + (t + REACH)) * tl.load(source + at, mask=inside, other=0.0)
    tl.store(result + image * result_stride + y * width + x, total, mask=inside)


@triton.jit
def _blur_across(
    source, result, taps, height, width, source_stride, result_stride,
    REACH: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr,
):  # fmt: skip
    """Smooth the rows; the two pixels at the same distance are added first."""
    first = tl.program_id(0) * BX
    x = first + tl.arange(0, BX)[None, :]
    y = tl.program_id(1) * BY + tl.arange(0, BY)[:, None]
    image = tl.program_id(2).to(tl.int64)
    source += image * source_stride + y * width
    inside = (x < width) & (y < height)
    total = tl.load(taps + REACH) * tl.load(source + x, mask=inside, other=0.0)
    if (first >= REACH) & (first + BX + REACH <= width):
        for t in tl.static_range(1, REACH + 1):
            both = tl.load(source + (x - t), mask=inside, other=0.0)
            both += tl.load(source + (x + t), mask=inside, other=0.0)
            total += tl.load(taps + (REACH + t)) * both
    else:
        for t in range(1, REACH + 1):
            both = tl.load(source + _mirror(x - t, width), mask=inside, other=0.0)
            both += tl.load(source + _mirror(x + t, width), mask=inside, other=0.0)
            total += tl.load(taps + (REACH + t)) * both
    tl.store(result + image * result_stride + y * width + x, total, mask=inside)


@once
def _taps(sigma: float, device: Any) -> Tensor:
    return torch.tensor(scalespace.taps(sigma).tolist(), device=device)


def blur(source: Tensor, result: Tensor, between: Tensor, sigma: float) -> None:
    """Smooth ``source`` (b, h, w) into ``result``; ``between`` holds the smoothed columns."""
    b, h, w = source.shape
    taps = _taps(sigma, source.device)
    # Tiles are long in the direction of smoothing.
    tall, wide = min(32, triton.next_power_of_2(h)), min(256, triton.next_power_of_2(w))
    for kernel, left, right, by, bx in (
        (_blur_down, source, between, tall, 64),
        (_blur_across, between, result, 4, wide),
    ):
        kernel[(triton.cdiv(w, bx), triton.cdiv(h, by), b)](
            left, right, taps, h, w, left.stride(0), right.stride(0),
            REACH=len(taps) // 2, BY=by, BX=bx, num_warps=4,
        )  # fmt: skip


@triton.jit
def _between(source, row, column, beside, width):
    """A quarter of the way from a pixel to its neighbour."""
    here = tl.load(source + row * width + column)
    return here + 0.25 * (tl.load(source + row * width + beside) - here)


@triton.jit
def _enlarge(source, result, height, width, BLOCK: tl.constexpr):
    """Interpolate the pixels of the enlarged image between two columns, then two rows."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(1).to(tl.int64)
    index = tl.minimum(index, 4 * height * width - 1)
    y, x = index // (2 * width), index % (2 * width)
    source += image * height * width
    column, row = x // 2, y // 2
    beside = tl.minimum(tl.maximum(column - 1 + 2 * (x % 2), 0), width - 1)
    other = tl.minimum(tl.maximum(row - 1 + 2 * (y % 2), 0), height - 1)
    here = _between(source, row, column, beside, width)
    there = _between(source, other, column, beside, width)
    tl.store(result + image * 4 * height * width + index, here + 0.25 * (there - here))


def enlarged(images: Tensor) -> Tensor:
    """Return :func:`caloric.gpu.scalespace.enlarged` of images (b, h, w)."""
    b, h, w = images.shape
    result = torch.empty((b, 2 * h, 2 * w), device=images.device)
    _enlarge[(triton.cdiv(4 * h * w, 1024), b)](images, result, h, w, BLOCK=1024, num_warps=4)
    return result


def build(images: Tensor, pyramid: Pyramid) -> Tensor:
    """Return :func:`caloric.gpu.scalespace.build`, not differentiable."""
    b = len(images)
    rows = torch.empty((b, pyramid.total), device=images.device)
    first = pyramid.octaves[0]
    between = torch.empty((b, first.height, first.width), device=images.device)
    base = enlarged(images.contiguous())
    for number, octave in enumerate(pyramid.octaves):
        h, w = octave.height, octave.width
        layers = rows[:, octave.offset : octave.offset + octave.count].unflatten(1, (LAYERS, h, w))
        before = base
        for layer, sigma in zip(layers.unbind(1), scalespace.steps(octave.first), strict=True):
            if sigma:
                room = between.view(b, -1)[:, : h * w].unflatten(1, (h, w))
                blur(before, layer, room, sigma)
            else:
                layer.copy_(before)
            before = layer
        base = images.contiguous() if number == 0 else layers[:, SCALES, ::2, ::2].contiguous()
    return rows
