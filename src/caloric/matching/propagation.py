"""New matches predicted by verified ones: frames of one image without a counterpart in the other.

The nearest inliers of a frame determine a local affine map, which predicts the frame in the other
image. Refinement moves it until the images agree (:mod:`caloric.matching.refinement`); it moves by
at most its σ, so that a repeated texture cannot attract it. The detector of the other image is not
needed. A prediction is kept if it was refined, if its covariance is small, if it agrees with the
verified geometry, and if nothing is matched at its position yet. Frames of both images are
propagated in two rounds: new matches help to predict others. At the end, matches whose descriptors
are not similar are removed; they are computed once, because they need the scale space of an image.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import hypot

import numpy as np
from numpy.typing import NDArray

from caloric.frames import determinants, singular_values
from caloric.matching.points import PointIndex, are_first
from caloric.matching.refinement import Refined
from caloric.runtime import native, threads
from caloric.runtime.arrays import inner
from caloric.runtime.indexing import select
from caloric.types import FloatArray

_NEIGHBORS = 8  # inliers that determine the local map
_REACH = 0.08  # share of the diagonal: the largest distance of the fourth nearest inlier
_MIN_SPREAD = 4.0  # pixels: standard deviation of the inliers in their narrowest direction
_MAX_MISFIT = 2.0  # pixels: root mean square error of the local map at its inliers
_MAX_STRETCH = 6.0  # ratio of singular values of the local map
_MAX_DEVIATION = (
    0.7  # pixels: largest standard deviation of a refined position, in either direction
)
MIN_COSINE = 0.6  # of the two descriptors
_MARGIN = 1.0  # pixels inside the other image
_RADIUS = 1.0  # pixels: closer frames are at the same position
_ROUNDS = 2
_FEW = 0.02  # share of new matches below which propagation ends


@dataclass(frozen=True, eq=False)
class Side:
    """One image: its frames (n, 2, 3), their descriptors (n, d), and its size (h, w).

    ``offset`` is subtracted from descriptors: see :func:`caloric.features.offset_of`.
    """

    frames: FloatArray
    descriptors: NDArray[np.generic]
    size: tuple[int, int]
    offset: float = 0.0

    def decoded(self, descriptors: NDArray[np.generic]) -> NDArray[np.float32]:
        """Return stored descriptors (k, d) with signs."""
        return np.asarray(descriptors, np.float32) - np.float32(self.offset)


@dataclass(frozen=True, eq=False)
class Propagated:
    """Frames ``rows`` (k,) of one image and their counterparts in the other.

    ``maps`` (k, 2, 3) are frames in the other image with ``covariances`` (k, 2, 2) of their
    positions and stored ``descriptors`` (k, d), at ``distances`` (k,) from those of the first
    frames.
    """

    rows: NDArray[np.intp]
    maps: FloatArray
    covariances: FloatArray
    descriptors: NDArray[np.generic]
    distances: FloatArray


# refine(i, frames, predicted): frames of image i, refined in the other image
RefineFrom = Callable[[int, FloatArray, FloatArray], Refined]
# describe(i, maps): starts to describe frames in image i; the result returns stored descriptors
DescribeIn = Callable[[int, FloatArray], Callable[[], NDArray[np.generic]]]


Allowed = Callable[[FloatArray], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class Checks:
    """Conditions that new matches must satisfy.

    ``consistent(p, q)`` returns which matches (k, 2) of the first and the second image agree with
    the geometry, ``allowed[i](xy)`` which positions (k, 2) of image i may be used; None allows all.
    """

    consistent: Callable[[FloatArray, FloatArray], NDArray[np.bool_]]
    allowed: tuple[Allowed | None, Allowed | None] = (None, None)


def propagate(
    sides: tuple[Side, Side],
    inliers: tuple[FloatArray, FloatArray],
    refine: RefineFrom,
    describe: DescribeIn,
    checks: Checks,
) -> tuple[Propagated, Propagated]:
    """Return new matches: frames of each image with their counterparts in the other.

    ``inliers`` are the positions (m, 2) of verified matches in both images.
    """
    points = list(inliers)
    first = [np.flatnonzero(_are_first(side.frames[:, :, 2])) for side in sides]
    starts = [select(side.frames, its) for side, its in zip(sides, first, strict=True)]
    unmatched = [np.arange(len(rows)) for rows in first]
    rows: list[list[NDArray[np.intp]]] = [[], []]
    refinements: list[list[Refined]] = [[], []]
    for _ in range(_ROUNDS):
        before = len(points[0])
        for i, j in ((0, 1), (1, 0)):
            index = PointIndex.of(points[i])
            candidates = select(starts[i], unmatched[i])
            is_far = _is_far(candidates[:, :, 2], index)
            unmatched[i] = unmatched[i][is_far]
            candidates = select(candidates, is_far)
            sizes = sides[i].size, sides[j].size
            predicted = predict(candidates, index, points[j], sizes)
            tried = unmatched[i][predicted.rows]
            frames = select(candidates, predicted.rows)
            refined = refine(i, frames, predicted.maps)
            ends = frames[:, :, 2], refined.xy  # in images i and j
            good = refined.moved & precise(refined.total_covariances)
            good &= checks.consistent(ends[i], ends[j])  # the first image comes first
            good &= _is_far(refined.xy, PointIndex.of(points[j]))
            is_allowed = checks.allowed[j]
            if is_allowed is not None:
                good &= is_allowed(refined.xy)
            kept = np.flatnonzero(good)
            rows[i].append(first[i][tried[kept]])
            refinements[i].append(refined[kept])
            points[i] = np.concatenate([points[i], ends[0][kept]])
            points[j] = np.concatenate([points[j], ends[1][kept]])
        if len(points[0]) - before < _FEW * before:
            break
    joined = [_Candidates.joined(rows[i], refinements[i]) for i in range(2)]
    # On a device, both are queued before the first result is used.
    described = [_described(describe, 1 - i, joined[i], sides[i]) for i in range(2)]
    forward = threads.begin(partial(_similar, sides[0], joined[0], described[0]()))
    backward = _similar(sides[1], joined[1], described[1]())
    return forward(), backward


@dataclass(frozen=True, eq=False)
class _Candidates:
    """Frames ``rows`` (k,) of an image and their refined counterparts in the other."""

    rows: NDArray[np.intp]
    maps: FloatArray
    covariances: FloatArray

    @classmethod
    def joined(cls, rows: list[NDArray[np.intp]], refinements: list[Refined]) -> "_Candidates":
        return cls(
            np.concatenate(rows), np.concatenate([part.maps for part in refinements]),
            np.concatenate([part.covariances for part in refinements]),
        )  # fmt: skip


def _described(
    describe: DescribeIn, image: int, candidates: _Candidates, side: Side
) -> Callable[[], NDArray[np.generic]]:
    if len(candidates.rows) == 0:
        return lambda: side.descriptors[:0]
    return describe(image, candidates.maps)


def _similar(side: Side, candidates: _Candidates, described: NDArray[np.generic]) -> Propagated:
    """Return the candidates whose descriptors are similar."""
    a, b = side.decoded(described), side.decoded(select(side.descriptors, candidates.rows))
    kept = np.flatnonzero(inner(a, b, 1) > MIN_COSINE * (inner(a, a, 1) * inner(b, b, 1)) ** 0.5)
    difference = select(a, kept) - select(b, kept)
    return Propagated(
        candidates.rows[kept], select(candidates.maps, kept), select(candidates.covariances, kept),
        select(described, kept), inner(difference, difference, 1) ** 0.5,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Predictions:
    """Frames ``maps`` (k, 2, 3) predicted in the other image for the frames ``rows`` (k,)."""

    rows: NDArray[np.intp]
    maps: FloatArray


def predict(
    frames: FloatArray,
    p: PointIndex,
    q: FloatArray,
    sizes: tuple[tuple[int, int], tuple[int, int]],
) -> Predictions:
    """Return the frames of one image (n, 2, 3), predicted in the other.

    ``p`` and ``q`` (m, 2) are the positions of verified matches in both images, ``sizes`` (h, w)
    those of the images.
    """
    if len(p) < _NEIGHBORS or len(frames) == 0:
        return Predictions(np.zeros(0, np.intp), frames[:0])
    by = _by_numpy if p.grid is None else _by_core
    return by(frames, p, q, _REACH * hypot(*sizes[0]), sizes[1])


def _by_core(
    frames: FloatArray, p: PointIndex, q: FloatArray, reach: float, size: tuple[int, int]
) -> Predictions:
    """Return the same as :func:`_by_numpy`, by the compiled core."""
    frames, q = (np.ascontiguousarray(v, np.float64) for v in (frames, q))
    maps, good = np.empty(frames.shape), np.empty(len(frames), bool)
    native.core().predict(
        grid=p.grid, p=p.points, q=q, frames=frames, size=size, neighbors=_NEIGHBORS,
        constants={
            "reach": reach, "min_spread": _MIN_SPREAD, "max_misfit": _MAX_MISFIT,
            "max_stretch": _MAX_STRETCH, "margin": _MARGIN,
        },
        threads=threads.usable(), maps=maps, good=good,
    )  # fmt: skip
    kept = np.flatnonzero(good)
    return Predictions(kept, select(maps, kept))


def _by_numpy(
    frames: FloatArray, p: PointIndex, q: FloatArray, reach: float, size: tuple[int, int]
) -> Predictions:
    xy = frames[:, :, 2]
    distance, near = p.nearest(xy, _NEIGHBORS)
    rows = np.flatnonzero(distance[:, _NEIGHBORS // 2 - 1] < reach)
    near, distance = near[rows], distance[rows]
    centers, middles = p.points[near].mean(1), q[near].mean(1)
    weights = 1 / (distance + distance.mean(1)[:, None])  # closer inliers count more
    x = [p.points[near, i] - centers[:, i, None] for i in range(2)]
    y = [q[near, i] - middles[:, i, None] for i in range(2)]
    linear, good = _fitted(x, y, weights / weights.sum(1)[:, None])
    position = middles + (linear @ (xy[rows] - centers)[:, :, None])[:, :, 0]
    for column, length in enumerate(reversed(size)):
        along = position[:, column]
        good &= (along >= _MARGIN) & (along <= length - 1 - _MARGIN)
    maps = np.concatenate([linear @ frames[rows, :, :2], position[:, :, None]], 2)
    return Predictions(rows[good], maps[good])


def _fitted(
    x: list[FloatArray], y: list[FloatArray], weights: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the least-squares maps (m, 2, 2) of y = linear @ x, and which of them are good.

    ``x`` and ``y`` are two coordinates (m, k) each, and ``weights`` (m, k) sum to 1. For 2 x 2
    matrices formulas are much faster than NumPy's routines.
    """
    weighted = [weights * v for v in x]
    a, b, c = ((weighted[i] * x[j]).sum(1) for i, j in ((0, 0), (0, 1), (1, 1)))
    narrowest = (a + c) / 2 - np.hypot((a - c) / 2, b)  # eigenvalue of the moments [[a, b], [b, c]]
    good = narrowest > _MIN_SPREAD**2
    divisor = np.where(good, a * c - b**2, 1.0)
    linear, misfit = np.empty((len(a), 2, 2)), np.zeros(len(a))
    for i, v in enumerate(y):
        first, second = ((w * v).sum(1) for w in weighted)
        linear[:, i, 0] = (first * c - second * b) / divisor
        linear[:, i, 1] = (second * a - first * b) / divisor
        misfit += ((v - linear[:, i, :1] * x[0] - linear[:, i, 1:] * x[1]) ** 2).mean(1)
    good &= misfit < _MAX_MISFIT**2
    largest, smallest = singular_values(linear)
    return linear, good & (smallest * _MAX_STRETCH > largest) & (determinants(linear) > 0)


def precise(covariances: FloatArray) -> NDArray[np.bool_]:
    """Return which positions with covariances (k, 2, 2) are precise; infinite ones are not.

    The root mean square of the standard deviations along x and y is compared with a limit.
    """
    return np.asarray(covariances[:, 0, 0] + covariances[:, 1, 1] < 2 * _MAX_DEVIATION**2)


def free(positions: FloatArray, taken: FloatArray) -> NDArray[np.bool_]:
    """Return which positions (n, 2) are new: one per cell, and none close to those taken (m, 2)."""
    return _are_first(positions) & _is_far(positions, PointIndex.of(taken))


def _are_first(positions: FloatArray) -> NDArray[np.bool_]:
    """Return which positions (n, 2) are the first of their cells."""
    return are_first(np.floor(positions / _RADIUS).astype(np.int64))


def _is_far(positions: FloatArray, taken: PointIndex) -> NDArray[np.bool_]:
    """Return which positions (n, 2) are not close to those taken (m, 2)."""
    return ~taken.within(positions, _RADIUS)
