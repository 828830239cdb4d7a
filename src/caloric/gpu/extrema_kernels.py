"""Triton kernels for extrema; the PyTorch implementation is in extrema.py."""

from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.detector import extrema
from caloric.gpu.caches import cached
from caloric.gpu.pyramid import Peaks, Pyramid, full_sizes
from caloric.gpu.scalespace_kernels import octave_length, split_four
from caloric.image.scalespace import FIRST, SCALES

_CANDIDATES = 128  # groups of four pixels per program
_REFINED = 64  # candidates per program


@triton.jit
def _six(rows, at, x, width, inside, ALIGNED: tl.constexpr, COUNT: tl.constexpr):
    """Return pixels x − 1 to x + 4 of a row; ``at`` is the index of pixel x in ``rows``."""
    four = tl.arange(0, 4)[None, :]
    within = inside[:, None] & (four >= 0)
    if not ALIGNED:
        within &= x[:, None] + four < width
    middle = tl.load(rows + (at[:, None] + four), mask=within, other=0.0)
    before = tl.load(rows + (at - 1), mask=inside & (x > 0), other=0.0)
    after = tl.load(rows + (at + 4), mask=inside & (x + 4 < width), other=0.0)
    return (before,) + split_four(middle, COUNT) + (after,)


@triton.jit
def _store_candidates(
    rows, start, pixel, x, width, plane, right, inside, limit, count, out, capacity,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the maxima of |D| among four pixels from x on.

    ``pixel`` is the index of pixel x in its pyramid, which starts at ``start``; ``right`` is the
    width of the image in this octave. ``ALIGNED``: all rows begin at multiples of four pixels.
    """
    # The maximum of |D| over 3 x 3 pixels in each of the five layers of D, and |D| at the center.
    maxima = ()
    center = ()
    for dy in tl.static_range(-1, 2):
        at = start + (pixel + dy * width)
        if ALIGNED:
            at = tl.multiple_of(at, 4)
        below = _six(rows, at, x, width, inside, ALIGNED, BLOCK)
        row_maxima = ()
        for layer in tl.static_range(1, 6):
            at = start + (pixel + (layer * plane + dy * width))
            if ALIGNED:
                at = tl.multiple_of(at, 4)
            above = _six(rows, at, x, width, inside, ALIGNED, BLOCK)
            d = ()
            for k in tl.static_range(6):
                d = d + (tl.abs(above[k] - below[k]),)
            for k in tl.static_range(4):
                highest = tl.maximum(d[k], tl.maximum(d[k + 1], d[k + 2]))
                if dy > -1:
                    highest = tl.maximum(highest, maxima[4 * (layer - 1) + k])
                row_maxima = row_maxima + (highest,)
                if dy == 0:
                    center = center + (d[k + 1],)
            below = above
        maxima = row_maxima
    thread_count = tl.zeros((BLOCK,), tl.int32)
    extremal = ()
    for s in tl.static_range(1, 4):
        for k in tl.static_range(4):
            around = tl.maximum(
                maxima[4 * (s - 1) + k], tl.maximum(maxima[4 * s + k], maxima[4 * s + 4 + k])
            )
            c = center[4 * s + k]
            valid = inside & (x + k > 0) & (x + k < right - 1)
            is_extremum = (valid & (c == around) & (c > limit)).to(tl.int32)
            extremal = extremal + (is_extremum,)
            thread_count += is_extremum
    block_count = tl.sum(thread_count, 0)
    if block_count > 0:
        slot = tl.atomic_add(count, block_count) + tl.cumsum(thread_count, 0) - thread_count
        for s in tl.static_range(1, 4):
            for k in tl.static_range(4):
                flag = extremal[4 * (s - 1) + k]
                tl.store(out + slot, pixel + s * plane + k, mask=(flag > 0) & (slot < capacity))
                slot += flag


@triton.jit(do_not_specialize=["octave_count", "total", "capacity"])
def _find_candidates(
    rows, counts, candidates, octaves, programs, sizes, octave_count, total, limit, capacity,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the 3 x 3 x 3 maxima of |D| in three layers of all octaves, in any order.

    A program processes ``BLOCK`` groups of four pixels of an octave, each thread one group.
    """
    image = tl.program_id(1).to(tl.int64)
    octave = 0
    for o in range(1, octave_count):
        octave += (tl.program_id(0) >= tl.load(programs + o)).to(tl.int32)
    offset, height = tl.load(octaves + 3 * octave), tl.load(octaves + 3 * octave + 1).to(tl.int32)
    width = tl.load(octaves + 3 * octave + 2).to(tl.int32)
    index = (tl.program_id(0) - tl.load(programs + octave)) * BLOCK + tl.arange(0, BLOCK)
    across = (width + 3) // 4
    row, x = index // across + 1, 4 * (index % across)
    right = octave_length(tl.load(sizes + 2 * image + 1), octave)
    inside = (row < octave_length(tl.load(sizes + 2 * image), octave) - 1) & (x < right - 1)
    plane = height.to(tl.int64) * width
    pixel = offset + row * width + x
    start = image * total
    count, out = counts + image, candidates + image * capacity
    # Two calls, because aligned groups of four pixels are loaded as one vector.
    if (width % 4 == 0) & (offset % 4 == 0) & (total % 4 == 0):
        _store_candidates(
            rows, start, pixel, x, width, plane, right, inside, limit, count, out, capacity,
            True, BLOCK,
        )  # fmt: skip
    else:
        _store_candidates(
            rows, start, pixel, x, width, plane, right, inside, limit, count, out, capacity,
            False, BLOCK,
        )  # fmt: skip


@triton.jit
def _d(at, ds, plane, width, dy, dx, mask):
    here = at + ds * plane + dy * width + dx
    above = tl.load(here + plane, mask=mask, other=0.0)
    return (above - tl.load(here, mask=mask, other=0.0)).to(tl.float64)


@triton.jit(do_not_specialize=["total", "capacity", "octave_count"])
def _refine(
    rows, counts, candidates, octaves, steps, sizes, keys, positions, total, capacity,
    octave_count, contrast, edge,
    SCALES: tl.constexpr, FIRST: tl.constexpr, FITS: tl.constexpr, REGULAR: tl.constexpr,
    MOVED: tl.constexpr, ACCEPTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fit parabolas to candidates in float64, moving them until they converge, and store peaks."""
    image = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    count = tl.minimum(tl.load(counts + image), capacity)
    if tl.program_id(0) * BLOCK >= count:
        return
    active = slot < count
    index = tl.load(candidates + image * capacity + slot, mask=active, other=0)
    image_height, image_width = tl.load(sizes + 2 * image), tl.load(sizes + 2 * image + 1)
    octave = tl.zeros((BLOCK,), tl.int32) - 1
    start = tl.zeros((BLOCK,), tl.int64)
    height = tl.zeros((BLOCK,), tl.int32) + 1
    width = tl.zeros((BLOCK,), tl.int32) + 1
    step = tl.zeros((BLOCK,), tl.float64)
    origin = tl.zeros((BLOCK,), tl.float64)
    for o in range(octave_count):
        first = tl.load(octaves + 3 * o)
        later = index >= first
        octave += later.to(tl.int32)
        start = tl.where(later, first, start)
        height = tl.where(later, tl.load(octaves + 3 * o + 1).to(tl.int32), height)
        width = tl.where(later, tl.load(octaves + 3 * o + 2).to(tl.int32), width)
        step = tl.where(later, tl.load(steps + 2 * o), step)
        origin = tl.where(later, tl.load(steps + 2 * o + 1), origin)
    bottom, right_end = octave_length(image_height, octave), octave_length(image_width, octave)
    plane = height.to(tl.int64) * width
    rest = index - start
    layer = (rest // plane).to(tl.int32)
    rest = (rest % plane).to(tl.int32)
    row, column = rest // width, rest % width
    for k in range(FITS):
        at = rows + image * total + start + layer * plane + row * width + column
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
        regular = tl.abs(determinant) > REGULAR
        inverse = -1.0 / tl.where(regular, determinant, 1.0)
        ox = (a * gx + b * gy + cc * gs) * inverse
        oy = (b * gx + e * gy + f * gs) * inverse
        os = (cc * gx + f * gy + i * gs) * inverse
        right = ((ox > MOVED) & (column < right_end - 2)).to(tl.int32)
        right -= ((ox < -MOVED) & (column > 1)).to(tl.int32)
        down = ((oy > MOVED) & (row < bottom - 2)).to(tl.int32)
        down -= ((oy < -MOVED) & (row > 1)).to(tl.int32)
        moving = regular & ((right != 0) | (down != 0)) & (k + 1 < FITS)
        still = regular & (moving == 0)
        still &= (tl.abs(ox) < ACCEPTED) & (tl.abs(oy) < ACCEPTED) & (tl.abs(os) < ACCEPTED)
        peak = tl.abs(c + 0.5 * (gx * ox + gy * oy + gs * os))
        trace, determinant_xy = xx + yy, xx * yy - xy * xy
        x = (column + ox) * step + origin
        y = (row + oy) * step + origin
        good = active & still & (peak * SCALES >= contrast) & (determinant_xy > 0)
        good &= trace * trace * edge < (edge + 1) * (edge + 1) * determinant_xy
        good &= (x >= -0.5) & (x <= image_width - 0.5) & (y >= -0.5) & (y <= image_height - 0.5)
        sigma = FIRST * step * tl.exp2((layer + os) / SCALES)
        strength = peak.to(tl.float32).to(tl.int32, bitcast=True).to(tl.int64)
        pixel = start + layer * plane + row * width + column
        key = (strength << 32) | (4294967295 - pixel.to(tl.int64))
        out = image * capacity + slot
        tl.store(keys + out, key, mask=good)
        tl.store(positions + 3 * out, x, mask=good)
        tl.store(positions + 3 * out + 1, y, mask=good)
        tl.store(positions + 3 * out + 2, sigma, mask=good)
        active = active & moving
        column = tl.where(active, column + right, column)
        row = tl.where(active, row + down, row)


def find(
    rows: Tensor,
    pyramid: Pyramid,
    contrast: float,
    edge: float,
    capacity: int,
    sizes: Tensor | None = None,
) -> Peaks:
    """Return :func:`caloric.gpu.extrema.find` for up to ``capacity`` candidates per image."""
    b, device = len(rows), rows.device
    sizes = full_sizes(pyramid, b, device) if sizes is None else sizes
    counts = torch.zeros(b, dtype=torch.int32, device=device)
    candidates = torch.empty((b, capacity), dtype=torch.int64, device=device)
    limit = 0.5 * contrast / SCALES
    octaves, steps, programs, program_count = _octaves(pyramid, device)
    _find_candidates[(program_count, b)](
        rows, counts, candidates, octaves, programs, sizes, len(pyramid.octaves), pyramid.total,
        limit, capacity, BLOCK=_CANDIDATES, num_warps=4,
    )  # fmt: skip
    keys = torch.zeros((b, capacity), dtype=torch.int64, device=device)
    positions = torch.zeros((b, capacity, 3), dtype=torch.float64, device=device)
    _refine[(triton.cdiv(capacity, _REFINED), b)](
        rows, counts, candidates, octaves, steps, sizes, keys, positions, pyramid.total, capacity,
        len(pyramid.octaves), float(contrast), float(edge),
        SCALES=SCALES, FIRST=FIRST, FITS=extrema.FITS,
        REGULAR=extrema.REGULAR, MOVED=extrema.MOVED, ACCEPTED=extrema.ACCEPTED,
        BLOCK=_REFINED, num_warps=2,
    )  # fmt: skip
    return Peaks(keys, positions, counts)


@cached
def _octaves(pyramid: Pyramid, device: Any) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return the octaves as tensors on the device, for the kernels.

    The results are offset, height and width (octaves, 3), step and origin (octaves, 2), the first
    program of ``_find_candidates`` for each octave (octaves,), and the number of programs.
    """
    shapes = [(o.offset, o.height, o.width) for o in pyramid.octaves]
    grids = [(o.step, o.origin) for o in pyramid.octaves]
    # An octave of fewer than three rows has no candidates.
    groups = [max(0, o.height - 2) * triton.cdiv(o.width, 4) for o in pyramid.octaves]
    ends = list(accumulate(triton.cdiv(n, _CANDIDATES) for n in groups))
    return (
        torch.tensor(shapes, dtype=torch.int64, device=device),
        torch.tensor(grids, dtype=torch.float64, device=device),
        torch.tensor([0, *ends[:-1]], dtype=torch.int32, device=device),
        max(1, ends[-1]),
    )
