"""Searches among points on a device: see :mod:`caloric.matching.points`."""

from typing import Any

import torch
from torch import Tensor

from caloric.gpu import backend, cuda_streams, upload
from caloric.matching import agreement
from caloric.matching.points import PointSearch
from caloric.types import FloatArray


def _nearest(points: Tensor, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    squares, indices = backend.of(points.device).nearest(points, queries, count)
    squares, order = squares.sort(dim=1, stable=True)
    return squares.sqrt(), indices.gather(1, order)


def _are_first(cells: Tensor) -> Tensor:
    rows = torch.arange(len(cells), device=cells.device)
    _, group = torch.unique(cells[:, 0] * (1 << 32) + cells[:, 1], return_inverse=True)
    first = torch.full_like(rows, len(rows)).scatter_reduce(0, group, rows, "amin")
    return first[group] == rows


ON_DEVICE = PointSearch(_nearest, _are_first)


def scores(a: FloatArray, b: FloatArray, size_b: tuple[float, float], device: Any) -> FloatArray:
    """Return :func:`caloric.matching.agreement.scores`, computed on a device."""
    with torch.no_grad(), cuda_streams.using(device):
        first, second = (upload.as_tensor(v, device) for v in (a, b))
        result: FloatArray = agreement.scores(first, second, size_b, ON_DEVICE).cpu().numpy()
        return result
