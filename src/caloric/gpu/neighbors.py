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

from caloric.gpu import backend, cuda_streams, devices, graphs, upload
from caloric.gpu.cuda_streams import Download
from caloric.matching import neighbors as on_cpu
from caloric.matching.neighbors import LARGEST, Neighbors, check_values

_SCORES = 1 << 28  # that PyTorch computes at once, at most
_BYTES = 1 << 29  # of results of a group of pairs, at most
_GROUP = 64  # pairs that are searched together, at most
_IN_FLIGHT = 2  # groups queued on the device while the results of another are unpacked
# Sizes to which both sets are padded for recorded graphs, if there is only one pair. More
# descriptors take so long that recording saves no time.
_RECORDED = 1024, 2048, 4096, 8192, 16384

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

    No set may be empty. A set that is in several pairs is uploaded once. Pairs that do not fit into
    device memory are searched on the CPU.
    """
    search = _Search(sets, radius, device)
    if len(pairs) == 1:
        what = f"matching {_sizes(sets, pairs[0])}"
        one = devices.unless_out_of_memory(partial(search.begin_one, pairs[0]), what)
        yield from search.results(pairs, one)
        return
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
    """The descriptors (n, d) of sets minus their mean, and positions (n, 2) if known.

    ``split`` are the descriptors as sums of float16 numbers, None if the Triton kernel cannot be
    used. ``largest`` () is the largest absolute entry before the mean was subtracted.
    """

    values: Tensor
    split: Any
    xy: Tensor | None
    largest: Tensor

    @classmethod
    def of(cls, values: Tensor, xy: Tensor | None, used: Tensor | None = None) -> "_Rows":
        """Return descriptors minus their mean.

        ``used`` (n,) is False for padding, which is set to 0; None if there is none.
        """
        # Subtract the mean: far from 0 the scores would suffer from cancellation.
        if used is None:
            centered = values - values.mean(0, dtype=torch.float64).float()
        else:
            mean = (values.sum(0, dtype=torch.float64) / used.sum()).float()
            centered = torch.where(used[:, None], values - mean, 0.0)
        return cls(centered, _split(centered), xy, values.abs().amax())


@dataclass(frozen=True, eq=False)
class _PendingGroup:
    """The pending results of p pairs (p, n, 4), see :func:`_packed`, and the largest entry."""

    download: Download
    largest: Download


@dataclass(frozen=True, eq=False)
class _Search:
    """A search in pairs of sets on a device."""

    sets: Sequence[Set]
    radius: float
    device: Any

    def upload(self) -> tuple[_Rows, Download]:
        """Return all sets on the device, and their largest absolute entry."""
        with torch.no_grad(), cuda_streams.using(self.device):
            values = _uploaded([s.values for s in self.sets], self.device).float()
            positions = [s.xy for s in self.sets if s.xy is not None]
            has_xy = len(positions) == len(self.sets)
            xy = _uploaded(positions, self.device).float() if has_xy else None
            rows = _Rows.of(values, xy)
            return rows, cuda_streams.download(rows.largest)

    def begin(self, uploaded: tuple[_Rows, Download], pairs: Sequence[Pair]) -> _PendingGroup:
        """Queue the search of a group of pairs on the device."""
        rows, largest = uploaded
        counts = [len(s.values) for s in self.sets]
        starts = np.cumsum([0, *counts])
        table = np.array([(starts[a], counts[a], starts[b], counts[b]) for a, b in pairs], np.int32)
        with torch.no_grad(), cuda_streams.using(self.device):
            if rows.split is None:
                result = _plain(rows, table, self.radius)
            else:
                size = int(table[:, 1].max()), int(table[:, 3].max())
                on_device = upload.as_tensor(table, self.device)
                result = _fused(rows, on_device, self.radius, size)
            return _PendingGroup(cuda_streams.download(result), largest)

    def begin_one(self, pair: Pair) -> _PendingGroup:
        """Queue the search of one pair, by a recorded graph unless the sets are large."""
        a, b = (self.sets[i] for i in pair)
        counts = len(a.values), len(b.values)
        size = graphs.padded_size(max(counts), _RECORDED)
        if size is None or not _is_supported(a.values.shape[1], self.device):
            return self.begin(self.upload(), [pair])

        def work(values: Tensor, xy: Tensor | None, table: Tensor) -> tuple[Tensor, Tensor]:
            row = torch.arange(size, device=self.device)
            used = (row < table[0, 1::2, None]).flatten()
            rows = _Rows.of(values, xy, used)
            return _fused(rows, table, self.radius, (size, size)), rows.largest

        with torch.no_grad(), cuda_streams.using(self.device):
            values = _padded([a.values, b.values], size, self.device)
            # The search does not read the positions of the first set.
            xy = None if b.xy is None else _padded([b.xy[:0], b.xy], size, self.device)
            table = upload.as_tensor(
                np.array([[0, counts[0], size, counts[1]]], np.int32), self.device
            )
            key = "neighbors", self.radius
            result, largest = graphs.recorded(work, key, values, xy, table)
            return _PendingGroup(cuda_streams.download(result), cuda_streams.download(largest))

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


def _is_supported(dimension: int, device: Any) -> bool:
    """Return whether the Triton kernel supports descriptors of this dimension."""
    if not backend.of(device).compiled:
        return False
    from caloric.gpu import neighbors_kernels as kernels

    return dimension <= kernels.MAX_DIMENSION


def _split(values: Tensor) -> Any:
    """Return descriptors as sums of float16 numbers, or None if the kernel cannot be used."""
    if not _is_supported(values.shape[1], values.device):
        return None
    from caloric.gpu import neighbors_kernels as kernels

    return kernels.split(values)


def _uploaded(arrays: Sequence[Any], device: Any) -> Tensor:
    """Return the concatenated rows of arrays or tensors (n, d) on the device."""
    if all(isinstance(v, np.ndarray) and v.dtype == arrays[0].dtype for v in arrays):
        return upload.upload_rows(arrays, device)
    return torch.cat([upload.as_tensor(v, device).float() for v in arrays])


def _padded(arrays: Sequence[Any], size: int, device: Any) -> Tensor:
    """Return arrays or tensors (n, d), each padded by zeros to ``size`` rows, as one tensor."""
    result = torch.zeros((len(arrays), size, arrays[0].shape[1]), device=device)
    for rows, values in zip(result, arrays, strict=True):
        if len(values):
            rows[: len(values)].copy_(upload.as_tensor(values, device))
    return result.flatten(0, 1)


def _to_host(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


def _packed(nearest: Tensor, first: Tensor, second: Tensor, mutual: Tensor) -> Tensor:
    """Return nearest (int32 bits), distances and mutuality as one float32 tensor (..., 4)."""
    bits = nearest.to(torch.int32).view(torch.float32)
    return torch.stack([bits, first, second, mutual.float()], -1)


def _fused(rows: _Rows, pairs: Tensor, radius: float, size: tuple[int, int]) -> Tensor:
    """Return the packed neighbors (p, n, 4) of pairs (p, 4) of sets, by the Triton kernel.

    A row of ``pairs`` holds the first row and the number of rows of both sets, of which the largest
    have ``size`` = (n, m) rows.
    """
    from caloric.gpu import neighbors_kernels as kernels

    (n, m), device = size, rows.values.device
    nearest, top, second, tops = kernels.nearest_rows(rows.split, pairs, rows.xy, radius, (n, m))
    row = torch.arange(n, dtype=torch.int32, device=device)
    valid = row < pairs[:, 1:2]
    index = nearest.long()
    # Of rows at the same distance to b, the first is its nearest.
    candidates = torch.where(valid & (top == tops.gather(1, index)), row, n)
    owner = torch.full((len(pairs), m), n, dtype=torch.int32, device=device)
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
