"""Nearest neighbours on a device: the same scores as :mod:`caloric.matching`'s, in blocks."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.matching import Neighbours
from caloric.theory.gaussians import FloatArray

_SCORES = 1 << 28  # at once


def neighbours(
    a: NDArray[np.float32], b: NDArray[np.float32], xy_b: FloatArray | None, radius: float,
    device: Any,
) -> Neighbours:  # fmt: skip
    """:func:`caloric.matching.neighbours`."""
    left, right = (torch.from_numpy(v).to(device) for v in (a, b))
    places = None if xy_b is None else torch.tensor(xy_b).float().to(device)
    nearest, first, second, mutual = nearest_rows(left, right, places, radius)
    return Neighbours(
        nearest.cpu().numpy().astype(np.intp), first.cpu().numpy(), second.cpu().numpy(),
        mutual.cpu().numpy(),
    )  # fmt: skip


def _extended(rows: Tensor, order: tuple[int, int]) -> Tensor:
    """With −|row|²/2 and 1 in that order, and zeros to a multiple of four."""
    extra = (-0.5 * (rows * rows).sum(1), torch.ones_like(rows[:, 0]))
    both = torch.stack([extra[i] for i in order], 1)
    padding = rows.new_zeros((len(rows), -(rows.shape[1] + 2) % 4))
    return torch.cat([rows, both, padding], 1)


def nearest_rows(
    a: Tensor, b: Tensor, places: Tensor | None, radius: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each row of a: its nearest of b, both distances, and whether it is b's nearest too."""
    mean = b.mean(0, dtype=torch.float64).float()
    a, b = a - mean, b - mean
    # Rows (a, −|a|²/2, 1) and (b, 1, −|b|²/2): their products are −|a − b|²/2, in one pass.
    left = _extended(a, (0, 1))
    right = _extended(b, (1, 0)).T.contiguous()
    size = max(1, _SCORES // len(b))
    best, nearest, second = [], [], []
    tops = torch.full((len(b),), -torch.inf, device=a.device)
    for part in left.split(size):
        scores = part @ right
        highest, column = scores.max(1)
        tops = torch.maximum(tops, scores.amax(0))
        if places is None:
            scores.scatter_(1, column[:, None], -torch.inf)
        else:
            here = places[column]
            near = (places[:, 0] - here[:, :1]).abs() <= radius
            near &= (places[:, 1] - here[:, 1:]).abs() <= radius
            scores.masked_fill_(near, -torch.inf)
        best.append(highest)
        nearest.append(column)
        second.append(scores.amax(1))
    top, index, other = torch.cat(best), torch.cat(nearest), torch.cat(second)
    # Of rows that are equally near to the same b, the first.
    rows = torch.arange(len(a), device=a.device)
    candidates = torch.where(top == tops[index], rows, len(a))
    owner = torch.full((len(b),), len(a), device=a.device)
    owner = owner.scatter_reduce(0, index, candidates, "amin")
    apart = torch.linalg.vector_norm(a - b[index], dim=1)
    return index, apart, (-2 * other).clamp_min(0).sqrt(), owner[index] == rows
