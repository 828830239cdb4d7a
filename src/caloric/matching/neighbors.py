"""Exact nearest neighbors of descriptors, computed in blocks of bounded memory."""

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.runtime import native, progress, tables, threads
from caloric.runtime.indexing import first_of_cells, rows, select
from caloric.types import FloatArray

_ROWS = 512  # rows of a per block, fewer if b is large
_SCORES = 16_000_000  # per block
_CELL = 2.0  # pixels
LARGEST = 1e15  # largest entry: products must not overflow float32


ORIGINS = ("ratio", "agreement", "propagation")


@dataclass(frozen=True, eq=False)
class Matches:
    """Matches between the features of two images, nearest first; propagated ones are at the end.

    Attributes
    ----------
    indices : array (m, 2)
        Indices of the matched features in both images.
    distances : array (m,)
        Euclidean distances between their descriptors.
    refined : array (m, 2, 3) or None
        Refined frames in the second image, if the matches were refined.
    covariances : array (m, 2, 2) or None
        Covariances of the refined positions in square pixels, infinite if a frame was not refined.
    origin : array (m,) of uint8 or None
        How each match was found, as an index of :data:`ORIGINS`: it passed the ratio test, it
        agrees with its neighbors, or it was propagated from verified matches. None if all passed
        the ratio test.
    """

    indices: NDArray[np.intp]
    distances: NDArray[np.float32]
    refined: FloatArray | None = None
    covariances: FloatArray | None = None
    origin: NDArray[np.uint8] | None = None

    @property
    def origins(self) -> NDArray[np.uint8]:
        """How each match (m,) was found, also if ``origin`` is None."""
        return np.zeros(len(self), np.uint8) if self.origin is None else self.origin

    def is_from(self, origin: str) -> NDArray[np.bool_]:
        """Return which matches (m,) were found in one of the ways of :data:`ORIGINS`."""
        return np.asarray(self.origins == ORIGINS.index(origin))

    @classmethod
    def empty(cls) -> "Matches":
        """Return an empty set of matches."""
        return cls(np.zeros((0, 2), np.intp), np.zeros(0, np.float32))

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.indices)

    def __getitem__(self, index: Any) -> "Matches":
        """Return the matches selected by a slice, mask, indices, or a single index."""
        index = rows(index, len(self))
        refined, covariances = (
            None if v is None else select(v, index) for v in (self.refined, self.covariances)
        )
        origin = None if self.origin is None else self.origin[index]
        return Matches(
            select(self.indices, index), self.distances[index], refined, covariances, origin
        )

    def __repr__(self) -> str:
        """Return a one-line summary."""
        span = ""
        if len(self):
            span = f", distances {self.distances.min():.3g} to {self.distances.max():.3g}"
        return f"Matches({len(self)}{span}{'' if self.refined is None else ', refined'})"

    def _repr_html_(self) -> str:
        first = self[: tables.SHOWN]
        numbers = zip(*first.indices.T.tolist(), first.distances.tolist(), strict=True)
        return tables.html(repr(self), ("first", "second", "distance"), numbers, len(self))

    def points(self, xy_a: FloatArray, xy_b: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the matched points (m, 2) in both images, refined if the matches are."""
        second = select(xy_b, self.indices[:, 1]) if self.refined is None else self.refined[:, :, 2]
        return select(xy_a, self.indices[:, 0]), second


def as_descriptors(descriptors: object, which: str) -> NDArray[np.generic]:
    """Return descriptors as an array (n, d) of floats or uint8; values are not checked."""
    array = np.asarray(descriptors)
    if array.ndim != 2:
        raise InputError(f"{which}: expected descriptors of shape (n, d), got {array.shape}")
    if not (np.issubdtype(array.dtype, np.floating) or array.dtype == np.uint8):
        raise InputError(f"{which}: descriptors must be floats or uint8, got {array.dtype}")
    return array


def check_values(largest: float, which: str) -> None:
    """Raise InputError if descriptors with this largest absolute value cannot be compared."""
    if not np.isfinite(largest):
        raise InputError(f"{which}: descriptors contain NaN or infinite values")
    if largest > LARGEST:
        raise InputError(f"{which}: descriptor values exceed {LARGEST:g}; scale them down")


def check_dimensions(a: int, b: int) -> None:
    """Raise InputError if descriptors of these dimensions cannot be compared."""
    if a != b:
        raise InputError(
            f"descriptors of {a} and {b} dimensions cannot be compared; use the same descriptor "
            "for both images"
        )


def _checked(descriptors: object, which: str) -> NDArray[np.float32]:
    array = np.ascontiguousarray(as_descriptors(descriptors, which), np.float32)
    if array.size:
        check_values(max(-float(array.min()), float(array.max())), which)
    return array


@dataclass(frozen=True, eq=False)
class Neighbors:
    """The ``nearest`` row of b (n,) of each row of a.

    ``first`` and ``second`` (n,) are the distances to the nearest and the second nearest row;
    ``mutual`` (n,) says whether the row of a is also the nearest to that row of b.
    """

    nearest: NDArray[np.intp]
    first: NDArray[np.float32]
    second: NDArray[np.float32]
    mutual: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reference:
    """Descriptors b (m, d) in which neighbors are searched, prepared once for any number of sets.

    ``mean`` (d,) is subtracted from all descriptors, which avoids cancellation in the scores;
    ``half`` (m,) is half the squared norm of each row of b, ``xy`` (m, 2) are its positions, and
    ``columns`` is the form of b that the compiled core uses, if there is one.
    """

    b: NDArray[np.float32]
    mean: NDArray[np.float32]
    half: NDArray[np.float32]
    xy: FloatArray | None
    columns: Any

    @classmethod
    def of(
        cls, b: NDArray[np.float32], xy: FloatArray | None = None, *, screened: bool = True
    ) -> "Reference":
        """Return the reference of descriptors b (m, d) and, optionally, their positions (m, 2).

        Unless it is ``screened``, the core does not rule out pairs by products of bytes: the result
        is the same, but takes longer.
        """
        mean = b.mean(0, dtype=np.float64).astype(np.float32)
        if (b == np.rint(b)).all():  # integers minus integers are multiplied without rounding
            mean = np.rint(mean)
        b = b - mean
        half, core = _half_squares(b), native.core()
        positions = None if xy is None else np.ascontiguousarray(xy, np.float64)
        columns = None if core is None else core.Columns(b, half, screened)
        return cls(b, mean, half, positions, columns)


def _half_squares(a: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(0.5 * np.einsum("ij,ij->i", a, a))


def neighbors(
    a: NDArray[np.float32], b: NDArray[np.float32], xy_b: FloatArray | None, radius: float
) -> Neighbors:
    """Return :func:`neighbors_in` of a (n, d) and b (m, d), with the positions (m, 2) of b."""
    return neighbors_in(a, Reference.of(b, xy_b), None if xy_b is None else radius)


def neighbors_in(a: NDArray[np.float32], reference: Reference, radius: float | None) -> Neighbors:
    """Return the nearest rows of a reference (m, d) for each row of a (n, d).

    With a ``radius``, for which the reference must have positions, rows within it of the nearest do
    not count as second nearest. Scores are a·b − |a|²/2 − |b|²/2 = −|a − b|²/2, comparable across
    rows and columns.
    """
    a = a - reference.mean
    nearest = np.empty(len(a), np.intp)
    best, second = np.empty(len(a), np.float32), np.empty(len(a), np.float32)
    scan = _scan if reference.columns is None else _compiled
    tops = scan(a, reference, radius, (nearest, best, second))
    # Distances are computed from the difference, because scores suffer from cancellation.
    difference = reference.b[nearest]
    np.subtract(a, difference, out=difference)
    distances = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return Neighbors(nearest, distances, _distances(second), _mutual(nearest, best, tops))


def _distances(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(np.sqrt(np.maximum(-2 * scores, 0)))


def _mutual(
    nearest: NDArray[np.intp], best: NDArray[np.float32], tops: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Return which rows (n,) are nearest to their nearest row of b, given the best scores."""
    first = np.full(len(tops), len(nearest))
    rows = np.flatnonzero(best == tops[nearest])
    # Of several rows equally near to the same b, the first counts as its nearest.
    np.minimum.at(first, nearest[rows], rows)
    return np.asarray(first[nearest] == np.arange(len(nearest)))


_Best = tuple[NDArray[np.intp], NDArray[np.float32], NDArray[np.float32]]


def _scan(
    a: NDArray[np.float32], reference: Reference, radius: float | None, outputs: _Best
) -> NDArray[np.float32]:
    """Fill ``outputs`` (nearest rows, both scores); return the best score (m,) of each row of b."""
    nearest, best, second = outputs
    b, half_a = reference.b, _half_squares(a)
    size = max(1, min(_ROWS, _SCORES // len(b)))
    tops = np.full(len(b), -np.inf, np.float32)
    # Blocks are not computed in parallel, because each may use the whole memory budget.
    for start in range(0, len(a), size):
        progress.check()
        part = slice(start, min(start + size, len(a)))
        scores = a[part] @ b.T
        scores -= reference.half
        scores -= half_a[part, None]
        columns = scores.argmax(1)
        nearest[part], best[part] = columns, scores[np.arange(len(scores)), columns]
        np.maximum(tops, scores.max(0), out=tops)
        second[part] = _second(scores, columns, reference.xy, radius)
    return tops


def _compiled(
    a: NDArray[np.float32], reference: Reference, radius: float | None, outputs: _Best
) -> NDArray[np.float32]:
    """Do the same as :func:`_scan` with the compiled core, which does not store scores."""
    core, half_a = native.core(), _half_squares(a)

    def search(part: slice, **arrays: Any) -> None:
        core.nearest(a=a[part], half_a=half_a[part], columns=reference.columns, **arrays)

    return _in_blocks(search, reference.b, reference.xy, radius, outputs)


def _in_blocks(
    search: Callable[..., None],
    b: NDArray[np.generic],
    xy: FloatArray | None,
    radius: float | None,
    outputs: _Best,
) -> NDArray[np.float32]:
    """Search blocks of rows with the compiled core; return the best score (m,) of each row of b."""
    tops, lock = np.full(len(b), -np.inf, np.float32), Lock()

    def block(rows: range) -> None:
        part = slice(rows.start, rows.stop)
        with lock:  # the best scores so far rule out most rows
            highest = tops.copy()
        column, best, second = (array[part] for array in outputs)
        search(
            part, xy=None if radius is None else xy, radius=radius or 0.0, column=column, best=best,
            second=second, best_of_column=highest,
        )  # fmt: skip
        with lock:
            np.maximum(tops, highest, out=tops)

    threads.each(block, threads.strips(len(outputs[0]), 1024))
    return tops


@dataclass(frozen=True, eq=False)
class ByteReference:
    """Descriptors b (m, d) in bytes, prepared for a core that multiplies bytes exactly.

    ``xy`` (m, 2) are the positions of b, and ``columns`` is the form of b that the core uses. The
    results are those of :class:`Reference`, because sums of these products are exact in float32.
    """

    b: NDArray[np.uint8]
    xy: FloatArray | None
    columns: Any

    @cached_property
    def as_floats(self) -> Reference:
        """The reference for descriptors that are not bytes."""
        return Reference.of(self.b.astype(np.float32), self.xy)

    @classmethod
    def of(cls, b: NDArray[np.generic], xy: FloatArray | None) -> "ByteReference | None":
        """Return the reference, or None if b (m, d) cannot be searched in bytes."""
        core = native.core()
        if b.dtype != np.uint8 or core is None or not core.searches_bytes(b.shape[1]):
            return None
        values = np.ascontiguousarray(b, np.uint8)
        positions = None if xy is None else np.ascontiguousarray(xy, np.float64)
        return cls(values, positions, core.Bytes(values))


def _neighbors_of_bytes(
    a: NDArray[np.uint8], reference: ByteReference, radius: float | None
) -> Neighbors:
    """Return the same as :func:`neighbors_in` for a (n, d) and a reference in bytes."""
    core = native.core()
    nearest = np.empty(len(a), np.intp)
    best, second = np.empty(len(a), np.float32), np.empty(len(a), np.float32)

    def search(part: slice, **arrays: Any) -> None:
        core.nearest_bytes(a=a[part], columns=reference.columns, **arrays)

    tops = _in_blocks(search, reference.b, reference.xy, radius, (nearest, best, second))
    mutual = _mutual(nearest, best, tops)
    return Neighbors(nearest, _distances(best), _distances(second), mutual)


def _second(
    scores: NDArray[np.float32],
    best: NDArray[np.intp],
    xy_b: FloatArray | None,
    radius: float | None,
) -> NDArray[np.float32]:
    """Return the second best score (n,) of each row, without columns close to the best one."""
    rows = np.arange(len(scores))
    scores[rows, best] = -np.inf
    if xy_b is None or radius is None:
        return np.asarray(scores.max(1))
    result = np.full(len(scores), -np.inf, np.float32)
    # More than a few of the next best are rarely at the same position.
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


def one_per_position(matches: Matches, xy_a: FloatArray, xy_b: FloatArray) -> NDArray[np.intp]:
    """Return the indices of the first match between each pair of positions.

    Features of several simulated views give duplicate matches. Positions are cells of 2 pixels.
    """
    cells = np.concatenate([np.round(v / _CELL) for v in matches.points(xy_a, xy_b)], 1)
    return first_of_cells(cells.astype(np.int64))


def check_options(ratio: float | None, radius: float) -> None:
    """Raise InputError if an option of matching is invalid."""
    check_ratio(ratio)
    if not (isinstance(radius, numbers.Real) and radius >= 0):
        raise InputError(f"radius must be a non-negative number of pixels, got {radius!r}")


def check_ratio(ratio: float | None) -> None:
    """Raise InputError if the threshold of the ratio test is invalid."""
    if ratio is not None and not (isinstance(ratio, numbers.Real) and 0 < ratio <= 1):
        raise InputError(f"ratio must be above 0 and at most 1, got {ratio!r}")


def match_descriptors(
    a: object,
    b: object,
    *,
    mutual: bool = True,
    ratio: float | None = 0.9,
    xy_b: FloatArray | None = None,
    radius: float = 10.0,
) -> Matches:
    """Return the matches of descriptors a (n, d) in b (m, d) by Euclidean distance.

    ``mutual`` keeps mutual nearest neighbors. ``ratio`` keeps pairs whose distance is below
    ``ratio`` times that of the second nearest. With the positions ``xy_b`` (m, 2) of b, the second
    nearest must be more than ``radius`` pixels from the nearest (FGINN), so that a corner that was
    detected twice is not rejected.
    """
    check_options(ratio, radius)
    uses_positions = xy_b is not None and ratio is not None
    reference = checked_reference(b, xy_b)
    nearest = checked_neighbors(a, reference, radius if uses_positions else None)
    return Matches.empty() if nearest is None else selected(nearest, mutual, ratio)


def checked_reference(b: object, xy: FloatArray | None) -> Reference | ByteReference | None:
    """Return the reference of any descriptors b (m, d); None if there are none."""
    array = as_descriptors(b, "second set")
    if xy is not None and np.shape(xy) != (len(array), 2):
        raise InputError(f"xy_b: expected shape {(len(array), 2)}, got {np.shape(xy)}")
    if len(array) == 0:
        return None
    in_bytes = ByteReference.of(array, xy)
    return Reference.of(_checked(array, "second set"), xy) if in_bytes is None else in_bytes


def checked_neighbors(
    a: object, reference: Reference | ByteReference | None, radius: float | None
) -> Neighbors | None:
    """Return :func:`neighbors_in` of any descriptors a (n, d); None if there are none."""
    array = as_descriptors(a, "first set")
    if len(array) == 0 or reference is None:
        return None
    check_dimensions(array.shape[1], reference.b.shape[1])
    if isinstance(reference, ByteReference):
        if array.dtype == np.uint8:
            return _neighbors_of_bytes(np.ascontiguousarray(array, np.uint8), reference, radius)
        reference = reference.as_floats
    return neighbors_in(_checked(array, "first set"), reference, radius)


def selected(neighbors: Neighbors, mutual: bool, ratio: float | None) -> Matches:
    """Return the matches among nearest neighbors, nearest first."""
    keep = np.ones(len(neighbors.nearest), bool)
    if mutual:
        keep &= neighbors.mutual
    if ratio is not None:
        keep &= neighbors.first < ratio * neighbors.second
    rows = np.flatnonzero(keep)
    rows = rows[np.argsort(neighbors.first[rows], kind="stable")]
    return Matches(np.stack([rows, neighbors.nearest[rows]], -1), neighbors.first[rows])
