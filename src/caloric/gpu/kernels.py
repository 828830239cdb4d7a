"""The same as the plain forms beside this file, as kernels that keep what they make in registers.

In Triton, which comes with PyTorch for GPUs. Each is tested against its plain form.
"""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.descriptor.sampling import Sampling
from caloric.detector import extrema
from caloric.gpu import density
from caloric.gpu.extrema import Found
from caloric.gpu.once import once
from caloric.gpu.scalespace import LAYERS, Plan
from caloric.image import scalespace
from caloric.image.scalespace import FIRST, SCALES
from caloric.kernels import Kernel

_CANDIDATES = 512  # pixels a program
_REFINED = 64  # candidates a program
_POINTS = 128  # of a sampling a program


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
    """The columns of planes (h, w), a tile a program."""
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
    """The rows: what is equally far to the left and right is added first."""
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
    """``source`` (b, h, w) smoothed into ``result``; ``between`` has room for the half-made one."""
    b, h, w = source.shape
    taps = _taps(sigma, source.device)
    # Tiles are long where there is a reach.
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
def _between(source, row, left, right, part, width):
    a = tl.load(source + row * width + left)
    return a + part * (tl.load(source + row * width + right) - a)


@triton.jit
def _enlarge(source, result, height, width, BLOCK: tl.constexpr):
    """A pixel of twice the size: between two columns, then between two rows."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(1).to(tl.int64)
    index = tl.minimum(index, 4 * height * width - 1)
    y, x = index // (2 * width), index % (2 * width)
    source += image * height * width
    odd_x, odd_y = x % 2, y % 2
    left = tl.maximum(x // 2 - 1 + odd_x, 0)
    right = tl.minimum(x // 2 + odd_x, width - 1)
    top = tl.maximum(y // 2 - 1 + odd_y, 0)
    bottom = tl.minimum(y // 2 + odd_y, height - 1)
    across = tl.where(odd_x == 1, 0.25, 0.75)
    above = _between(source, top, left, right, across, width)
    below = _between(source, bottom, left, right, across, width)
    down = tl.where(odd_y == 1, 0.25, 0.75)
    tl.store(result + image * 4 * height * width + index, above + down * (below - above))


def enlarged(images: Tensor) -> Tensor:
    """:func:`caloric.gpu.scalespace.enlarged`."""
    b, h, w = images.shape
    result = torch.empty((b, 2 * h, 2 * w), device=images.device)
    _enlarge[(triton.cdiv(4 * h * w, 1024), b)](images, result, h, w, BLOCK=1024, num_warps=4)
    return result


def build(images: Tensor, of: Plan) -> Tensor:
    """:func:`caloric.gpu.scalespace.build` without gradients."""
    b = len(images)
    rows = torch.empty((b, of.total), device=images.device)
    first = of.octaves[0]
    between = torch.empty((b, first.height, first.width), device=images.device)
    base = enlarged(images.contiguous())
    for number, octave in enumerate(of.octaves):
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


@triton.jit
def _find_candidates(
    rows, counts, found, offset, height, width, total, limit, capacity,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Extrema of |D| among 27 neighbours, three layers at once, put down in any order."""
    image = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = width - 2
    row, column = index // inner + 1, index % inner + 1
    valid = index < inner * (height - 2)
    plane = height * width
    base = rows + image * total + offset + row * width + column
    a1 = tl.zeros((BLOCK,), tl.float32)
    a2 = tl.zeros((BLOCK,), tl.float32)
    a3 = tl.zeros((BLOCK,), tl.float32)
    c1 = tl.zeros((BLOCK,), tl.float32)
    c2 = tl.zeros((BLOCK,), tl.float32)
    c3 = tl.zeros((BLOCK,), tl.float32)
    for dy in tl.static_range(-1, 2):
        for dx in tl.static_range(-1, 2):
            at = base + (dy * width + dx)
            l0 = tl.load(at, mask=valid, other=0.0)
            l1 = tl.load(at + plane, mask=valid, other=0.0)
            l2 = tl.load(at + 2 * plane, mask=valid, other=0.0)
            l3 = tl.load(at + 3 * plane, mask=valid, other=0.0)
            l4 = tl.load(at + 4 * plane, mask=valid, other=0.0)
            l5 = tl.load(at + 5 * plane, mask=valid, other=0.0)
            d0, d1, d2 = tl.abs(l1 - l0), tl.abs(l2 - l1), tl.abs(l3 - l2)
            d3, d4 = tl.abs(l4 - l3), tl.abs(l5 - l4)
            a1 = tl.maximum(a1, tl.maximum(d0, tl.maximum(d1, d2)))
            a2 = tl.maximum(a2, tl.maximum(d1, tl.maximum(d2, d3)))
            a3 = tl.maximum(a3, tl.maximum(d2, tl.maximum(d3, d4)))
            if dy == 0 and dx == 0:
                c1, c2, c3 = d1, d2, d3
    e1 = (valid & (c1 == a1) & (c1 > limit)).to(tl.int32)
    e2 = (valid & (c2 == a2) & (c2 > limit)).to(tl.int32)
    e3 = (valid & (c3 == a3) & (c3 > limit)).to(tl.int32)
    mine = e1 + e2 + e3
    many = tl.sum(mine, 0)
    if many > 0:
        begin = tl.atomic_add(counts + image, many)
        slot = begin + tl.cumsum(mine, 0) - mine
        out = found + image * capacity
        place = offset + row * width + column
        tl.store(out + slot, place + plane, mask=(e1 > 0) & (slot < capacity))
        slot += e1
        tl.store(out + slot, place + 2 * plane, mask=(e2 > 0) & (slot < capacity))
        slot += e2
        tl.store(out + slot, place + 3 * plane, mask=(e3 > 0) & (slot < capacity))


@triton.jit
def _d(at, ds, plane, width, dy, dx, mask):
    here = at + ds * plane + dy * width + dx
    above = tl.load(here + plane, mask=mask, other=0.0)
    return (above - tl.load(here, mask=mask, other=0.0)).to(tl.float64)


@triton.jit
def _round(x):
    return tl.floor(x + 0.5)


@triton.jit
def _refine(
    rows, counts, found, octaves, steps, keys, places, total, capacity, image_height, image_width,
    contrast, edge, OCTAVES: tl.constexpr, SCALES: tl.constexpr, FIRST: tl.constexpr,
    MOVES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Candidates moved to the peaks of their parabolas, in float64, until they rest or leave."""
    image = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    count = tl.minimum(tl.load(counts + image), capacity)
    if tl.program_id(0) * BLOCK >= count:
        return
    active = slot < count
    where = tl.load(found + image * capacity + slot, mask=active, other=0)
    begin = tl.zeros((BLOCK,), tl.int32)
    height = tl.zeros((BLOCK,), tl.int32) + 1
    width = tl.zeros((BLOCK,), tl.int32) + 1
    step = tl.zeros((BLOCK,), tl.float64)
    origin = tl.zeros((BLOCK,), tl.float64)
    for o in range(OCTAVES):
        first = tl.load(octaves + 3 * o)
        later = where >= first
        begin = tl.where(later, first, begin)
        height = tl.where(later, tl.load(octaves + 3 * o + 1), height)
        width = tl.where(later, tl.load(octaves + 3 * o + 2), width)
        step = tl.where(later, tl.load(steps + 2 * o), step)
        origin = tl.where(later, tl.load(steps + 2 * o + 1), origin)
    plane = height * width
    rest = where - begin
    layer = rest // plane
    rest = rest % plane
    row, column = rest // width, rest % width
    for _ in range(MOVES):
        at = rows + image * total + begin + layer * plane + row * width + column
        c = _d(at, 0, plane, width, 0, 0, active)
        xp = _d(at, 0, plane, width, 0, 1, active)
        xm = _d(at, 0, plane, width, 0, -1, active)
        yp = _d(at, 0, plane, width, 1, 0, active)
        ym = _d(at, 0, plane, width, -1, 0, active)
        sp = _d(at, 1, plane, width, 0, 0, active)
        sm = _d(at, -1, plane, width, 0, 0, active)
        gx, gy, gs = (xp - xm) * 0.5, (yp - ym) * 0.5, (sp - sm) * 0.5
        xx, yy, ss = xp + xm - 2 * c, yp + ym - 2 * c, sp + sm - 2 * c
        xy = (
            _d(at, 0, plane, width, 1, 1, active) - _d(at, 0, plane, width, 1, -1, active)
            - _d(at, 0, plane, width, -1, 1, active) + _d(at, 0, plane, width, -1, -1, active)
        ) * 0.25  # fmt: skip
        xs = (
            _d(at, 1, plane, width, 0, 1, active) - _d(at, 1, plane, width, 0, -1, active)
            - _d(at, -1, plane, width, 0, 1, active) + _d(at, -1, plane, width, 0, -1, active)
        ) * 0.25  # fmt: skip
        ys = (
            _d(at, 1, plane, width, 1, 0, active) - _d(at, 1, plane, width, -1, 0, active)
            - _d(at, -1, plane, width, 1, 0, active) + _d(at, -1, plane, width, -1, 0, active)
        ) * 0.25  # fmt: skip
        a, b, cc = yy * ss - ys * ys, xs * ys - xy * ss, xy * ys - xs * yy
        e, f, i = xx * ss - xs * xs, xs * xy - xx * ys, xx * yy - xy * xy
        determinant = xx * a + xy * b + xs * cc
        regular = tl.abs(determinant) > 1e-20
        inverse = -1.0 / tl.where(regular, determinant, 1.0)
        ox = (a * gx + b * gy + cc * gs) * inverse
        oy = (b * gx + e * gy + f * gs) * inverse
        os = (cc * gx + f * gy + i * gs) * inverse
        still = regular & (tl.abs(ox) < 0.5) & (tl.abs(oy) < 0.5) & (tl.abs(os) < 0.5)
        peak = tl.abs(c + 0.5 * (gx * ox + gy * oy + gs * os))
        trace, round_by = xx + yy, xx * yy - xy * xy
        x = (column + ox) * step + origin
        y = (row + oy) * step + origin
        good = active & still & (peak * SCALES >= contrast) & (round_by > 0)
        good &= trace * trace * edge < (edge + 1) * (edge + 1) * round_by
        good &= (x >= -0.5) & (x <= image_width - 0.5) & (y >= -0.5) & (y <= image_height - 0.5)
        sigma = FIRST * step * tl.exp2((layer + os) / SCALES)
        strength = peak.to(tl.float32).to(tl.int32, bitcast=True).to(tl.int64)
        place = begin + layer * plane + row * width + column
        key = (strength << 32) | (4294967295 - place.to(tl.int64))
        out = image * capacity + slot
        tl.store(keys + out, key, mask=good)
        tl.store(places + 3 * out, x, mask=good)
        tl.store(places + 3 * out + 1, y, mask=good)
        tl.store(places + 3 * out + 2, sigma, mask=good)
        ox = tl.minimum(tl.maximum(ox, -2.0), 2.0)
        oy = tl.minimum(tl.maximum(oy, -2.0), 2.0)
        os = tl.minimum(tl.maximum(os, -2.0), 2.0)
        active = active & regular & (still == 0)
        column = tl.where(active, column + _round(ox).to(tl.int32), column)
        row = tl.where(active, row + _round(oy).to(tl.int32), row)
        layer = tl.where(active, layer + _round(os).to(tl.int32), layer)
        active = active & (layer >= 1) & (layer < SCALES + 1) & (row >= 1) & (row < height - 1)
        active = active & (column >= 1) & (column < width - 1)
        # Those that left are not looked at again, but their addresses must stay in the octave.
        column, row, layer = (
            tl.where(active, column, 1),
            tl.where(active, row, 1),
            tl.where(active, layer, 1),
        )


def find(rows: Tensor, of: Plan, contrast: float, edge: float, capacity: int) -> Found:
    """:func:`caloric.gpu.extrema.find` with room for ``capacity`` candidates an image."""
    b, device = len(rows), rows.device
    counts = torch.zeros(b, dtype=torch.int32, device=device)
    found = torch.empty((b, capacity), dtype=torch.int32, device=device)
    limit = 0.5 * contrast / SCALES
    for octave in of.octaves:
        h, w = octave.height, octave.width
        if min(h, w) < 3:
            continue
        grid = (triton.cdiv((h - 2) * (w - 2), _CANDIDATES), b)
        _find_candidates[grid](
            rows, counts, found, octave.offset, h, w, of.total, limit, capacity,
            BLOCK=_CANDIDATES, num_warps=4,
        )  # fmt: skip
    keys = torch.zeros((b, capacity), dtype=torch.int64, device=device)
    places = torch.zeros((b, capacity, 3), dtype=torch.float64, device=device)
    octaves, steps = _octaves(of, device)
    _refine[(triton.cdiv(capacity, _REFINED), b)](
        rows, counts, found, octaves, steps, keys, places, of.total, capacity, *of.size,
        float(contrast), float(edge),
        OCTAVES=len(of.octaves), SCALES=SCALES, FIRST=FIRST, MOVES=extrema.MOVES,
        BLOCK=_REFINED, num_warps=2,
    )  # fmt: skip
    return Found(keys, places, counts)


@once
def _octaves(of: Plan, device: Any) -> tuple[Tensor, Tensor]:
    """Offsets and sizes of a plan's octaves, and their steps and origins, on the device."""
    whole = [(o.offset, o.height, o.width) for o in of.octaves]
    parts = [(o.step, o.origin) for o in of.octaves]
    return (
        torch.tensor(whole, dtype=torch.int32, device=device),
        torch.tensor(parts, dtype=torch.float64, device=device),
    )


@triton.jit
def _at(base, row, column, mask):
    return tl.load(base + row + column, mask=mask, other=0.0)


@triton.jit
def _measure(
    rows, maps, rungs, offsets, factors, shifts,
    level_offset, level_height, level_width, level_scale, level_origin,
    result, total, begin, per, image_height, image_width, unit, power,
    LEVELS: tl.constexpr, ORDER: tl.constexpr, POINTS: tl.constexpr,
    POWER: tl.constexpr, INTENSITY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Harmonics of the density at some points around one frame."""
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
    wanted = tl.load(rungs + frame) + tl.load(shifts + index, mask=valid, other=0.0)
    wanted = tl.floor(wanted + 0.5)
    level = tl.minimum(tl.maximum(wanted, 0.0), LEVELS - 1.0).to(tl.int32)
    plane = tl.load(level_offset + level)
    height, width = tl.load(level_height + level), tl.load(level_width + level)
    scale, origin = tl.load(level_scale + level), tl.load(level_origin + level)
    # From the pixel at the centre, as the plain form does.
    x0, y0 = (tx - origin) * scale, (ty - origin) * scale
    cx, cy = tl.floor(x0), tl.floor(y0)
    x = (a00 * u + a01 * v) * scale + (x0 - cx).to(tl.float32)
    y = (a10 * u + a11 * v) * scale + (y0 - cy).to(tl.float32)
    rim = (-0.5 - origin) * scale
    first_x, first_y = (rim - cx).to(tl.float32), (rim - cy).to(tl.float32)
    inside = valid & (x >= first_x) & (x <= first_x + image_width * scale)
    inside &= (y >= first_y) & (y <= first_y + image_height * scale)
    x = tl.where(inside, x, 0.0)
    y = tl.where(inside, y, 0.0)
    left, top = tl.floor(x), tl.floor(y)
    u, v = x - left, y - top
    column = tl.where(inside, cx.to(tl.int32) + left.to(tl.int32), 0)
    row = tl.where(inside, cy.to(tl.int32) + top.to(tl.int32), 0)
    right_most, bottom = width - 1, height - 1
    base = rows + ((begin + frame) // per) * total + plane
    x1 = tl.minimum(tl.maximum(column, 0), right_most)
    x2 = tl.minimum(column + 1, right_most)
    y1 = tl.minimum(tl.maximum(row, 0), bottom) * width
    y2 = tl.minimum(row + 1, bottom) * width
    b1, b2 = _at(base, y1, x1, inside), _at(base, y1, x2, inside)
    c1, c2 = _at(base, y2, x1, inside), _at(base, y2, x2, inside)
    if INTENSITY:
        value = (1 - v) * ((1 - u) * b1 + u * b2) + v * ((1 - u) * c1 + u * c2)
        cos, sin = tl.cos(value * unit), tl.sin(value * unit)
        weight = tl.where(inside, factor, 0.0)
    else:
        x0 = tl.minimum(tl.maximum(column - 1, 0), right_most)
        x3 = tl.minimum(column + 2, right_most)
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
        there = square > 1.1754943508222875e-38
        inverse = tl.where(there, tl.rsqrt(tl.where(there, square, 1.0)), 0.0)
        cos, sin = gx * inverse, gy * inverse
        length = square * inverse * scale
        if POWER == 2:
            length = tl.sqrt(length)
        elif POWER == 3:
            length = tl.where(there, tl.exp2(power * tl.log2(tl.where(there, length, 1.0))), 0.0)
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


def measured(
    rows: Tensor,
    of: Plan,
    maps: Tensor,
    begin: int,
    per: int,
    sampling: Sampling,
    kernel: Kernel,
    power: float,
    order: int,
    dtype: Any,
) -> Tensor:
    """:func:`caloric.gpu.density.measured`; frame i is of image (begin + i) // per."""
    device = rows.device
    at = density.points(sampling, power, device, torch.float32)
    levels = density.ladder(of, device, torch.float32)
    n, p = len(maps), at.padded
    result = torch.empty((n, (2 * order + 1) * p), dtype=dtype, device=device)
    intensity = kernel.feature == "intensity"
    _measure[(n * triton.cdiv(p, _POINTS),)](
        rows, maps.double().contiguous(), density.rungs(maps), at.offsets, at.factors, at.levels,
        levels.offset, levels.height, levels.width, levels.scale, levels.origin, result, of.total,
        begin, per, *of.size,
        2 * np.pi / kernel.period if intensity else 0.0, float(power),
        LEVELS=len(levels.offset), ORDER=order, POINTS=p,
        POWER=_POWERS.get(power, 3), INTENSITY=intensity, BLOCK=_POINTS, num_warps=4,
    )  # fmt: skip
    return result
