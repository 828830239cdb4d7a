"""Indexing of results that consist of several arrays of the same length."""

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from caloric.runtime import native

S = TypeVar("S", bound=np.generic)


def rows(index: Any, count: int) -> Any:
    """Return an index into arrays of ``count`` rows that keeps the number of axes.

    An integer becomes a list of one element; slices, masks and lists are returned unchanged.
    """
    return [range(count)[index]] if isinstance(index, int | np.integer) else index


def select(values: NDArray[S], index: Any) -> NDArray[S]:
    """Return ``values[index]``; for a mask or indices (k,) of wide rows in a fraction of the time.

    ``take`` and ``compress`` copy whole rows.
    """
    result: NDArray[S]
    is_list = isinstance(index, np.ndarray) and index.ndim == 1 and values.ndim > 1
    if is_list and index.dtype == bool and len(index) == len(values):
        result = values.compress(index, 0)
    elif is_list and index.dtype.kind in "iu":
        result = values.take(index, 0)
    else:
        result = values[index]
    return result


def first_of_cells(cells: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the index of the first occurrence of each distinct row of integers (n, k), sorted."""
    core = native.core()
    if core is None:
        return _by_sorting(cells)
    first: NDArray[np.intp] = core.first_of_cells(np.ascontiguousarray(cells, np.int64))
    return first


def _by_sorting(cells: NDArray[np.int64]) -> NDArray[np.intp]:
    """Compare 64-bit hashes, which is much faster than ``np.unique(cells, axis=0)``.

    The sort of ``np.unique`` is stable and takes three times as long.
    """
    if len(cells) == 0:
        return np.zeros(0, np.intp)
    numbers = _hashes(cells)
    order = np.argsort(numbers)
    ordered = numbers[order]
    is_new = np.ones(len(numbers), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return np.sort(np.minimum.reduceat(order, np.flatnonzero(is_new)))


def _hashes(cells: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash (n,) of each row of integers (n, k)."""
    hashed = np.zeros(len(cells), np.uint64)
    for column in cells.T:
        # The finalizer of splitmix64 (Steele, Lea and Flood, 2014)
        hashed = (hashed ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashed ^= hashed >> np.uint64(31)
    return hashed
