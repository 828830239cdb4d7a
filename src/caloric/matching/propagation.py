"""New matches predicted by verified ones: frames of one image without a counterpart in the other.

The nearest inliers of a frame determine a local affine map, which predicts the frame in the other
image. Refinement moves it until the images agree (:mod:`caloric.matching.refinement`); it moves by
at most its σ, so that a repeated texture cannot attract it. The detector of the other image is not
needed. A prediction is kept if it was refined, if its covariance is small, if it agrees with the
verified geometry, and if nothing is matched at its position yet. Frames of both images are
propagated in two rounds: new matches help to predict others. At the end, matches whose descriptors
are not similar are removed; they are computed once, because they need the scale space of an image.

Arrays may be NumPy arrays, or PyTorch tensors on a device; then a :class:`PointSearch` for them is
needed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import hypot

from caloric.frames import determinants, singular_values
from caloric.matching.points import ON_HOST, PointSearch
from caloric.matching.refinement import Refined
from caloric.runtime.arrays import empty, inner, namespace, true_indices
from caloric.types import ArrayOrTensor

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
    """One image: its frames (n, 2, 3), their descriptors (n, d), and its size (h, w)."""

    frames: ArrayOrTensor
    descriptors: ArrayOrTensor
    size: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Propagated:
    """Frames ``rows`` (k,) of one image and their counterparts in the other.

    ``maps`` (k, 2, 3) are frames in the other image with ``covariances`` (k, 2, 2) of their
    positions and ``descriptors`` (k, d), at ``distances`` (k,) from those of the first frames.
    """

    rows: ArrayOrTensor
    maps: ArrayOrTensor
    covariances: ArrayOrTensor
    descriptors: ArrayOrTensor
    distances: ArrayOrTensor


# refine(i, frames, predicted): frames of image i, refined in the other image
RefineFrom = Callable[[int, ArrayOrTensor, ArrayOrTensor], Refined]
# describe(i, maps): descriptors of frames in image i
DescribeIn = Callable[[int, ArrayOrTensor], ArrayOrTensor]


Allowed = Callable[[ArrayOrTensor], ArrayOrTensor]


@dataclass(frozen=True, eq=False)
class Checks:
    """Conditions that new matches must satisfy.

    ``consistent(p, q)`` returns which matches (k, 2) of the first and the second image agree with
    the geometry, ``allowed[i](xy)`` which positions (k, 2) of image i may be used; None allows all.
    """

    consistent: Callable[[ArrayOrTensor, ArrayOrTensor], ArrayOrTensor]
    allowed: tuple[Allowed | None, Allowed | None] = (None, None)


def propagate(
    sides: tuple[Side, Side],
    inliers: tuple[ArrayOrTensor, ArrayOrTensor],
    refine: RefineFrom,
    describe: DescribeIn,
    checks: Checks,
    search: PointSearch = ON_HOST,
) -> tuple[Propagated, Propagated]:
    """Return new matches: frames of each image with their counterparts in the other.

    ``inliers`` are the positions (m, 2) of verified matches in both images.
    """
    xp, points = namespace(inliers[0]), list(inliers)
    first = [true_indices(_are_first(side.frames[:, :, 2], search)) for side in sides]
    rows: list[list[ArrayOrTensor]] = [[], []]
    refinements: list[list[Refined]] = [[], []]
    for _ in range(_ROUNDS):
        before = len(points[0])
        for i, j in ((0, 1), (1, 0)):
            far = _is_far(sides[i].frames[first[i], :, 2], points[i], search)
            unmatched = first[i][true_indices(far)]
            sizes = sides[i].size, sides[j].size
            predicted = predict(sides[i].frames[unmatched], (points[i], points[j]), sizes, search)
            candidates = unmatched[predicted.rows]
            frames = sides[i].frames[candidates]
            refined = refine(i, frames, predicted.maps)
            ends = [frames[:, :, 2], refined.xy]
            good = refined.moved & precise(refined.total_covariances)
            good = good & checks.consistent(ends[i], ends[j])
            good = good & _is_far(refined.xy, points[j], search)
            is_allowed = checks.allowed[j]
            kept = true_indices(good if is_allowed is None else good & is_allowed(refined.xy))
            rows[i].append(candidates[kept])
            refinements[i].append(refined[kept])
            points[i] = xp.concatenate([points[i], ends[0][kept]])
            points[j] = xp.concatenate([points[j], ends[1][kept]])
        if len(points[0]) - before < _FEW * before:
            break
    results = [_similar(sides[i], rows[i], refinements[i], describe, 1 - i) for i in range(2)]
    return results[0], results[1]


def _similar(
    side: Side,
    rows: list[ArrayOrTensor],
    refinements: list[Refined],
    describe: DescribeIn,
    other: int,
) -> Propagated:
    """Return the matches whose descriptors are similar."""
    xp = namespace(side.frames)
    all_rows = xp.concatenate(rows)
    maps = xp.concatenate([part.maps for part in refinements])
    covariances = xp.concatenate([part.covariances for part in refinements])
    a, b = describe(other, maps), side.descriptors[all_rows]
    similar = inner(a, b, 1) > MIN_COSINE * (inner(a, a, 1) * inner(b, b, 1)) ** 0.5
    kept = true_indices(similar)
    a, b = a[kept], b[kept]
    distances = inner(a - b, a - b, 1) ** 0.5
    return Propagated(all_rows[kept], maps[kept], covariances[kept], a, distances)


@dataclass(frozen=True, eq=False)
class Predictions:
    """Frames ``maps`` (k, 2, 3) predicted in the other image for the frames ``rows`` (k,)."""

    rows: ArrayOrTensor
    maps: ArrayOrTensor


def predict(
    frames: ArrayOrTensor,
    inliers: tuple[ArrayOrTensor, ArrayOrTensor],
    sizes: tuple[tuple[int, int], tuple[int, int]],
    search: PointSearch = ON_HOST,
) -> Predictions:
    """Return the frames of one image (n, 2, 3), predicted in the other.

    ``inliers`` are the positions (m, 2) of verified matches in both images, ``sizes`` (h, w) those
    of the images.
    """
    p, q = inliers
    xp, xy = namespace(frames), frames[:, :, 2]
    if len(p) < _NEIGHBORS or len(frames) == 0:
        return Predictions(true_indices(xy[:0, 0] > 0), frames[:0])
    distance, near = search.nearest(p, xy, _NEIGHBORS)
    rows = true_indices(distance[:, _NEIGHBORS // 2 - 1] < _REACH * hypot(*sizes[0]))
    near, distance = near[rows], distance[rows]
    centers, middles = p[near].mean(1), q[near].mean(1)
    weights = 1 / (distance + distance.mean(1)[:, None])  # closer inliers count more
    x = [p[near, i] - centers[:, i, None] for i in range(2)]
    y = [q[near, i] - middles[:, i, None] for i in range(2)]
    linear, good = _fitted(x, y, weights / weights.sum(1)[:, None])
    position = middles + (linear @ (xy[rows] - centers)[:, :, None])[:, :, 0]
    for column, length in enumerate(reversed(sizes[1])):
        x = position[:, column]
        good = good & (x >= _MARGIN) & (x <= length - 1 - _MARGIN)
    maps = xp.concatenate([linear @ frames[rows, :, :2], position[:, :, None]], 2)
    kept = true_indices(good)  # once: on a device, the host waits for it
    return Predictions(rows[kept], maps[kept])


def _fitted(
    x: list[ArrayOrTensor], y: list[ArrayOrTensor], weights: ArrayOrTensor
) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return the least-squares maps (m, 2, 2) of y = linear @ x, and which of them are good.

    ``x`` and ``y`` are two coordinates (m, k) each, and ``weights`` (m, k) sum to 1. For 2 x 2
    matrices formulas are much faster than NumPy's routines.
    """
    xp, weighted = namespace(weights), [weights * v for v in x]
    a, b, c = ((weighted[i] * x[j]).sum(1) for i, j in ((0, 0), (0, 1), (1, 1)))
    narrowest = (a + c) / 2 - xp.hypot((a - c) / 2, b)  # eigenvalue of the moments [[a, b], [b, c]]
    good = narrowest > _MIN_SPREAD**2
    divisor = xp.where(good, a * c - b**2, 1.0)
    linear, misfit = empty((len(a), 2, 2), a), xp.zeros_like(a)
    for i, v in enumerate(y):
        first, second = ((w * v).sum(1) for w in weighted)
        linear[:, i, 0] = (first * c - second * b) / divisor
        linear[:, i, 1] = (second * a - first * b) / divisor
        misfit += ((v - linear[:, i, :1] * x[0] - linear[:, i, 1:] * x[1]) ** 2).mean(1)
    good = good & (misfit < _MAX_MISFIT**2)
    largest, smallest = singular_values(linear)
    return linear, good & (smallest * _MAX_STRETCH > largest) & (determinants(linear) > 0)


def precise(covariances: ArrayOrTensor) -> ArrayOrTensor:
    """Return which positions with covariances (k, 2, 2) are precise; infinite ones are not.

    The root mean square of the standard deviations along x and y is compared with a limit.
    """
    return covariances[:, 0, 0] + covariances[:, 1, 1] < 2 * _MAX_DEVIATION**2


def free(
    positions: ArrayOrTensor, taken: ArrayOrTensor, search: PointSearch = ON_HOST
) -> ArrayOrTensor:
    """Return which positions (n, 2) are new: one per cell, and none close to those taken (m, 2)."""
    return _are_first(positions, search) & _is_far(positions, taken, search)


def _are_first(positions: ArrayOrTensor, search: PointSearch) -> ArrayOrTensor:
    """Return which positions (n, 2) are the first of their cells."""
    xp = namespace(positions)
    return search.are_first(xp.asarray(xp.floor(positions / _RADIUS), dtype=xp.int64))


def _is_far(positions: ArrayOrTensor, taken: ArrayOrTensor, search: PointSearch) -> ArrayOrTensor:
    """Return which positions (n, 2) are not close to those taken (m, 2)."""
    distance, _ = search.nearest(taken, positions, 1)
    return distance[:, 0] > _RADIUS
