"""Searches among points: nearest neighbors, and the first point of each cell.

:mod:`caloric.gpu.points` has the same for tensors on a device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.runtime import native, threads
from caloric.runtime.indexing import first_of_cells
from caloric.types import ArrayOrTensor, FloatArray

_BLOCK = 2000  # queries of one task: starting a thread takes as long as some hundred


@dataclass(frozen=True)
class PointSearch:
    """The searches for one kind of arrays.

    ``nearest(points, queries, count)`` returns distances and indices (n, count) of the points
    (m, 2) nearest to queries (n, 2), in order; ``count`` is at most m. ``are_first(cells)`` returns
    which rows (n, 2) of integers have not occurred before.
    """

    nearest: Callable[[ArrayOrTensor, ArrayOrTensor, int], tuple[ArrayOrTensor, ArrayOrTensor]]
    are_first: Callable[[ArrayOrTensor], ArrayOrTensor]


def _nearest(
    points: FloatArray, queries: FloatArray, count: int
) -> tuple[FloatArray, NDArray[np.intp]]:
    core = native.core()
    if core is None or len(points) < count:
        return _by_scipy(points, queries, count)
    points, queries = (np.ascontiguousarray(v, np.float64) for v in (points, queries))
    squares = np.empty((len(queries), count))
    indices = np.empty((len(queries), count), np.int64)

    def is_searched(start: int) -> bool:
        rows = slice(start, start + _BLOCK)
        return bool(core.nearest_points(points, queries[rows], squares[rows], indices[rows]))

    if not all(threads.each(is_searched, range(0, len(queries), _BLOCK))):  # dense clusters
        return _by_scipy(points, queries, count)
    return np.sqrt(squares), indices


def _by_scipy(
    points: FloatArray, queries: FloatArray, count: int
) -> tuple[FloatArray, NDArray[np.intp]]:
    from scipy.spatial import cKDTree  # slow to import

    workers = min(threads.count(), 1 + len(queries) // _BLOCK)
    distances, indices = cKDTree(points).query(queries, count, workers=workers)
    return distances.reshape(-1, count), indices.reshape(-1, count)


def _are_first(cells: NDArray[np.int64]) -> NDArray[np.bool_]:
    result = np.zeros(len(cells), bool)
    result[first_of_cells(cells)] = True
    return result


ON_HOST = PointSearch(_nearest, _are_first)
