"""CUDA graphs, which launch the hundreds of kernels of an extraction as one."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from caloric.gpu import once
from caloric.gpu.once import kept
from caloric.gpu.pipeline import Batch, extract, fusing, room
from caloric.plan import Plan


def run(pixels: Tensor, plan: Plan, masks: Tensor | None) -> Batch:
    """Return the result of :func:`extract`, repeated with a larger capacity if that was too small.

    The next run with the same shape and plan may overwrite the result.
    """
    size = (pixels.shape[1], pixels.shape[2])
    kind = (size, plan.options)
    capacity = _capacities.get(kind, room(size))
    batch = replayed(pixels, plan, masks, capacity)
    while bool(batch.crowded.any()):
        # Images like this one, such as other views of it, need as much.
        capacity = _capacities[kind] = 4 * capacity
        batch = extract(pixels, plan, masks, capacity)
    return batch


@dataclass(frozen=True, eq=False)
class _Graph:
    """A recorded extraction: it reads ``images`` and ``masks`` and writes ``batch``."""

    graph: Any
    images: Tensor
    masks: Tensor | None
    batch: Batch


_KEPT = 8  # graphs: each holds the memory of its batch
_capacities: dict[tuple[Any, ...], int] = kept({})  # where the default is too small
_graphs: OrderedDict[tuple[Any, ...], _Graph | None] = kept(OrderedDict())


def replayed(images: Tensor, plan: Plan, masks: Tensor | None = None, capacity: int = 0) -> Batch:
    """Return the result of :func:`extract`, by a graph from the second batch of a kind on.

    The next batch with the same shape and plan overwrites the result.
    """
    if not fusing(images.device) or plan.options.max_features is None:
        return extract(images, plan, masks, capacity)
    key = (tuple(images.shape), images.device, plan, masks is None, capacity)
    if key not in _graphs:
        _graphs[key] = None
        return extract(images, plan, masks, capacity)
    _graphs.move_to_end(key)
    recorded = _graphs[key]
    if recorded is None:
        while sum(g is not None for g in _graphs.values()) >= _KEPT:
            oldest = next(k for k, g in _graphs.items() if g is not None)
            del _graphs[oldest]
        recorded = _graphs[key] = _record(images, plan, masks, capacity)
    recorded.images.copy_(images)
    if recorded.masks is not None:
        recorded.masks.copy_(masks)
    recorded.graph.replay()
    return recorded.batch


def forget() -> None:
    """Release the memory of graphs and tables."""
    once.forget()
    torch.cuda.empty_cache()


def _record(images: Tensor, plan: Plan, masks: Tensor | None, capacity: int) -> _Graph:
    static, where = images.clone(), None if masks is None else masks.clone()
    extract(
        static, plan, where, capacity
    )  # creates all tables, which is not possible while recording
    graph = torch.cuda.CUDAGraph()
    # Other threads may decode and copy during the capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        batch = extract(static, plan, where, capacity)
    return _Graph(graph, static, where, batch)
