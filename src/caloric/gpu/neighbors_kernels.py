"""Triton kernel for nearest neighbors; the PyTorch implementation is in neighbors.py.

Tensor cores compute the scores, which are not stored. Each number is the sum of two float16
numbers, and each product the sum of three products of these, which is as accurate as float32.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_BM, _BN = 128, 128  # rows and columns of a tile of scores
MAX_DIMENSION = 128  # of descriptors that the kernel supports
_SCALE = 8  # numbers are scaled to less than 2^8, so that the low parts are normal float16
_PROGRAMS = 512  # columns are divided into parts until there are this many programs


@triton.jit(do_not_specialize=["max_rows", "max_columns", "share"])
def _scan(
    high, low, half, unscale, pairs, xy, centers, best, nearest, tops,
    max_rows, max_columns, share, radius,
    SECOND: tl.constexpr, WITH_XY: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr,
):  # fmt: skip
    """Store the best column of a block of rows of a pair, among ``share`` tiles of columns.

    With ``SECOND``, the best column other than ``nearest``; with ``WITH_XY``, also other than those
    within ``radius`` of its position.
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
    out = (pair * tl.num_programs(1) + tl.program_id(1)) * max_rows + row
    highest = tl.full((BM,), float("-inf"), tl.float32)
    index = tl.zeros((BM,), tl.int32)
    source = pair * max_rows + row
    if SECOND:
        taken = tl.load(nearest + source, mask=inside, other=0)
        if WITH_XY:
            x = tl.load(centers + 2 * source, mask=inside, other=0.0)
            y = tl.load(centers + 2 * source + 1, mask=inside, other=0.0)
    start = tl.program_id(1) * share
    for tile in range(start, tl.minimum(start + share, (count_b + BN - 1) // BN)):
        column = tile * BN + tl.arange(0, BN)
        valid = column < count_b
        at_b = (begin_b + column).to(tl.int64)[None, :] * BD + entry[:, None]
        b_high = tl.load(high + at_b, mask=valid[None, :], other=0.0)
        b_low = tl.load(low + at_b, mask=valid[None, :], other=0.0)
        score = tl.dot(a_low, b_high)
        score = tl.dot(a_high, b_low, score)
        score = tl.dot(a_high, b_high, score)
        half_b = tl.load(half + begin_b + column, mask=valid, other=0.0)
        score = score * factor - half_b[None, :] - half_a[:, None]
        score = tl.where(valid[None, :], score, float("-inf"))
        if SECOND:
            if WITH_XY:
                b_x = tl.load(xy + 2 * (begin_b + column), mask=valid, other=0.0)
                b_y = tl.load(xy + 2 * (begin_b + column) + 1, mask=valid, other=0.0)
                near = tl.abs(b_x[None, :] - x[:, None]) <= radius
                near &= tl.abs(b_y[None, :] - y[:, None]) <= radius
            else:
                near = column[None, :] == taken[:, None]
            score = tl.where(near, float("-inf"), score)
            highest = tl.maximum(highest, tl.max(score, 1))
        else:
            top, where = tl.max(score, 1, return_indices=True)
            better = top > highest  # of equal scores the first is kept
            highest = tl.where(better, top, highest)
            index = tl.where(better, tile * BN + where, index)
            score = tl.where(inside[:, None], score, float("-inf"))
            blocks = (max_rows + BM - 1) // BM
            to = (pair * blocks + tl.program_id(0)) * max_columns + column
            tl.store(tops + to, tl.max(score, 0), mask=valid)
    tl.store(best + out, highest, mask=inside)
    if not SECOND:
        tl.store(nearest + out, index, mask=inside)


@dataclass(frozen=True, eq=False)
class Split:
    """Descriptors (n, d) times a power of 2, as sums ``high + low`` of float16 numbers.

    ``half`` (n,) is half the squared norm of each descriptor, and ``unscale`` is the inverse square
    of the power of 2.
    """

    high: Tensor
    low: Tensor
    half: Tensor
    unscale: Tensor


def split(values: Tensor) -> Split:
    """Return float32 descriptors (n, d) split, and padded with zeros to the kernel's block size."""
    d = values.shape[1]
    wide = max(16, triton.next_power_of_2(d))
    largest = values.abs().amax().clamp_min(1e-30)
    scale = torch.exp2(_SCALE - torch.ceil(torch.log2(largest)))
    padded = torch.nn.functional.pad(values * scale, (0, wide - d))
    high = padded.half()
    low = (padded - high.float()).half()
    return Split(high, low, 0.5 * (values * values).sum(1), 1 / (scale * scale))


def nearest_rows(
    values: Split, pairs: Tensor, xy: Tensor | None, radius: float, max_counts: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return nearest column, score and second score (p, n), and best score of each column (p, m).

    ``pairs`` (p, 4) are the first row and the number of rows of both sets, and ``max_counts`` =
    (n, m) the largest numbers of rows. Columns whose positions ``xy`` (rows, 2) are within
    ``radius`` of the nearest are not its second.
    """
    (n, m), p, device = max_counts, len(pairs), pairs.device
    blocks, tiles = triton.cdiv(n, _BM), triton.cdiv(m, _BN)
    parts = max(1, min(tiles, _PROGRAMS // (blocks * p)))
    share = triton.cdiv(tiles, parts)
    best = torch.full((p, parts, n), -torch.inf, device=device)
    index = torch.zeros((p, parts, n), dtype=torch.int32, device=device)
    tops = torch.full((p, blocks, m), -torch.inf, device=device)
    unused = torch.zeros(2, device=device)
    sizes = (n, m, share, float(radius))
    options = {"BM": _BM, "BN": _BN, "BD": values.high.shape[1], "num_warps": 8, "num_stages": 2}
    inputs = (values.high, values.low, values.half, values.unscale, pairs)
    grid = (blocks, parts, p)
    _scan[grid](
        *inputs, unused, unused, best, index, tops, *sizes, SECOND=False, WITH_XY=False, **options
    )
    top = best.amax(1)
    # Of columns with equal scores the first is the nearest.
    nearest = torch.where(best == top[:, None], index, m).amin(1).clamp_max(m - 1)
    centers = unused
    if xy is not None:
        centers = xy[(pairs[:, 2:3] + nearest).long()].contiguous()
    _scan[grid](
        *inputs, unused if xy is None else xy, centers, best, nearest, tops, *sizes,
        SECOND=True, WITH_XY=xy is not None, **options,
    )  # fmt: skip
    return nearest, top, best.amax(1), tops.amax(1)
