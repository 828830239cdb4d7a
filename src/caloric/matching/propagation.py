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

from caloric.matching.refinement import Refined
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
            refinements[i].append(
                Refined(refined.maps[keep], refined.moved[keep], refined.covariances[keep])
            )
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
    distance, near = cKDTree(p).query(xy, _NEIGHBORS)
    rows = np.flatnonzero(distance[:, _NEIGHBORS // 2 - 1] < _REACH * np.hypot(*sizes[0]))
    if len(rows) == 0:
        return nothing
    near, xy = near[rows], xy[rows]
    centers = p[near].mean(1)
    x, y = p[near] - centers[:, None], q[near]
    middle = y.mean(1)
    # Least squares of y − middle = linear @ x, with closer inliers weighted more.
    weights = 1 / (distance[rows] + distance[rows].mean(1, keepdims=True))
    moments = np.einsum("mk,mki,mkj->mij", weights, x, x)
    narrow = np.linalg.eigvalsh(moments / weights.sum(1)[:, None, None])[:, 0]
    wide = narrow > _MIN_SPREAD**2
    products = np.einsum("mk,mki,mkj->mij", weights, y - middle[:, None], x)
    regular = moments + np.where(wide, 0.0, 1.0)[:, None, None] * np.eye(2)
    linear = products @ np.linalg.inv(regular)
    misfit = y - middle[:, None] - np.einsum("mij,mkj->mki", linear, x)
    misfit = np.sqrt((misfit**2).sum(2).mean(1))
    stretch = np.linalg.svd(linear, compute_uv=False)
    good = wide & (misfit < _MAX_MISFIT) & (stretch[:, 1] * _MAX_STRETCH > stretch[:, 0])
    good &= np.linalg.det(linear) > 0
    position = middle + np.einsum("mij,mj->mi", linear, xy - centers)
    h, w = sizes[1]
    good &= ((position >= _MARGIN) & (position <= np.array([w, h]) - 1 - _MARGIN)).all(1)
    maps = np.concatenate([linear @ frames[rows, :, :2], position[:, :, None]], 2)
    return Predictions(rows[good], maps[good])


def precise(covariances: FloatArray) -> NDArray[np.bool_]:
    """Return which positions with covariances (k, 2, 2) are precise; infinite ones are not."""
    traces = np.trace(covariances, axis1=1, axis2=2)
    return np.asarray(np.isfinite(traces) & (traces < 2 * _MAX_DEVIATION**2))


def free(positions: FloatArray, taken: FloatArray) -> NDArray[np.bool_]:
    """Return which positions (n, 2) are new: one per cell, and none close to those taken."""
    from scipy.spatial import cKDTree  # slow to import

    distance, _ = cKDTree(taken).query(positions)
    once = np.zeros(len(positions), bool)
    once[first_of_cells(np.floor(positions / _RADIUS).astype(np.int64))] = True
    return np.asarray(once & (distance > _RADIUS))
