"""Triton kernel for the nearest points; the PyTorch implementation is in nearest_points.py."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_QUERIES, _POINTS = 16, 128  # per program, and of a block that is compared at once


@triton.jit(do_not_specialize=["total", "number"])
def _nearest(
    points, queries, squares, indices, total, number,
    COUNT: tl.constexpr, SLOTS: tl.constexpr, QUERIES: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Store the nearest points to a block of queries, unordered."""
    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    valid = query < number
    qx = tl.load(queries + 2 * query, mask=valid, other=0.0)[:, None]
    qy = tl.load(queries + 2 * query + 1, mask=valid, other=0.0)[:, None]
    slot = tl.arange(0, SLOTS)[None, :]
    # Slots beyond the count are never the farthest.
    best = tl.where(slot < COUNT, float("inf"), -1.0) + tl.zeros((QUERIES, SLOTS), tl.float64)
    nearest_rows = tl.zeros((QUERIES, SLOTS), tl.int32)
    for start in range(0, total, POINTS):
        point = start + tl.arange(0, POINTS)
        inside = point < total
        px = tl.load(points + 2 * point, mask=inside, other=float("inf"))[None, :]
        py = tl.load(points + 2 * point + 1, mask=inside, other=float("inf"))[None, :]
        distance = (px - qx) * (px - qx) + (py - qy) * (py - qy)
        closest, farthest = tl.min(distance, 1), tl.max(best, 1)
        while tl.max((closest < farthest).to(tl.int32), 0) > 0:
            at, worst = tl.argmin(distance, 1), tl.argmax(best, 1)
            replaced = (slot == worst[:, None]) & (closest < farthest)[:, None]
            best = tl.where(replaced, closest[:, None], best)
            nearest_rows = tl.where(replaced, start + at[:, None], nearest_rows)
            distance = tl.where(
                tl.arange(0, POINTS)[None, :] == at[:, None], float("inf"), distance
            )
            closest, farthest = tl.min(distance, 1), tl.max(best, 1)
    out = query[:, None] * COUNT + slot
    stored = valid[:, None] & (slot < COUNT)
    tl.store(squares + out, best, mask=stored)
    tl.store(indices + out, nearest_rows.to(tl.int64), mask=stored)


def nearest(points: Tensor, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return :func:`caloric.gpu.nearest_points.nearest`, unordered."""
    n, device = len(queries), queries.device
    squares = torch.empty((n, count), dtype=torch.float64, device=device)
    indices = torch.empty((n, count), dtype=torch.int64, device=device)
    if n:
        _nearest[(triton.cdiv(n, _QUERIES),)](
            points.double().contiguous(), queries.double().contiguous(), squares, indices,
            len(points), n, COUNT=count, SLOTS=triton.next_power_of_2(count), QUERIES=_QUERIES,
            POINTS=_POINTS, num_warps=4,
        )  # fmt: skip
    return squares, indices
