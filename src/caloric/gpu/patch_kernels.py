"""Triton kernels that read patches, and halve images; PyTorch does both in refinement.py."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu import refinement
from caloric.gpu.refinement import Octaves
from caloric.matching import refinement_steps as steps

SAMPLES = steps.SIDE**2
WIDTH = triton.next_power_of_2(SAMPLES)  # of the samples of a program
SHAPE: dict[str, Any] = {
    "SIDE": steps.SIDE, "REACH": steps.REACH, "SPACING": steps.SPACING, "WIDTH": WIDTH,
}  # fmt: skip
_BLOCK = 1024  # pixels per program of `_halve`


@triton.jit
def sigma(m00, m01, m10, m11):
    """Return σ of a frame."""
    return tl.sqrt(tl.abs(m00 * m11 - m01 * m10))


@triton.jit
def octave(sigma, count, SPACING: tl.constexpr):
    """Return the level from which a frame is sampled: see :func:`steps.octaves`."""
    number = tl.floor(tl.log2(tl.maximum(sigma * SPACING, 1e-9)))
    return tl.minimum(tl.maximum(number, 0.0), count - 1.0).to(tl.int32)


@triton.jit
def patch(
    pixels, starts, heights, widths, spacings, count, m00, m01, m02, m10, m11, m12, x, y, inside,
    SPACING: tl.constexpr,
):  # fmt: skip
    """Return the pixels around a frame, interpolated bilinearly."""
    level = octave(sigma(m00, m01, m10, m11), count, SPACING)
    unit = tl.load(spacings + level)
    height, width = tl.load(heights + level).to(tl.int32), tl.load(widths + level).to(tl.int32)
    tx = tl.minimum(tl.maximum(m02 / unit, -1e7), 1e7)
    ty = tl.minimum(tl.maximum(m12 / unit, -1e7), 1e7)
    # Relative to the pixel at the center, so that float32 is accurate enough.
    cx, cy = tl.floor(tx), tl.floor(ty)
    column, row = cx.to(tl.int32), cy.to(tl.int32)
    u = (m00 / unit).to(tl.float32) * x + (m01 / unit).to(tl.float32) * y + (tx - cx).to(tl.float32)
    v = (m10 / unit).to(tl.float32) * x + (m11 / unit).to(tl.float32) * y + (ty - cy).to(tl.float32)
    u = tl.maximum(tl.minimum(u, (width - 1 - column).to(tl.float32)), (-column).to(tl.float32))
    v = tl.maximum(tl.minimum(v, (height - 1 - row).to(tl.float32)), (-row).to(tl.float32))
    left = tl.minimum(tl.floor(u), tl.maximum(width - 2 - column, -column).to(tl.float32))
    top = tl.minimum(tl.floor(v), tl.maximum(height - 2 - row, -row).to(tl.float32))
    u, v = u - left, v - top
    at = tl.load(starts + level) + (top.to(tl.int32) + row).to(tl.int64) * width
    at += left.to(tl.int32) + column
    a = tl.load(pixels + at, mask=inside, other=0.0)
    b = tl.load(pixels + at + 1, mask=inside, other=0.0)
    c = tl.load(pixels + at + width, mask=inside, other=0.0)
    d = tl.load(pixels + at + width + 1, mask=inside, other=0.0)
    above, below = a + u * (b - a), c + u * (d - c)
    return above + v * (below - above)


@triton.jit
def grid(SIDE: tl.constexpr, REACH: tl.constexpr, SPACING: tl.constexpr, WIDTH: tl.constexpr):
    """Return indices of samples, which of them exist, and their coordinates."""
    at = tl.arange(0, WIDTH)
    inside = at < SIDE * SIDE
    x, y = -REACH + (at % SIDE) * SPACING, -REACH + (at // SIDE) * SPACING
    return at, inside, x.to(tl.float32), y.to(tl.float32)


@triton.jit(do_not_specialize=["count"])
def _sample(
    pixels, starts, heights, widths, spacings, count, frames, result,
    SIDE: tl.constexpr, REACH: tl.constexpr, SPACING: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store the patch of a frame."""
    match = tl.program_id(0).to(tl.int64)
    at, inside, x, y = grid(SIDE, REACH, SPACING, WIDTH)
    m = frames + 6 * match
    values = patch(
        pixels, starts, heights, widths, spacings, count, tl.load(m), tl.load(m + 1),
        tl.load(m + 2), tl.load(m + 3), tl.load(m + 4), tl.load(m + 5), x, y, inside, SPACING,
    )  # fmt: skip
    tl.store(result + match * (SIDE * SIDE) + at, values, mask=inside)


def levels(image: Octaves) -> tuple[Any, ...]:
    """Return the arguments of :func:`patch` that depend on the image."""
    return (
        image.pixels,
        image.starts,
        image.heights,
        image.widths,
        image.spacings,
        len(image.starts),
    )


def patches(image: Octaves, frames: Tensor) -> Tensor:
    """Return patches (m, n) around frames (m, 2, 3)."""
    result = torch.empty((len(frames), SAMPLES), device=frames.device)
    _sample[(len(frames),)](*levels(image), frames, result, **SHAPE)
    return result


@triton.jit(do_not_specialize=["height", "width", "half_height", "half_width"])
def _halve(pixels, result, height, width, half_height, half_width, taps, BLOCK: tl.constexpr):
    """Store an image blurred by 5 x 5 taps, every second pixel; borders are reflected."""
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = index < half_height * half_width
    y, x = 2 * (index // half_width), 2 * (index % half_width)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in tl.static_range(5):
        row = tl.abs(y + i - 2)
        row = (height - 1) - tl.abs(height - 1 - row)
        across = tl.zeros((BLOCK,), tl.float32)
        for j in tl.static_range(5):
            column = tl.abs(x + j - 2)
            column = (width - 1) - tl.abs(width - 1 - column)
            value = tl.load(pixels + row * width + column, mask=valid, other=0.0)
            across += tl.load(taps + j) * value
        total += tl.load(taps + i) * across
    tl.store(result + index, total, mask=valid)


def halved(level: Tensor) -> Tensor:
    """Return :func:`caloric.gpu.refinement.halved`."""
    h, w = level.shape
    size = (h + 1) // 2, (w + 1) // 2
    result = torch.empty(size, dtype=torch.float32, device=level.device)
    _halve[(triton.cdiv(result.numel(), _BLOCK),)](
        level.contiguous(), result, h, w, *size, refinement.taps(level.device), BLOCK=_BLOCK
    )
    return result
