"""Extrema by Triton kernels: candidates and their refinement; the plain form is in extrema.py."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from caloric.detector import extrema
from caloric.gpu.extrema import Peaks
from caloric.gpu.once import once
from caloric.gpu.scalespace import Pyramid
from caloric.image.scalespace import FIRST, SCALES

_CANDIDATES = 512  # pixels per program
_REFINED = 64  # candidates per program


@triton.jit(do_not_specialize=["offset", "height", "width", "total", "capacity"])
def _find_candidates(
    rows, counts, found, offset, height, width, total, limit, capacity,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Store the 3 x 3 x 3 maxima of |D| in three layers, in any order."""
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


@triton.jit(do_not_specialize=["total", "capacity", "image_height", "image_width", "octave_count"])
def _refine(
    rows, counts, found, octaves, steps, keys, places, total, capacity, image_height, image_width,
    octave_count, contrast, edge, SCALES: tl.constexpr, FIRST: tl.constexpr,
    FITS: tl.constexpr, REGULAR: tl.constexpr, MOVED: tl.constexpr, ACCEPTED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Move candidates to the peaks of their parabolas, in float64, until they converge or leave."""
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
    for o in range(octave_count):
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
    for k in range(FITS):
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
        regular = tl.abs(determinant) > REGULAR
        inverse = -1.0 / tl.where(regular, determinant, 1.0)
        ox = (a * gx + b * gy + cc * gs) * inverse
        oy = (b * gx + e * gy + f * gs) * inverse
        os = (cc * gx + f * gy + i * gs) * inverse
        right = ((ox > MOVED) & (column < width - 2)).to(tl.int32)
        right -= ((ox < -MOVED) & (column > 1)).to(tl.int32)
        down = ((oy > MOVED) & (row < height - 2)).to(tl.int32)
        down -= ((oy < -MOVED) & (row > 1)).to(tl.int32)
        moving = regular & ((right != 0) | (down != 0)) & (k + 1 < FITS)
        still = regular & (moving == 0)
        still &= (tl.abs(ox) < ACCEPTED) & (tl.abs(oy) < ACCEPTED) & (tl.abs(os) < ACCEPTED)
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
        active = active & moving
        column = tl.where(active, column + right, column)
        row = tl.where(active, row + down, row)


def find(rows: Tensor, pyramid: Pyramid, contrast: float, edge: float, capacity: int) -> Peaks:
    """Return :func:`caloric.gpu.extrema.find` for up to ``capacity`` candidates per image."""
    b, device = len(rows), rows.device
    counts = torch.zeros(b, dtype=torch.int32, device=device)
    found = torch.empty((b, capacity), dtype=torch.int32, device=device)
    limit = 0.5 * contrast / SCALES
    for octave in pyramid.octaves:
        h, w = octave.height, octave.width
        if min(h, w) < 3:
            continue
        grid = (triton.cdiv((h - 2) * (w - 2), _CANDIDATES), b)
        _find_candidates[grid](
            rows, counts, found, octave.offset, h, w, pyramid.total, limit, capacity,
            BLOCK=_CANDIDATES, num_warps=4,
        )  # fmt: skip
    keys = torch.zeros((b, capacity), dtype=torch.int64, device=device)
    places = torch.zeros((b, capacity, 3), dtype=torch.float64, device=device)
    octaves, steps = _octaves(pyramid, device)
    _refine[(triton.cdiv(capacity, _REFINED), b)](
        rows, counts, found, octaves, steps, keys, places, pyramid.total, capacity, *pyramid.size,
        len(pyramid.octaves), float(contrast), float(edge),
        SCALES=SCALES, FIRST=FIRST, FITS=extrema.FITS,
        REGULAR=extrema.REGULAR, MOVED=extrema.MOVED, ACCEPTED=extrema.ACCEPTED,
        BLOCK=_REFINED, num_warps=2,
    )  # fmt: skip
    return Peaks(keys, places, counts)


@once
def _octaves(pyramid: Pyramid, device: Any) -> tuple[Tensor, Tensor]:
    """Return offset, height, width (octaves, 3) and step, origin (octaves, 2) on the device."""
    whole = [(o.offset, o.height, o.width) for o in pyramid.octaves]
    parts = [(o.step, o.origin) for o in pyramid.octaves]
    return (
        torch.tensor(whole, dtype=torch.int32, device=device),
        torch.tensor(parts, dtype=torch.float64, device=device),
    )
