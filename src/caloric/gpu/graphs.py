"""CUDA graphs, which launch the hundreds of kernels of an extraction at once."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from caloric.gpu import backend, caches, cuda_streams
from caloric.gpu.caches import register
from caloric.gpu.pipeline import Batch, default_capacity, extract
from caloric.options import ExtractOptions

_MAX_GRAPHS = 24  # each holds the memory of what it computes
# Computations for a pair of images are recorded if the images have at most this many pixels: for
# larger ones, launching the kernels takes a small part of the time, and graphs hold much memory.
PIXELS = 1 << 20
# Enlarged capacities, by image size and options. They survive :func:`clear`: a retry with the
# default would overflow again.
_capacities: dict[tuple[Any, ...], int] = {}


def capacity(size: tuple[int, int], options: ExtractOptions) -> int:
    """Return the size of the candidate buffer for images (h, w)."""
    return _capacities.get((size, options), default_capacity(size))


def enlarge(size: tuple[int, int], options: ExtractOptions, overflowed: int) -> None:
    """Enlarge the candidate buffer for images (h, w) after one with this capacity overflowed."""
    _capacities[size, options] = max(capacity(size, options), 4 * overflowed)


def restore_capacity(size: tuple[int, int], options: ExtractOptions) -> None:
    """Return to the default candidate buffer for images (h, w), after a larger one did not fit."""
    _capacities.pop((size, options), None)


def padded_size(count: int, sizes: Iterable[int], pixels: int = 0) -> int | None:
    """Return the smallest of the ascending sizes that holds ``count`` rows, to record a graph.

    It is None if all are too small, or if the images have too many pixels.
    """
    if pixels > PIXELS:
        return None
    return next((size for size in sizes if count <= size), None)


def run(pixels: Tensor, options: ExtractOptions, masks: Tensor | None) -> Batch:
    """Return the result of :func:`extract`, repeated with a larger buffer if it overflowed.

    The next run with the same shape and options may overwrite the result.
    """
    size = (pixels.shape[1], pixels.shape[2])
    while True:
        slots = capacity(size, options)

        def work(pixels: Tensor, masks: Tensor | None, slots: int = slots) -> Batch:
            return extract(pixels, options, masks, slots)

        key = None if options.max_features is None else (options, slots)
        batch: Batch = recorded(work, key, pixels, masks)
        if not bool(batch.overflowed.any()):
            return batch
        enlarge(size, options, slots)


@dataclass(frozen=True, eq=False)
class _Graph:
    """A recorded function: it reads ``inputs`` and writes ``result``."""

    graph: Any
    inputs: tuple[Tensor | None, ...]
    result: Any


_graphs: OrderedDict[tuple[Any, ...], _Graph | None] = register(OrderedDict())


def recorded(work: Callable[..., Any], key: tuple[Any, ...] | None, *inputs: Tensor | None) -> Any:
    """Return ``work(*inputs)``; from the second call on, a recorded graph computes it.

    ``key`` identifies the computation for inputs of the same shapes and types. The next call with
    the same key overwrites the result. Work with the key None, whose results have no fixed size, is
    not recorded.
    """
    device = next(v.device for v in inputs if v is not None)
    if key is None or not backend.of(device).compiled:
        return work(*inputs)
    kinds = tuple(None if v is None else (tuple(v.shape), v.dtype) for v in inputs)
    graph_key = (key, device, kinds)
    if graph_key not in _graphs:
        _graphs[graph_key] = None
        return work(*inputs)
    _graphs.move_to_end(graph_key)
    graph = _graphs[graph_key]
    if graph is None:
        while sum(g is not None for g in _graphs.values()) >= _MAX_GRAPHS:
            oldest = next(k for k, g in _graphs.items() if g is not None)
            del _graphs[oldest]
        graph = _graphs[graph_key] = _record(work, inputs)
    for buffer, value in zip(graph.inputs, inputs, strict=True):
        if buffer is not None and value is not None:
            buffer.copy_(value)
    graph.graph.replay()
    return graph.result


def _record(work: Callable[..., Any], inputs: tuple[Tensor | None, ...]) -> _Graph:
    buffers = tuple(None if v is None else v.clone() for v in inputs)
    work(*buffers)  # creates all tables, which is not possible during the capture
    graph = torch.cuda.CUDAGraph()
    # Other threads may use CUDA to decode and copy during the capture.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = work(*buffers)
    return _Graph(graph, buffers, result)


def clear() -> None:
    """Release the memory of graphs and tables, and that of cuBLAS."""
    with cuda_streams.exclusive:
        for device in {device for _, device, _ in _graphs if device.type == "cuda"}:
            torch.cuda.synchronize(device)
        caches.clear()
        # PyTorch keeps a cuBLAS workspace per thread and stream. Some are in the memory of graphs,
        # which could then not be released. There is no public function for this.
        release_workspaces = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if release_workspaces is not None:
            release_workspaces()
        torch.cuda.empty_cache()
