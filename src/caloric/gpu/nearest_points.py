"""The nearest points to others, in PyTorch; the Triton kernel is in nearest_points_kernels.py."""

import torch
from torch import Tensor

_DISTANCES = 1 << 26  # computed at once, at most


def nearest(points: Tensor, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return squared distances and indices (n, count) of the points (m, 2) nearest to queries."""
    parts = []
    for part in queries.split(max(1, _DISTANCES // max(1, len(points)))):
        squares = ((part[:, None] - points) ** 2).sum(2)
        parts.append(squares.topk(count, dim=1, largest=False))
    empty = queries.new_zeros((0, count))
    return (
        torch.cat([empty, *(p.values for p in parts)]),
        torch.cat([empty.long(), *(p.indices for p in parts)]),
    )
