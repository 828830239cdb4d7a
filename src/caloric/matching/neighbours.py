"""Nearest neighbours among descriptors, exactly, in blocks that never hold the whole matrix."""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.runtime import native, threads
from caloric.theory.gaussians import FloatArray

_ROWS = 512  # of a at once, fewer where b is large
_SCORES = 16_000_000  # at once
_LARGEST = 1e15  # of an entry: products stay within the range of floats


@dataclass(frozen=True, eq=False)
class Matches:
    """``indices`` (m, 2) into the two sets, and the Euclidean ``distances`` (m,), nearest first.

    ``refined`` (m, 2, 3), if matches were refined, has the frame in the second image of each.
    """

    indices: NDArray[np.intp]
    distances: NDArray[np.float32]
    refined: FloatArray | None = None

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
    if array.size and max(-float(array.min()), float(array.max())) > _LARGEST:
        raise InputError(f"{which}: descriptors beyond {_LARGEST:g}; divide them by their scale")
    return array


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For each row of a: its nearest row of b, the distances to it and to the second, and whether
    it is the nearest row of a to that b."""

    nearest: NDArray[np.intp]
    first: NDArray[np.float32]
    second: NDArray[np.float32]
    mutual: NDArray[np.bool_]


def neighbours(
    a: NDArray[np.float32], b: NDArray[np.float32], xy_b: FloatArray | None, radius: float
) -> Neighbours:
    """One pass over blocks of a; ``radius`` excludes b's at the same place from being second.

    Scores are a·b − |a|²/2 − |b|²/2 = −|a − b|²/2, so that rows and columns are compared alike.
    """
    # Relative to their mean: far from 0 the products would cancel.
    mean = b.mean(0, dtype=np.float64).astype(np.float32)
    a, b = a - mean, b - mean
    half_a = 0.5 * np.einsum("ij,ij->i", a, a)
    half_b = 0.5 * np.einsum("ij,ij->i", b, b)
    sets = _Sets(a, b, half_a, half_b, xy_b, radius)
    nearest = np.empty(len(a), np.intp)
    best, second = np.empty(len(a), np.float32), np.empty(len(a), np.float32)
    scan = _scan if native.core() is None else _compiled
    tops = scan(sets, (nearest, best, second))
    first = np.full(len(b), len(a))
    reaches = np.flatnonzero(best == tops[nearest])
    # Of rows that are equally near to the same b, the first.
    np.minimum.at(first, nearest[reaches], reaches)
    # The nearest may be very near: its distance is taken from the difference itself.
    apart = np.sqrt(np.einsum("ij,ij->i", a - b[nearest], a - b[nearest]))
    beyond = np.sqrt(np.maximum(-2 * second, 0))
    return Neighbours(nearest, apart, beyond, first[nearest] == np.arange(len(a)))


Finder = Callable[[NDArray[np.float32], NDArray[np.float32], FloatArray | None, float], Neighbours]
_Best = tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class _Sets:
    """What is compared: two sets, half the squared length of each row, and where b's rows are."""

    a: NDArray[np.float32]
    b: NDArray[np.float32]
    half_a: NDArray[np.float32]
    half_b: NDArray[np.float32]
    xy_b: FloatArray | None
    radius: float


def _scan(sets: _Sets, found: _Best) -> NDArray[np.float32]:
    """Fill in the nearest, its score and the second's; return the best score of each b."""
    nearest, best, second = found
    size = max(1, min(_ROWS, _SCORES // len(sets.b)))
    tops = np.full(len(sets.b), -np.inf, np.float32)
    # One block after the other: its scores are what the limit is for.
    for start in range(0, len(sets.a), size):
        part = slice(start, min(start + size, len(sets.a)))
        scores = sets.a[part] @ sets.b.T
        scores -= sets.half_b
        scores -= sets.half_a[part, None]
        columns = scores.argmax(1)
        nearest[part], best[part] = columns, scores[np.arange(len(scores)), columns]
        np.maximum(tops, scores.max(0), out=tops)
        second[part] = _second(scores, columns, sets.xy_b, sets.radius)
    return tops


def _compiled(sets: _Sets, found: _Best) -> NDArray[np.float32]:
    """The same by the compiled core, which keeps no scores at all."""
    core = native.core()
    packed = core.pack(sets.b)
    xy = None if sets.xy_b is None else np.ascontiguousarray(sets.xy_b, np.float64)
    tops, lock = np.full(len(sets.b), -np.inf, np.float32), Lock()

    def block(rows: range) -> None:
        part, highest = slice(rows.start, rows.stop), np.empty(len(sets.b), np.float32)
        outputs = [array[part] for array in found]
        left = sets.a[part], sets.half_a[part]
        core.nearest(*left, packed, sets.half_b, xy, sets.radius, *outputs, highest)
        with lock:
            np.maximum(tops, highest, out=tops)

    threads.each(block, threads.strips(len(sets.a), 1024))
    return tops


def _second(
    scores: NDArray[np.float32], best: NDArray[np.intp], xy_b: FloatArray | None, radius: float
) -> NDArray[np.float32]:
    """The best score of each row but that of its best column and of those at the same place."""
    rows = np.arange(len(scores))
    scores[rows, best] = -np.inf
    if xy_b is None:
        return np.asarray(scores.max(1))
    result = np.full(len(scores), -np.inf, np.float32)
    # The next best is hardly ever at the same place more than a few times in a row.
    for _ in range(4):
        columns = scores[rows].argmax(1)
        result[rows] = scores[rows, columns]
        near = np.abs(xy_b[columns] - xy_b[best[rows]]).max(1) <= radius
        rows, columns = rows[near], columns[near]
        if len(rows) == 0:
            return result
        scores[rows, columns] = -np.inf
    for row in rows:
        near = np.abs(xy_b - xy_b[best[row]]).max(1) <= radius
        result[row] = np.where(near, -np.inf, scores[row]).max()
    return result


def match_descriptors(
    a: object,
    b: object,
    *,
    mutual: bool = True,
    ratio: float | None = 0.9,
    xy_b: FloatArray | None = None,
    radius: float = 10.0,
    find: Finder = neighbours,
) -> Matches:
    """Nearest neighbours of a (n, d) in b (m, d) by Euclidean distance.

    ``mutual`` keeps those that are each other's nearest. ``ratio`` keeps those nearer than
    ``ratio`` times the second nearest; with the positions ``xy_b`` (m, 2) of b, the second is the
    nearest one that is not within ``radius`` pixels of the first (FGINN): the same corner detected
    twice does not speak against itself. ``find`` is what looks for neighbours, on another device.
    """
    if ratio is not None and not (isinstance(ratio, numbers.Real) and 0 < ratio <= 1):
        raise InputError(f"ratio must be above 0 and at most 1, or None; got {ratio!r}")
    if not (isinstance(radius, numbers.Real) and radius >= 0):
        raise InputError(f"radius must be 0 pixels or more, got {radius!r}")
    left, right = _checked(a, "first set"), _checked(b, "second set")
    if xy_b is not None and np.shape(xy_b) != (len(right), 2):
        raise InputError(f"xy_b: expected shape {(len(right), 2)}, got {np.shape(xy_b)}")
    if len(left) == 0 or len(right) == 0:
        return Matches(np.zeros((0, 2), np.intp), np.zeros(0, np.float32))
    if left.shape[1] != right.shape[1]:
        raise InputError(
            f"descriptors of {left.shape[1]} and {right.shape[1]} dimensions cannot be compared; "
            "describe both images the same way"
        )
    found = find(left, right, xy_b if ratio is not None else None, radius)
    keep = np.ones(len(left), bool)
    if mutual:
        keep &= found.mutual
    if ratio is not None:
        keep &= found.first < ratio * found.second
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(found.first[rows], kind="stable")]
    return Matches(np.stack([rows, found.nearest[rows]], -1), found.first[rows])
