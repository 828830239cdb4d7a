"""Nearest neighbours among descriptors, exactly, in blocks that never hold the whole matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.theory.gaussians import FloatArray

_BLOCK = 1024


@dataclass(frozen=True, eq=False)
class Matches:
    """``indices`` (m, 2) into the two sets, and the Euclidean ``distances`` (m,), nearest first."""

    indices: NDArray[np.intp]
    distances: NDArray[np.float32]

    def __len__(self) -> int:
        """The number of matches."""
        return len(self.indices)


def _checked(descriptors: object, which: str) -> NDArray[np.float32]:
    array = np.asarray(descriptors)
    if array.ndim != 2:
        raise InputError(f"{which}: expected descriptors of shape (n, d), got {array.shape}")
    if not (np.issubdtype(array.dtype, np.floating) or array.dtype == np.uint8):
        raise InputError(f"{which}: descriptors of type {array.dtype}; use floats or uint8")
    array = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(array).all():
        raise InputError(f"{which}: NaN or infinite descriptors")
    return array


@dataclass(frozen=True, eq=False)
class _Neighbours:
    """For each row of a: its nearest row of b, and half the squared distances that matter.

    Scores are s = a·b − |b|²/2, so that |a − b|² = |a|² − 2s: the larger the nearer.
    """

    nearest: NDArray[np.intp]
    best: NDArray[np.float32]
    second: NDArray[np.float32]
    best_of_b: NDArray[np.intp]


def _neighbours(
    a: NDArray[np.float32],
    b: NDArray[np.float32],
    xy_b: FloatArray | None,
    radius: float,
) -> _Neighbours:
    """One pass over blocks of a; ``radius`` excludes b's at the same place from being second."""
    half_a = 0.5 * np.einsum("ij,ij->i", a, a)
    half_b = 0.5 * np.einsum("ij,ij->i", b, b)
    nearest = np.empty(len(a), np.intp)
    best, second = np.empty(len(a), np.float32), np.full(len(a), -np.inf, np.float32)
    column_best = np.full(len(b), -np.inf, np.float32)
    column_row = np.full(len(b), -1, np.intp)
    for start in range(0, len(a), _BLOCK):
        part = slice(start, min(start + _BLOCK, len(a)))
        scores = a[part] @ b.T
        scores -= half_b
        rows = np.arange(len(scores))
        columns = scores.argmax(1)
        nearest[part], best[part] = columns, scores[rows, columns]
        # For b the nearest a: |a|² matters too.
        scores -= half_a[part, None]
        top = scores.argmax(0)
        value = scores[top, np.arange(len(b))]
        better = value > column_best
        column_best[better], column_row[better] = value[better], top[better] + start
        scores += half_a[part, None]
        if xy_b is None:
            scores[rows, columns] = -np.inf
        else:
            close = np.abs(xy_b[columns, :1] - xy_b[:, 0]) <= radius
            close &= np.abs(xy_b[columns, 1:] - xy_b[:, 1]) <= radius
            scores[close] = -np.inf
        second[part] = scores.max(1)
    return _Neighbours(nearest, best, second, column_row)


def match_descriptors(
    a: object,
    b: object,
    *,
    mutual: bool = True,
    ratio: float | None = 0.9,
    xy_b: FloatArray | None = None,
    radius: float = 10.0,
) -> Matches:
    """Nearest neighbours of a (n, d) in b (m, d) by Euclidean distance.

    ``mutual`` keeps those that are each other's nearest. ``ratio`` keeps those nearer than
    ``ratio`` times the second nearest; with the positions ``xy_b`` (m, 2) of b, the second is the
    nearest one that is not within ``radius`` pixels of the first (FGINN): the same corner detected
    twice does not speak against itself.
    """
    if ratio is not None and not 0 < ratio <= 1:
        raise InputError(f"ratio must be above 0 and at most 1, or None; got {ratio!r}")
    left, right = _checked(a, "first set"), _checked(b, "second set")
    if len(left) == 0 or len(right) == 0:
        return Matches(np.zeros((0, 2), np.intp), np.zeros(0, np.float32))
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"descriptors of {left.shape[1]} and {right.shape[1]} dimensions cannot be compared; "
            "describe both images the same way"
        )
    found = _neighbours(left, right, xy_b if ratio is not None else None, radius)
    norm = np.einsum("ij,ij->i", left, left)
    distance = np.sqrt(np.maximum(norm - 2 * found.best, 0))
    keep = np.ones(len(left), bool)
    if mutual:
        keep &= found.best_of_b[found.nearest] == np.arange(len(left))
    if ratio is not None:
        second = np.sqrt(np.maximum(norm - 2 * found.second, 0))
        keep &= distance < ratio * second
    rows = np.flatnonzero(keep)
    rows = rows[np.lexsort((rows, distance[rows]))]
    return Matches(np.stack([rows, found.nearest[rows]], -1), distance[rows].astype(np.float32))
