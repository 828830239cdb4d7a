"""New matches predicted by verified ones: frames of one image without a counterpart in the other.

The nearest inliers of a frame determine a local affine map, which predicts the frame in the other
image. Refinement moves it until the images agree (:mod:`caloric.matching.refinement`); it moves by
at most its σ, so that a repeated texture cannot attract it. The detector of the other image is not
needed. A prediction is kept if it was refined, if its covariance is small, if it agrees with the
verified geometry, and if its descriptor in the other image is similar. Frames of both images are
propagated, and new matches help to predict others, until few are added.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.frames import determinants, singular_values
from caloric.matching.refinement import Refined
from caloric.runtime import threads
from caloric.runtime.indexing import first_of_cells
from caloric.types import FloatArray

_NEIGHBORS = 8  # inliers that determine the local map
_REACH = 0.08  # share of the diagonal: the largest distance of the fourth nearest inlier
_MIN_SPREAD = 4.0  # pixels: standard deviation of the inliers in their narrowest direction
_MAX_MISFIT = 2.0  # pixels: root mean square error of the local map at its inliers
_MAX_STRETCH = 6.0  # ratio of singular values of the local map
_MAX_DEVIATION = 0.7  # pixels: largest standard deviation of a refined position
MIN_COSINE = 0.6  # of the two descriptors
_MARGIN = 1.0  # pixels inside the other image
_RADIUS = 1.0  # pixels: closer frames are at the same position
_ROUNDS = 2
_FEW = 0.02  # share of new matches below which propagation ends


@dataclass(frozen=True, eq=False)
class Side:
    """One image: its frames (n, 2, 3), their descriptors (n, d), and its size (h, w)."""

    frames: FloatArray
    descriptors: FloatArray
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Propagated:
    """Frames ``rows`` (k,) of one image and their counterparts in the other.

    ``maps`` (k, 2, 3) are frames in the other image with ``covariances`` (k, 2, 2) of their
    positions and ``descriptors`` (k, d).
    """

    rows: NDArray[np.intp]
    maps: FloatArray
    covariances: FloatArray
    descriptors: FloatArray


# refine(i, frames, predicted): frames of image i, refined in the other image
RefineFrom = Callable[[int, FloatArray, FloatArray], Refined]
# describe(i, maps): descriptors of frames in image i
DescribeIn = Callable[[int, FloatArray], FloatArray]
# consistent(p, q): which matches (k, 2) of the first and the second image agree with the geometry
Consistent = Callable[[FloatArray, FloatArray], NDArray[np.bool_]]


def propagate(
    sides: tuple[Side, Side],
    inliers: tuple[FloatArray, FloatArray],
    refine: RefineFrom,
    describe: DescribeIn,
    consistent: Consistent,
) -> tuple[Propagated, Propagated]:
    """Return new matches: frames of each image with their counterparts in the other.

    ``inliers`` are the positions (m, 2) of verified matches in both images.
    """
    points = list(inliers)
    rows: list[list[NDArray[np.intp]]] = [[], []]
    refinements: list[list[Refined]] = [[], []]
    for _ in range(_ROUNDS):
        before = len(points[0])
        for i, j in ((0, 1), (1, 0)):
            unmatched = np.flatnonzero(free(sides[i].frames[:, :, 2], points[i]))
            predicted = predict(
                sides[i].frames[unmatched], (points[i], points[j]), (sides[i].size, sides[j].size)
            )
            frames = sides[i].frames[unmatched[predicted.rows]]
            refined = refine(i, frames, predicted.maps)
            ends = [frames[:, :, 2], refined.xy]
            keep = refined.moved & precise(refined.covariances) & consistent(ends[i], ends[j])
            rows[i].append(unmatched[predicted.rows[keep]])
            refinements[i].append(refined[keep])
            points[i] = np.concatenate([points[i], ends[0][keep]])
            points[j] = np.concatenate([points[j], ends[1][keep]])
        if len(points[0]) - before < _FEW * before:
            break
    results = [_similar(sides[i], rows[i], refinements[i], describe, 1 - i) for i in range(2)]
    return results[0], results[1]


def _similar(
    side: Side,
    rows: list[NDArray[np.intp]],
    refinements: list[Refined],
    describe: DescribeIn,
    other: int,
) -> Propagated:
    """Return the matches whose descriptors are similar."""
    all_rows = np.concatenate(rows)
    maps = np.concatenate([part.maps for part in refinements])
    covariances = np.concatenate([part.covariances for part in refinements])
    descriptors, descriptors_of_side = describe(other, maps), side.descriptors[all_rows]
    norms = np.linalg.norm(descriptors, axis=1) * np.linalg.norm(descriptors_of_side, axis=1)
    keep = (descriptors * descriptors_of_side).sum(1) > MIN_COSINE * norms
    return Propagated(all_rows[keep], maps[keep], covariances[keep], descriptors[keep])


@dataclass(frozen=True, eq=False)
class Predictions:
    """Frames ``maps`` (k, 2, 3) predicted in the other image for the frames ``rows`` (k,)."""

    rows: NDArray[np.intp]
    maps: FloatArray


def predict(
    frames: FloatArray,
    inliers: tuple[FloatArray, FloatArray],
    sizes: tuple[tuple[int, int], tuple[int, int]],
) -> Predictions:
    """Return the frames of one image (n, 2, 3), predicted in the other.

    ``inliers`` are the positions (m, 2) of verified matches in both images, ``sizes`` (h, w) those
    of the images.
    """
    p, q = inliers
    nothing = Predictions(np.zeros(0, np.intp), np.zeros((0, 2, 3)))
    if len(p) < _NEIGHBORS or len(frames) == 0:
        return nothing
    from scipy.spatial import cKDTree  # slow to import

    xy = frames[:, :, 2]
    distance, near = cKDTree(p).query(xy, _NEIGHBORS, workers=threads.count())
    rows = np.flatnonzero(distance[:, _NEIGHBORS // 2 - 1] < _REACH * np.hypot(*sizes[0]))
    if len(rows) == 0:
        return nothing
    near, distance = near[rows], distance[rows]
    centers, middles = p[near].mean(1), q[near].mean(1)
    weights = 1 / (distance + distance.mean(1, keepdims=True))  # closer inliers count more
    x = [p[near, i] - centers[:, i, None] for i in range(2)]
    y = [q[near, i] - middles[:, i, None] for i in range(2)]
    linear, good = _fitted(x, y, weights / weights.sum(1, keepdims=True))
    position = middles + (linear @ (xy[rows] - centers)[:, :, None])[:, :, 0]
    h, w = sizes[1]
    good &= ((position >= _MARGIN) & (position <= np.array([w, h]) - 1 - _MARGIN)).all(1)
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
    """Return which positions with covariances (k, 2, 2) are precise; infinite ones are not."""
    traces = np.trace(covariances, axis1=1, axis2=2)
    return np.asarray(np.isfinite(traces) & (traces < 2 * _MAX_DEVIATION**2))


def free(positions: FloatArray, taken: FloatArray) -> NDArray[np.bool_]:
    """Return which positions (n, 2) are new: one per cell, and none close to those taken."""
    from scipy.spatial import cKDTree  # slow to import

    distance, _ = cKDTree(taken).query(positions, workers=threads.count())
    once = np.zeros(len(positions), bool)
    once[first_of_cells(np.floor(positions / _RADIUS).astype(np.int64))] = True
    return np.asarray(once & (distance > _RADIUS))
