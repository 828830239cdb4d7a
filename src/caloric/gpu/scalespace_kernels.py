"""Triton kernels for the scale space; the PyTorch implementation is in scalespace.py."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.gpu.caches import cached
from caloric.gpu.pyramid import LAYERS, Pyramid, full_sizes
from caloric.image import scalespace
from caloric.image.scalespace import SCALES


@triton.jit
def _mirror(index, count):
    period = tl.maximum(2 * (count - 1), 1)
    index = tl.abs(index) % period
    return tl.minimum(index, period - index)


@triton.jit
def octave_length(length, octave):
    """Return the height or width of an octave, from that of the image."""
    reduced = ((length - 1) >> tl.maximum(octave - 1, 0)) + 1
    return tl.where(octave == 0, 2 * length, reduced)


@triton.jit
def split_four(values, COUNT: tl.constexpr):
    """Return the columns of values (n, 4), of which a thread holds whole rows."""
    even, odd = tl.split(tl.reshape(values, (COUNT, 2, 2)))
    a, c = tl.split(even)
    b, d = tl.split(odd)
    return a, b, c, d


# Sizes are not specialized: otherwise the kernel would be compiled for each octave and image size.
@triton.jit(
    do_not_specialize=[
        "octave", "height", "width", "source_stride", "result_stride", "across", "tiles", "aligned"
    ],
    do_not_specialize_on_alignment=["source", "result"],
)  # fmt: skip
def _blur(
    source, result, scratch, taps, sizes, octave, height, width, source_stride, result_stride,
    across, tiles, aligned,
    REACH: tl.constexpr, BY: tl.constexpr, BX: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Smooth planes (h, w), tile by tile: columns into ``scratch``, then rows from there.

    ``sizes`` (b, 2) are those of the images, at whose borders planes are mirrored.
    The scratch memory of a program stays in the cache. A thread reads each pixel of its columns
    once. Along rows it loads four pixels at a time and keeps all that its four results need.
    ``aligned``: all rows of the result begin at multiples of four pixels.
    """
    FOURS: tl.constexpr = (REACH + 3) // 4
    HALO: tl.constexpr = 4 * FOURS
    COUNT: tl.constexpr = ROWS * BX // 4
    lane = tl.arange(0, BX)
    number = tl.arange(0, COUNT)
    row, column = number // (BX // 4), 4 * (number % (BX // 4))
    four = tl.arange(0, 4)[None, :]
    inner = (column >= HALO) & (column < BX - HALO)
    scratch += tl.program_id(0) * (BY * BX)
    down = (height + BY - 1) // BY
    weights = ()
    for t in tl.static_range(2 * REACH + 1):
        weights = weights + (tl.load(taps + t),)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        image = (tile // (across * down)).to(tl.int64)
        top = (tile // across) % down * BY
        left = (tile % across) * (BX - 2 * HALO) - HALO
        bottom = octave_length(tl.load(sizes + 2 * image), octave)
        right = octave_length(tl.load(sizes + 2 * image + 1), octave)
        if (top < bottom) & (left + HALO < right):  # not outside the image
            columns = source + image * source_stride + _mirror(left + lane, right)
            # All loads are issued first, so that none waits for another.
            rows = ()
            for r in tl.static_range(BY + 2 * REACH):
                rows = rows + (tl.load(columns + _mirror(top + (r - REACH), bottom) * width),)
            tl.debug_barrier()  # until all threads have read the previous tile
            for o in tl.static_range(BY):
                total = weights[0] * rows[o]
                for t in tl.static_range(1, 2 * REACH + 1):
                    total = tl.fma(weights[t], rows[o + t], total)
                tl.store(scratch + o * BX + lane, total)
            tl.debug_barrier()
            for o in range(0, BY, ROWS):
                at = scratch + (o + row) * BX + column
                values = ()
                for f in tl.static_range(-FOURS, FOURS + 1):
                    here = tl.load(at[:, None] + 4 * f + four, mask=inner[:, None], other=0.0)
                    values = values + split_four(here, COUNT)
                sums = ()
                for k in tl.static_range(4):
                    total = weights[REACH] * values[HALO + k]
                    for t in tl.static_range(1, REACH + 1):
                        # Add the two pixels at the same distance first, as the compiled core does.
                        both = values[HALO + k - t] + values[HALO + k + t]
                        total = tl.fma(weights[REACH + t], both, total)
                    sums = sums + (total,)
                even, odd = tl.join(sums[0], sums[2]), tl.join(sums[1], sums[3])
                smooth = tl.reshape(tl.join(even, odd), (COUNT, 4))
                x, y = left + column, top + o + row
                to = result + (image * result_stride + y * width + x)
                inside = inner & (y < bottom) & (x < right)
                if aligned:
                    four_at_once = tl.multiple_of(to, 16)[:, None] + four
                    tl.store(four_at_once, smooth, mask=inside[:, None] & (four >= 0))
                else:
                    valid = inside[:, None] & (x[:, None] + four < right)
                    tl.store(to[:, None] + four, smooth, mask=valid)


@cached
def _taps(sigma: float, device: Any) -> Tensor:
    """Return the taps, padded to a reach of 6, so that shorter ones share a compiled kernel."""
    taps = torch.tensor(scalespace.taps(sigma).tolist(), device=device)
    pad = max(0, 6 - len(taps) // 2)
    return torch.nn.functional.pad(taps, (pad, pad))


_BY, _BX = 16, 256  # rows and columns of a tile, including the margin that rows need
_ROWS = 4  # smoothed at a time by a program
_PROGRAMS = 4  # per multiprocessor
_WARPS = 8


@cached
def _programs(device: Any) -> int:
    return _PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count


def blur(source: Tensor, result: Tensor, sigma: float, sizes: Tensor, octave: int) -> None:
    """Smooth an octave ``source`` (b, h, w) of images of the given sizes (b, 2) into ``result``."""
    b, h, w = source.shape
    taps = _taps(sigma, source.device)
    reach = len(taps) // 2
    across = triton.cdiv(w, _BX - 2 * 4 * triton.cdiv(reach, 4))
    tiles = b * across * triton.cdiv(h, _BY)
    programs = min(tiles, _programs(source.device))
    aligned = all(n % 4 == 0 for n in (w, result.stride(0), result.data_ptr() // 4))
    scratch = torch.empty((programs, _BY * _BX), device=source.device)
    _blur[(programs,)](
        source, result, scratch, taps, sizes, octave, h, w, source.stride(0), result.stride(0),
        across, tiles, int(aligned), REACH=reach, BY=_BY, BX=_BX, ROWS=_ROWS, num_warps=_WARPS,
    )  # fmt: skip


@triton.jit
def _interpolate(source, row, column, neighbor, width):
    """Return the value a quarter of the way from a pixel to its neighbor in the row."""
    value = tl.load(source + row * width + column)
    return value + 0.25 * (tl.load(source + row * width + neighbor) - value)


@triton.jit(do_not_specialize=["height", "width"])
def _enlarge(source, result, sizes, height, width, BLOCK: tl.constexpr):
    """Interpolate the pixels of the enlarged image between two columns, then between two rows."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(1).to(tl.int64)
    index = tl.minimum(index, 4 * height * width - 1)
    y, x = index // (2 * width), index % (2 * width)
    source += image * height * width
    column, row = x // 2, y // 2
    next_column = tl.minimum(
        tl.maximum(column - 1 + 2 * (x % 2), 0), tl.load(sizes + 2 * image + 1) - 1
    )
    next_row = tl.minimum(tl.maximum(row - 1 + 2 * (y % 2), 0), tl.load(sizes + 2 * image) - 1)
    near = _interpolate(source, row, column, next_column, width)
    far = _interpolate(source, next_row, column, next_column, width)
    tl.store(result + image * 4 * height * width + index, near + 0.25 * (far - near))


def enlarged(images: Tensor, sizes: Tensor) -> Tensor:
    """Return :func:`caloric.gpu.scalespace.enlarged` of images (b, h, w) of ``sizes`` (b, 2)."""
    b, h, w = images.shape
    result = torch.empty((b, 2 * h, 2 * w), device=images.device)
    _enlarge[(triton.cdiv(4 * h * w, 1024), b)](
        images, result, sizes, h, w, BLOCK=1024, num_warps=4
    )
    return result


def build(images: Tensor, pyramid: Pyramid, sizes: Tensor | None = None) -> Tensor:
    """Return :func:`caloric.gpu.scalespace.build`, not differentiable.

    Pixels outside images of the given ``sizes`` (b, 2) are undefined.
    """
    b = len(images)
    sizes = full_sizes(pyramid, b, images.device) if sizes is None else sizes
    rows = torch.empty((b, pyramid.total), device=images.device)
    base = enlarged(images.contiguous(), sizes)
    for index, octave in enumerate(pyramid.octaves):
        h, w = octave.height, octave.width
        layers = rows[:, octave.offset : octave.offset + octave.count].unflatten(1, (LAYERS, h, w))
        previous = base
        for layer, sigma in zip(layers.unbind(1), scalespace.steps(octave.first), strict=True):
            if sigma:
                blur(previous, layer, sigma, sizes, index)
            else:
                layer.copy_(previous)
            previous = layer
        base = images.contiguous() if index == 0 else layers[:, SCALES, ::2, ::2].contiguous()
    return rows
