"""Nearest neighbors of descriptors on a device, for many pairs of images at once."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.gpu import backend, cuda_streams, devices, upload
from caloric.gpu.cuda_streams import Download
from caloric.matching import neighbors as on_cpu
from caloric.matching.neighbors import LARGEST, Neighbors, check_values

_SCORES = 1 << 28  # that PyTorch computes at once, at most
_BYTES = 1 << 29  # of results of a group of pairs, at most
_GROUP = 64  # pairs that are searched together, at most
_IN_FLIGHT = 2  # groups queued on the device while the results of another are unpacked

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Set:
    """The descriptors (n, d) of an image, and positions (n, 2) if the ratio test needs them."""

    values: NDArray[np.generic] | Tensor
    xy: NDArray[np.float64] | Tensor | None = None


def neighbors(
    sets: Sequence[Set], pairs: Sequence[Pair], radius: float, device: Any
) -> Iterator[Neighbors]:
    """Yield :func:`caloric.matching.neighbors.neighbors` of each pair of sets.

    No set may be empty. Each set is uploaded once. Pairs that do not fit into device memory are
    searched on the CPU.
    """
    search = _Search(sets, radius, device)
    rows = devices.unless_out_of_memory(search.upload, f"matching {_sizes(sets, pairs[0])}")
    in_flight: deque[tuple[Sequence[Pair], _PendingGroup | None]] = deque()
    for group in _groups(sets, pairs):
        pending = None
        if rows is not None:
            what = f"matching {_sizes(sets, group[0])}"
            pending = devices.unless_out_of_memory(partial(search.begin, rows, group), what)
        in_flight.append((group, pending))
        if len(in_flight) > _IN_FLIGHT:
            yield from search.results(*in_flight.popleft())
    while in_flight:
        yield from search.results(*in_flight.popleft())


def _sizes(sets: Sequence[Set], pair: Pair) -> str:
    return " x ".join(str(len(sets[i].values)) for i in pair) + " descriptors"


def _groups(sets: Sequence[Set], pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    """Yield groups of pairs that are searched together, in the order of the pairs."""
    group: list[Pair] = []
    max_counts = [0, 0]
    for pair in pairs:
        counts = [max(max_counts[i], len(sets[pair[i]].values)) for i in (0, 1)]
        # The best score of each column is stored for every 128 rows.
        size = (len(group) + 1) * (counts[0] * counts[1] // 128 + counts[0]) * 4
        if group and (len(group) == _GROUP or size > _BYTES):
            yield group
            group, counts = [], [len(sets[i].values) for i in pair]
        group.append(pair)
        max_counts = counts
    if group:
        yield group


@dataclass(frozen=True, eq=False)
class _Rows:
    """The descriptors (n, d) of all sets minus their mean, and positions (n, 2) if known.

    ``split`` are the descriptors as sums of float16 numbers, None if the Triton kernel cannot be
    used. ``starts`` are the first rows of the sets, ``largest`` () is the largest absolute entry
    before the mean was subtracted.
    """

    values: Tensor
    split: Any
    xy: Tensor | None
    starts: NDArray[np.int64]
    largest: Download


@dataclass(frozen=True, eq=False)
class _PendingGroup:
    """The pending results of p pairs (p, n, 4), see :func:`_packed`."""

    download: Download
    largest: Download


@dataclass(frozen=True, eq=False)
class _Search:
    """A search in pairs of sets on a device."""

    sets: Sequence[Set]
    radius: float
    device: Any

    def upload(self) -> _Rows:
        """Return all sets on the device."""
        with torch.no_grad(), cuda_streams.using(self.device):
            values = _uploaded([s.values for s in self.sets], self.device).float()
            positions = [s.xy for s in self.sets if s.xy is not None]
            has_xy = len(positions) == len(self.sets)
            xy = _uploaded(positions, self.device).float() if has_xy else None
            largest = cuda_streams.download(values.abs().amax())
            # Subtract the mean: far from 0 the scores would suffer from cancellation.
            values = values - values.mean(0, dtype=torch.float64).float()
            starts = np.cumsum([0, *(len(s.values) for s in self.sets)])[:-1]
            return _Rows(values, _split(values), xy, starts, largest)

    def begin(self, rows: _Rows, pairs: Sequence[Pair]) -> _PendingGroup:
        """Queue the search of a group of pairs on the device."""
        counts = [len(s.values) for s in self.sets]
        with torch.no_grad(), cuda_streams.using(self.device):
            search = _plain if rows.split is None else _fused
            table = [(rows.starts[a], counts[a], rows.starts[b], counts[b]) for a, b in pairs]
            result = search(rows, np.array(table, np.int32), self.radius)
            return _PendingGroup(cuda_streams.download(result), rows.largest)

    def results(self, pairs: Sequence[Pair], pending: _PendingGroup | None) -> Iterator[Neighbors]:
        """Yield the results of pairs; if they are not pending, search on the CPU."""
        if pending is None:
            for a, b in pairs:
                yield self._on_host(self.sets[a], self.sets[b])
            return
        if not float(pending.largest.wait()) <= LARGEST:
            for a, b in pairs:  # raises an error that names the set
                self._on_host(self.sets[a], self.sets[b])
        for (a, _), result in zip(pairs, pending.download.wait().numpy(), strict=True):
            columns = result[: len(self.sets[a].values)].T
            yield Neighbors(
                columns[0].copy().view(np.int32).astype(np.intp), columns[1].copy(),
                columns[2].copy(), columns[3] > 0,
            )  # fmt: skip

    def _on_host(self, a: Set, b: Set) -> Neighbors:
        xy = None if b.xy is None else np.asarray(_to_host(b.xy), np.float64)
        left, right = (np.ascontiguousarray(_to_host(s.values), np.float32) for s in (a, b))
        for values, name in ((left, "first set"), (right, "second set")):
            check_values(float(np.abs(values).max()), name)
        return on_cpu.neighbors(left, right, xy, self.radius)


def _split(values: Tensor) -> Any:
    """Return descriptors as sums of float16 numbers, or None if the kernel cannot be used."""
    if not backend.of(values.device).compiled:
        return None
    from caloric.gpu import neighbors_kernels as kernels

    return kernels.split(values) if values.shape[1] <= kernels.MAX_DIMENSION else None


def _uploaded(arrays: Sequence[Any], device: Any) -> Tensor:
    """Return the concatenated rows of arrays or tensors (n, d) on the device."""
    if all(isinstance(v, np.ndarray) and v.dtype == arrays[0].dtype for v in arrays):
        return upload.upload_rows(arrays, device)
    parts = (
        v.to(device) if isinstance(v, torch.Tensor) else upload.upload_rows([v], device)
        for v in arrays
    )
    return torch.cat([v.float() for v in parts])


def _to_host(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


def _packed(nearest: Tensor, first: Tensor, second: Tensor, mutual: Tensor) -> Tensor:
    """Return nearest (int32 bits), distances and mutuality as one float32 tensor (..., 4)."""
    bits = nearest.to(torch.int32).view(torch.float32)
    return torch.stack([bits, first, second, mutual.float()], -1)


def _fused(rows: _Rows, table: NDArray[np.int32], radius: float) -> Tensor:
    """Return the packed neighbors (p, n, 4) of pairs (p, 4) of sets, by the Triton kernel.

    A row of ``table`` holds the first row and the number of rows of both sets.
    """
    from caloric.gpu import neighbors_kernels as kernels

    n, m = int(table[:, 1].max()), int(table[:, 3].max())
    device = rows.values.device
    pairs = torch.from_numpy(table).to(device, non_blocking=True)
    nearest, top, second, tops = kernels.nearest_rows(rows.split, pairs, rows.xy, radius, (n, m))
    row = torch.arange(n, dtype=torch.int32, device=device)
    valid = row < pairs[:, 1:2]
    index = nearest.long()
    # Of rows at the same distance to b, the first is its nearest.
    candidates = torch.where(valid & (top == tops.gather(1, index)), row, n)
    owner = torch.full((len(table), m), n, dtype=torch.int32, device=device)
    owner = owner.scatter_reduce(1, index, candidates, "amin")
    mutual = owner.gather(1, index) == row
    a = (pairs[:, :1] + row).clamp_max(len(rows.values) - 1)
    b = (pairs[:, 2:3] + nearest).clamp_max(len(rows.values) - 1)
    first = torch.linalg.vector_norm(rows.values[a] - rows.values[b], dim=2)
    return _packed(nearest, first, (-2 * second).clamp_min(0).sqrt(), mutual)


def _plain(rows: _Rows, table: NDArray[np.int32], radius: float) -> Tensor:
    """Return the result of :func:`_fused`, computed in PyTorch."""
    result = torch.zeros((len(table), int(table[:, 1].max()), 4), device=rows.values.device)
    for (start_a, count_a, start_b, count_b), packed in zip(table.tolist(), result, strict=True):
        a = rows.values[start_a : start_a + count_a]
        b = rows.values[start_b : start_b + count_b]
        xy = None if rows.xy is None else rows.xy[start_b : start_b + count_b]
        packed[:count_a] = _packed(*nearest_rows(a, b, xy, radius))
    return result


def nearest_rows(
    a: Tensor, b: Tensor, xy: Tensor | None, radius: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return nearest row of b, distance, second distance and mutuality (n,) for each row of a.

    ``xy`` are the positions of b; rows within ``radius`` of the nearest are not its second.
    """
    half_a, half_b = 0.5 * (a * a).sum(1), 0.5 * (b * b).sum(1)
    size = max(1, _SCORES // len(b))
    best, nearest, second = [], [], []
    tops = torch.full((len(b),), -torch.inf, device=a.device)
    for part, half in zip(a.split(size), half_a.split(size), strict=True):
        scores = torch.addmm(-half_b, part, b.T) - half[:, None]
        highest, column = scores.max(1)
        tops = torch.maximum(tops, scores.amax(0))
        if xy is None:
            scores.scatter_(1, column[:, None], -torch.inf)
        else:
            centers = xy[column]
            near = (xy[:, 0] - centers[:, :1]).abs() <= radius
            near &= (xy[:, 1] - centers[:, 1:]).abs() <= radius
            scores.masked_fill_(near, -torch.inf)
        best.append(highest)
        nearest.append(column)
        second.append(scores.amax(1))
    top, index, second_score = torch.cat(best), torch.cat(nearest), torch.cat(second)
    # Of rows at the same distance to b, the first is its nearest.
    rows = torch.arange(len(a), device=a.device)
    candidates = torch.where(top == tops[index], rows, len(a))
    owner = torch.full((len(b),), len(a), device=a.device)
    owner = owner.scatter_reduce(0, index, candidates, "amin")
    distances = torch.linalg.vector_norm(a - b[index], dim=1)
    return index, distances, (-2 * second_score).clamp_min(0).sqrt(), owner[index] == rows
