"""Indexing of results that hold several arrays of the same length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def rows(index: Any, count: int) -> Any:
    """Return an index of arrays of ``count`` rows that keeps their number of axes.

    Slices, masks and lists are returned unchanged; a whole number becomes a list of one.
    """
    return [range(count)[index]] if isinstance(index, int | np.integer) else index


def first_of_cells(cells: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the first row of each of the different rows of whole numbers (n, k), in order.

    Rows are compared by a hash of 64 bits, much faster than ``np.unique(cells, axis=0)``.
    """
    return first_of_equal(hashes(cells))


def hashes(cells: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash (n,) of each row of whole numbers (n, k)."""
    hashed = np.zeros(len(cells), np.uint64)
    for column in cells.T:
        # The finalizer of splitmix64 (Steele, Lea and Flood, 2014)
        hashed = (hashed ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashed ^= hashed >> np.uint64(31)
    return hashed


def first_of_equal(numbers: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return where each of the different numbers (n,) is first, in order."""
    _, first = np.unique(numbers, return_index=True)
    return np.sort(first)
