"""Indexing of results that consist of several arrays of the same length."""

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray


def rows(index: Any, count: int) -> Any:
    """Return an index into arrays of ``count`` rows that keeps the number of axes.

    An integer becomes a list of one element; slices, masks and lists are returned unchanged.
    """
    return [range(count)[index]] if isinstance(index, int | np.integer) else index


def first_of_cells(cells: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the index of the first occurrence of each distinct row of integers (n, k), sorted.

    This is much faster than ``np.unique(cells, axis=0)``. Each row is compared by one number: its
    position in the box of all rows or, if there are too many positions, a 64-bit hash.
    """
    bits = len(cells).bit_length()
    low = [int(column.min()) for column in cells.T] if bits else []
    sizes = [int(v.max()) - first + 1 for v, first in zip(cells.T, low, strict=False)]
    if bits == 0 or prod(sizes) >= 1 << (62 - bits):
        return first_of_equal(hashes(cells))
    keys = np.zeros(len(cells), np.int64)
    for column, first, size in zip(cells.T, low, sizes, strict=True):
        keys = keys * size + (column - first)
    keys = keys << bits | np.arange(len(cells))  # sorting numbers is faster than sorting indices
    keys.sort()
    positions, is_first = keys >> bits, np.ones(len(keys), bool)
    np.not_equal(positions[1:], positions[:-1], out=is_first[1:])
    return np.sort(keys[is_first] & ((1 << bits) - 1))


def hashes(cells: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a hash (n,) of each row of integers (n, k)."""
    hashed = np.zeros(len(cells), np.uint64)
    for column in cells.T:
        # The finalizer of splitmix64 (Steele, Lea and Flood, 2014)
        hashed = (hashed ^ column.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashed ^= hashed >> np.uint64(31)
    return hashed


def first_of_equal(numbers: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the index of the first occurrence of each distinct number (n,), sorted."""
    _, first = np.unique(numbers, return_index=True)
    return np.sort(first)
