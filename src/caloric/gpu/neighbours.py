"""Nearest neighbours on a device: the same scores as on the CPU, in blocks."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.gpu import devices
from caloric.matching import neighbours as on_cpu
from caloric.matching.neighbours import Neighbours
from caloric.theory.gaussians import FloatArray

_SCORES = 1 << 28  # per block


def neighbours(
    a: NDArray[np.float32], b: NDArray[np.float32], xy_b: FloatArray | None, radius: float,
    device: Any,
) -> Neighbours:  # fmt: skip
    """Return :func:`caloric.matching.neighbours.neighbours`, which is also the fallback."""

    def on_device() -> Neighbours:
        left, right = (torch.from_numpy(v).to(device) for v in (a, b))
        places = None if xy_b is None else torch.tensor(xy_b).float().to(device)
        nearest, first, second, mutual = nearest_rows(left, right, places, radius)
        return Neighbours(
            nearest.cpu().numpy().astype(np.intp), first.cpu().numpy(), second.cpu().numpy(),
            mutual.cpu().numpy(),
        )  # fmt: skip

    result = devices.fitting(on_device, f"matching {len(a)} x {len(b)}")
    return on_cpu.neighbours(a, b, xy_b, radius) if result is None else result


def nearest_rows(
    a: Tensor, b: Tensor, places: Tensor | None, radius: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return nearest row of b, distance, second distance and mutuality (n,) for each row of a."""
    mean = b.mean(0, dtype=torch.float64).float()
    a, b = a - mean, b - mean
    half_a, half_b = 0.5 * (a * a).sum(1), 0.5 * (b * b).sum(1)
    size = max(1, _SCORES // len(b))
    best, nearest, second = [], [], []
    tops = torch.full((len(b),), -torch.inf, device=a.device)
    for part, half in zip(a.split(size), half_a.split(size), strict=True):
        scores = torch.addmm(-half_b, part, b.T) - half[:, None]
        highest, column = scores.max(1)
        tops = torch.maximum(tops, scores.amax(0))
        if places is None:
            scores.scatter_(1, column[:, None], -torch.inf)
        else:
            centres = places[column]
            near = (places[:, 0] - centres[:, :1]).abs() <= radius
            near &= (places[:, 1] - centres[:, 1:]).abs() <= radius
            scores.masked_fill_(near, -torch.inf)
        best.append(highest)
        nearest.append(column)
        second.append(scores.amax(1))
    top, index, second_score = torch.cat(best), torch.cat(nearest), torch.cat(second)
    # Among rows equally near to the same b, the first counts as its nearest.
    rows = torch.arange(len(a), device=a.device)
    candidates = torch.where(top == tops[index], rows, len(a))
    owner = torch.full((len(b),), len(a), device=a.device)
    owner = owner.scatter_reduce(0, index, candidates, "amin")
    distances = torch.linalg.vector_norm(a - b[index], dim=1)
    return index, distances, (-2 * second_score).clamp_min(0).sqrt(), owner[index] == rows
