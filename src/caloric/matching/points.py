"""Searches among points of an image: the nearest ones, and the first of each cell."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.runtime import native, threads
from caloric.runtime.indexing import first_of_cells
from caloric.types import FloatArray

_BLOCK = 2000  # queries of one thread of SciPy: starting it takes as long as some hundred


@dataclass(frozen=True, eq=False)
class PointIndex:
    """Points (m, 2) among which the nearest are searched.

    ``grid`` is their form in the compiled core; None without it, or if it would be slow because
    there are dense clusters.
    """

    points: FloatArray
    grid: Any

    @classmethod
    def of(cls, points: FloatArray) -> "PointIndex":
        """Return the index of points (m, 2)."""
        points, core = np.ascontiguousarray(points, np.float64), native.core()
        if core is None or len(points) == 0:
            return cls(points, None)
        grid = core.PointGrid(points)
        return cls(points, None if grid.is_dense else grid)

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.points)

    def nearest(self, queries: FloatArray, count: int) -> tuple[FloatArray, NDArray[np.intp]]:
        """Return distances and indices (n, count) of the points nearest to queries (n, 2).

        Nearer points come first. If there are fewer points, the other distances are infinite.
        """
        grid = self.grid
        if grid is None or len(self) < count:
            return self._by_scipy(queries, count)
        queries = np.ascontiguousarray(queries, np.float64)
        squares = np.empty((len(queries), count))
        indices = np.empty((len(queries), count), np.int64)
        grid.nearest(queries, threads.usable(), squares, indices)
        return np.sqrt(squares), indices

    def within(self, queries: FloatArray, radius: float) -> NDArray[np.bool_]:
        """Return which queries (n, 2) have a point at most ``radius`` away."""
        if self.grid is None:
            return np.asarray(self._by_scipy(queries, 1)[0][:, 0] <= radius)
        result = np.empty(len(queries), bool)
        queries = np.ascontiguousarray(queries, np.float64)
        self.grid.within(queries, radius, threads.usable(), result)
        return result

    @cached_property
    def _tree(self) -> Any:
        from scipy.spatial import cKDTree  # slow to import

        return cKDTree(self.points)

    def _by_scipy(self, queries: FloatArray, count: int) -> tuple[FloatArray, NDArray[np.intp]]:
        workers = min(threads.usable(), 1 + len(queries) // _BLOCK)
        distances, indices = self._tree.query(queries, count, workers=workers)
        return distances.reshape(-1, count), indices.reshape(-1, count)


def are_first(cells: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which rows (n, 2) of integers have not occurred before."""
    result = np.zeros(len(cells), bool)
    result[first_of_cells(cells)] = True
    return result
