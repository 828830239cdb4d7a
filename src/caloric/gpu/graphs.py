"""CUDA graphs, which launch the hundreds of kernels of an extraction as one."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from caloric.gpu import backend, caches
from caloric.gpu.caches import kept
from caloric.gpu.pipeline import Batch, extract, room
from caloric.options import ExtractOptions

_KEPT = 16  # graphs: each holds the memory of its batch
_capacities: dict[tuple[Any, ...], int] = kept({})  # where the default is too small


def capacity(size: tuple[int, int], options: ExtractOptions) -> int:
    """Return the size of the candidate buffer for images (h, w)."""
    return _capacities.get((size, options), room(size))


def enlarge(size: tuple[int, int], options: ExtractOptions) -> None:
    """Enlarge the candidate buffer for images of this size with these options."""
    _capacities[size, options] = 4 * capacity(size, options)


def run(pixels: Tensor, options: ExtractOptions, masks: Tensor | None) -> Batch:
    """Return the result of :func:`extract`, repeated with a larger buffer if it overflowed.

    The next run with the same shape and options may overwrite the result.
    """
    size = (pixels.shape[1], pixels.shape[2])
    while True:
        most = capacity(size, options)

        def work(pixels: Tensor, masks: Tensor | None, most: int = most) -> Batch:
            return extract(pixels, options, masks, most)

        key = None if options.max_features is None else (options, most)
        batch: Batch = recorded(work, key, pixels, masks)
        if not bool(batch.crowded.any()):
            return batch
        enlarge(size, options)


@dataclass(frozen=True, eq=False)
class _Graph:
    """A recorded function: it reads ``inputs`` and writes ``result``."""

    graph: Any
    inputs: tuple[Tensor | None, ...]
    result: Any


_graphs: OrderedDict[tuple[Any, ...], _Graph | None] = kept(OrderedDict())


def recorded(work: Callable[..., Any], key: tuple[Any, ...] | None, *inputs: Tensor | None) -> Any:
    """Return ``work(*inputs)``, by a recorded graph from the second time on.

    ``key`` says what is done to inputs of the same shapes and types. The next call with the same
    one overwrites the result. Work with the key None, whose results have no fixed size, is not
    recorded.
    """
    device = next(v.device for v in inputs if v is not None)
    if key is None or not backend.of(device).compiled:
        return work(*inputs)
    kinds = tuple(None if v is None else (tuple(v.shape), v.dtype) for v in inputs)
    whole = (key, device, kinds)
    if whole not in _graphs:
        _graphs[whole] = None
        return work(*inputs)
    _graphs.move_to_end(whole)
    graph = _graphs[whole]
    if graph is None:
        while sum(g is not None for g in _graphs.values()) >= _KEPT:
            oldest = next(k for k, g in _graphs.items() if g is not None)
            del _graphs[oldest]
        graph = _graphs[whole] = _record(work, inputs)
    for own, given in zip(graph.inputs, inputs, strict=True):
        if own is not None and given is not None:
            own.copy_(given)
    graph.graph.replay()
    return graph.result


def _record(work: Callable[..., Any], inputs: tuple[Tensor | None, ...]) -> _Graph:
    own = tuple(None if v is None else v.clone() for v in inputs)
    work(*own)  # creates all tables, which is not possible while recording
    graph = torch.cuda.CUDAGraph()
    # Other threads may decode and copy during the capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = work(*own)
    return _Graph(graph, own, result)


def forget() -> None:
    """Release the memory of graphs and tables."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    caches.forget()
    torch.cuda.empty_cache()
