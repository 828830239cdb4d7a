"""Nearest neighbors of many pairs of images by a Triton kernel; the plain form: neighbors.py.

Scores are products on tensor cores. A number is the sum of two of half precision, and a product
that of three of theirs, so that scores are as exact as products of float32; they are not stored.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_BM, _BN = 128, 128  # rows and columns of a tile of scores
WIDEST = 128  # dimensions of descriptors that the kernel has room for
_SCALE = 8  # the largest number becomes less than 2 to this power, so that small parts stay normal
_PROGRAMS = 512  # to share the work of few pairs


@triton.jit(do_not_specialize=["rows_most", "columns_most", "share"])
def _scan(
    high, low, half, unscale, pairs, places, centers, best, nearest, tops,
    rows_most, columns_most, share, radius,
    SECOND: tl.constexpr, PLACES: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    """Store the best column of some rows of a pair, among a share of the columns.

    With ``SECOND`` the best one that is not ``nearest`` or, with ``PLACES``, not near its place.
    """
    pair = tl.program_id(2).to(tl.int64)
    begin_a, count_a = tl.load(pairs + 4 * pair), tl.load(pairs + 4 * pair + 1)
    begin_b, count_b = tl.load(pairs + 4 * pair + 2), tl.load(pairs + 4 * pair + 3)
    first = tl.program_id(0) * BM
    if first >= count_a:
        return
    row = first + tl.arange(0, BM)
    inside = row < count_a
    entry = tl.arange(0, BD)
    at_a = (begin_a + row).to(tl.int64)[:, None] * BD + entry[None, :]
    a_high = tl.load(high + at_a, mask=inside[:, None], other=0.0)
    a_low = tl.load(low + at_a, mask=inside[:, None], other=0.0)
    half_a = tl.load(half + begin_a + row, mask=inside, other=0.0)
    factor = tl.load(unscale)
    out = (pair * tl.num_programs(1) + tl.program_id(1)) * rows_most + row
    highest = tl.full((BM,), float("-inf"), tl.float32)
    index = tl.zeros((BM,), tl.int32)
    known = pair * rows_most + row
    if SECOND:
        taken = tl.load(nearest + known, mask=inside, other=0)
        if PLACES:
            x = tl.load(centers + 2 * known, mask=inside, other=0.0)
            y = tl.load(centers + 2 * known + 1, mask=inside, other=0.0)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, (count_b + BN - 1) // BN)):
        column = tile * BN + tl.arange(0, BN)
        there = column < count_b
        at_b = (begin_b + column).to(tl.int64)[None, :] * BD + entry[:, None]
        b_high = tl.load(high + at_b, mask=there[None, :], other=0.0)
        b_low = tl.load(low + at_b, mask=there[None, :], other=0.0)
        score = tl.dot(a_low, b_high)
        score = tl.dot(a_high, b_low, score)
        score = tl.dot(a_high, b_high, score)
        half_b = tl.load(half + begin_b + column, mask=there, other=0.0)
        score = score * factor - half_b[None, :] - half_a[:, None]
        score = tl.where(there[None, :], score, float("-inf"))
        if SECOND:
            if PLACES:
                b_x = tl.load(places + 2 * (begin_b + column), mask=there, other=0.0)
                b_y = tl.load(places + 2 * (begin_b + column) + 1, mask=there, other=0.0)
                near = tl.abs(b_x[None, :] - x[:, None]) <= radius
                near &= tl.abs(b_y[None, :] - y[:, None]) <= radius
            else:
                near = column[None, :] == taken[:, None]
            score = tl.where(near, float("-inf"), score)
            highest = tl.maximum(highest, tl.max(score, 1))
        else:
            top, where = tl.max(score, 1, return_indices=True)
            better = top > highest  # among equal ones the first
            highest = tl.where(better, top, highest)
            index = tl.where(better, tile * BN + where, index)
            score = tl.where(inside[:, None], score, float("-inf"))
            blocks = (rows_most + BM - 1) // BM
            beside = (pair * blocks + tl.program_id(0)) * columns_most + column
            tl.store(tops + beside, tl.max(score, 0), mask=there)
    tl.store(best + out, highest, mask=inside)
    if not SECOND:
        tl.store(nearest + out, index, mask=inside)


@dataclass(frozen=True, eq=False)
class Split:
    """Descriptors (n, d) as sums of two numbers of half precision, times a power of 2.

    ``half`` (n,) is half the squared length of each; ``unscale`` the inverse square of the power.
    """

    high: Tensor
    low: Tensor
    half: Tensor
    unscale: Tensor


def split(values: Tensor) -> Split:
    """Return float32 descriptors (n, d), padded with zeros to what the kernel multiplies."""
    d = values.shape[1]
    wide = max(16, triton.next_power_of_2(d))
    largest = values.abs().amax().clamp_min(1e-30)
    scale = torch.exp2(_SCALE - torch.ceil(torch.log2(largest)))
    padded = torch.nn.functional.pad(values * scale, (0, wide - d))
    high = padded.half()
    low = (padded - high.float()).half()
    return Split(high, low, 0.5 * (values * values).sum(1), 1 / (scale * scale))


def nearest_rows(
    values: Split, pairs: Tensor, places: Tensor | None, radius: float, most: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return nearest column, score and second score (p, n), and best score of each column (p, m).

    ``pairs`` (p, 4) are the first row and the number of rows of both sets, ``most`` = (n, m) the
    largest numbers, ``places`` (rows, 2) are near each other within ``radius``.
    """
    (n, m), p, device = most, len(pairs), pairs.device
    blocks, tiles = triton.cdiv(n, _BM), triton.cdiv(m, _BN)
    parts = max(1, min(tiles, _PROGRAMS // (blocks * p)))
    share = triton.cdiv(tiles, parts)
    best = torch.full((p, parts, n), -torch.inf, device=device)
    index = torch.zeros((p, parts, n), dtype=torch.int32, device=device)
    tops = torch.full((p, blocks, m), -torch.inf, device=device)
    nothing = torch.zeros(2, device=device)
    sizes = (n, m, share, float(radius))
    options = {"BM": _BM, "BN": _BN, "BD": values.high.shape[1], "num_warps": 8, "num_stages": 2}
    inputs = (values.high, values.low, values.half, values.unscale, pairs)
    grid = (blocks, parts, p)
    _scan[grid](
        *inputs, nothing, nothing, best, index, tops, *sizes, SECOND=False, PLACES=False, **options
    )
    top = best.amax(1)
    # Among columns that are equally near the first counts.
    nearest = torch.where(best == top[:, None], index, m).amin(1).clamp_max(m - 1)
    centers = nothing
    if places is not None:
        centers = places[(pairs[:, 2:3] + nearest).long()].contiguous()
    _scan[grid](
        *inputs, nothing if places is None else places, centers, best, nearest, tops, *sizes,
        SECOND=True, PLACES=places is not None, **options,
    )  # fmt: skip
    return nearest, top, best.amax(1), tops.amax(1)
