"""Nearest neighbors on a device: the same scores as on the CPU, for many pairs at once."""

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

_SCORES = 1 << 28  # per block of the plain form
_BYTES = 1 << 29  # of results of pairs that are searched together
_TOGETHER = 64  # pairs
_AHEAD = 2  # groups of pairs that the device works on while the results of another are unpacked

Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Set:
    """The descriptors (n, d) of an image, and their places (n, 2) if the ratio test needs them."""

    values: NDArray[np.generic] | Tensor
    xy: NDArray[np.float64] | Tensor | None = None


def neighbors(
    sets: Sequence[Set], pairs: Sequence[Pair], radius: float, device: Any
) -> Iterator[Neighbors]:
    """Yield :func:`caloric.matching.neighbors.neighbors` of each pair of sets.

    No set is empty. Sets are sent to the device once. What does not fit into its memory is done on
    the CPU.
    """
    everything = _Everything(sets, radius, device)
    rows = devices.fitting(everything.send, f"matching {_sizes(sets, pairs[0])}")
    begun: deque[tuple[Sequence[Pair], _Running | None]] = deque()
    for group in _groups(sets, pairs):
        running = None
        if rows is not None:
            what = f"matching {_sizes(sets, group[0])}"
            running = devices.fitting(partial(everything.begin, rows, group), what)
        begun.append((group, running))
        if len(begun) > _AHEAD:
            yield from everything.finished(*begun.popleft())
    while begun:
        yield from everything.finished(*begun.popleft())


def _sizes(sets: Sequence[Set], pair: Pair) -> str:
    return " x ".join(str(len(sets[i].values)) for i in pair)


def _groups(sets: Sequence[Set], pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    """Yield pairs that are searched together, in their order."""
    group: list[Pair] = []
    most = [0, 0]
    for pair in pairs:
        larger = [max(most[i], len(sets[pair[i]].values)) for i in (0, 1)]
        # The best scores of columns are stored for each 128 rows.
        size = (len(group) + 1) * (larger[0] * larger[1] // 128 + larger[0]) * 4
        if group and (len(group) == _TOGETHER or size > _BYTES):
            yield group
            group, larger = [], [len(sets[i].values) for i in pair]
        group.append(pair)
        most = larger
    if group:
        yield group


@dataclass(frozen=True, eq=False)
class _Rows:
    """The descriptors (n, d) of all sets, less their mean, and their places (n, 2) if known.

    ``halves`` are the same as sums of two halves, None where the kernels cannot be used. ``begins``
    is the first row of each set, ``largest`` () the largest absolute entry of all.
    """

    values: Tensor
    halves: Any
    places: Tensor | None
    begins: NDArray[np.int64]
    largest: Download


@dataclass(frozen=True, eq=False)
class _Running:
    """A search that the device does: nearest, first, second and mutual (p, n, 4) as float32."""

    download: Download
    largest: Download


@dataclass(frozen=True, eq=False)
class _Everything:
    """What all pairs have in common."""

    sets: Sequence[Set]
    radius: float
    device: Any

    def send(self) -> _Rows:
        """Return all sets on the device."""
        with torch.no_grad(), cuda_streams.using(self.device):
            values = _sent([s.values for s in self.sets], self.device).float()
            places = [s.xy for s in self.sets if s.xy is not None]
            xy = _sent(places, self.device).float() if len(places) == len(self.sets) else None
            largest = cuda_streams.download(values.abs().amax())
            # Subtract the mean: far from 0 the scores would suffer from cancellation.
            values = values - values.mean(0, dtype=torch.float64).float()
            begins = np.cumsum([0, *(len(s.values) for s in self.sets)])[:-1]
            return _Rows(values, _halves(values), xy, begins, largest)

    def begin(self, rows: _Rows, pairs: Sequence[Pair]) -> _Running:
        """Let the device search, and return."""
        counts = [len(s.values) for s in self.sets]
        with torch.no_grad(), cuda_streams.using(self.device):
            search = _plain if rows.halves is None else _fused
            table = [(rows.begins[a], counts[a], rows.begins[b], counts[b]) for a, b in pairs]
            result = search(rows, np.array(table, np.int32), self.radius)
            return _Running(cuda_streams.download(result), rows.largest)

    def finished(self, pairs: Sequence[Pair], running: _Running | None) -> Iterator[Neighbors]:
        """Yield the results of pairs; None is what does not fit into the memory of the device."""
        if running is None:
            for a, b in pairs:
                yield self._on_host(self.sets[a], self.sets[b])
            return
        if not float(running.largest.wait()) <= LARGEST:
            for a, b in pairs:  # find out which
                self._on_host(self.sets[a], self.sets[b])
        arrived = running.download.wait().numpy()
        for (a, _), result in zip(pairs, arrived, strict=True):
            own = result[: len(self.sets[a].values)]
            yield Neighbors(
                own[:, 0].copy().view(np.int32).astype(np.intp), own[:, 1].copy(),
                own[:, 2].copy(), own[:, 3] > 0,
            )  # fmt: skip

    def _on_host(self, a: Set, b: Set) -> Neighbors:
        xy = None if b.xy is None else np.asarray(_to_host(b.xy), np.float64)
        left, right = (np.ascontiguousarray(_to_host(s.values), np.float32) for s in (a, b))
        for values, which in ((left, "first set"), (right, "second set")):
            check_values(float(np.abs(values).max()), which)
        return on_cpu.neighbors(left, right, xy, self.radius)


def _halves(values: Tensor) -> Any:
    """Return descriptors as sums of halves, or None if the kernels cannot be used."""
    if not backend.of(values.device).compiled:
        return None
    from caloric.gpu import neighbors_kernels as kernels

    return kernels.split(values) if values.shape[1] <= kernels.WIDEST else None


def _sent(arrays: Sequence[Any], device: Any) -> Tensor:
    """Return the rows of arrays or tensors (n, d), one after the other, on the device."""
    if all(isinstance(v, np.ndarray) and v.dtype == arrays[0].dtype for v in arrays):
        return upload.upload_rows(arrays, device)
    each = (
        v.to(device) if isinstance(v, torch.Tensor) else upload.upload_rows([v], device)
        for v in arrays
    )
    return torch.cat([v.float() for v in each])


def _to_host(values: Any) -> Any:
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values


def _packed(nearest: Tensor, first: Tensor, second: Tensor, mutual: Tensor) -> Tensor:
    whole = nearest.to(torch.int32).view(torch.float32)
    return torch.stack([whole, first, second, mutual.float()], -1)


def _fused(rows: _Rows, table: NDArray[np.int32], radius: float) -> Tensor:
    """Return nearest, first, second and mutual (p, n, 4) of pairs (p, 4) of sets."""
    from caloric.gpu import neighbors_kernels as kernels

    n, m = int(table[:, 1].max()), int(table[:, 3].max())
    device = rows.values.device
    pairs = torch.from_numpy(table).to(device, non_blocking=True)
    nearest, top, second, tops = kernels.nearest_rows(
        rows.halves, pairs, rows.places, radius, (n, m)
    )
    number = torch.arange(n, dtype=torch.int32, device=device)
    valid = number < pairs[:, 1:2]
    index = nearest.long()
    # Among rows equally near to the same b, the first counts as its nearest.
    candidates = torch.where(valid & (top == tops.gather(1, index)), number, n)
    owner = torch.full((len(table), m), n, dtype=torch.int32, device=device)
    owner = owner.scatter_reduce(1, index, candidates, "amin")
    mutual = owner.gather(1, index) == number
    a = (pairs[:, :1] + number).clamp_max(len(rows.values) - 1)
    b = (pairs[:, 2:3] + nearest).clamp_max(len(rows.values) - 1)
    first = torch.linalg.vector_norm(rows.values[a] - rows.values[b], dim=2)
    return _packed(nearest, first, (-2 * second).clamp_min(0).sqrt(), mutual)


def _plain(rows: _Rows, table: NDArray[np.int32], radius: float) -> Tensor:
    """Return the same in plain PyTorch."""
    result = torch.zeros((len(table), int(table[:, 1].max()), 4), device=rows.values.device)
    for (begin_a, count_a, begin_b, count_b), own in zip(table.tolist(), result, strict=True):
        a = rows.values[begin_a : begin_a + count_a]
        b = rows.values[begin_b : begin_b + count_b]
        places = None if rows.places is None else rows.places[begin_b : begin_b + count_b]
        own[:count_a] = _packed(*nearest_rows(a, b, places, radius))
    return result


def nearest_rows(
    a: Tensor, b: Tensor, places: Tensor | None, radius: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return nearest row of b, distance, second distance and mutuality (n,) for each row of a."""
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
            centers = places[column]
            near = (places[:, 0] - centers[:, :1]).abs() <= radius
            near &= (places[:, 1] - centers[:, 1:]).abs() <= radius
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
