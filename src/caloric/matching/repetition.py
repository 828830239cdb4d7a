"""Repeated structure: matches between different instances of the same element.

Windows of a facade match other windows, at any shift along the epipolar lines, and a symmetric
building matches its mirror image. Such matches may agree with a geometry. But an element that is
repeated between two images is repeated within each image as well: the descriptors of such a match
are no closer to each other than to those of other features of the same image. The ratio of a
match is its distance relative to the smaller of these two distances. Below 0.8 the match is
distinct.

Correct matches are not distinct either if the viewpoint or the illumination changed much. Then
the local maps of their frames differ from the identity, unlike those of repeated elements, which
are seen from almost the same direction. A logistic regression combines the share of distinct
matches with the changes of scale, anisotropy and orientation. If only a part of the matches is due
to repetition, these and their neighbors are the least distinct ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import atan2, degrees, exp, log, log2

import numpy as np
from numpy.typing import NDArray

from caloric.frames import local_maps
from caloric.runtime import threads
from caloric.runtime.indexing import select
from caloric.types import FloatArray

_DISTINCT, _NEARLY = 0.8, 0.9  # ratios below which a match counts as distinct, and as half
_SAME = 8.0  # pixels: closer features of an image show the same element
_NEIGHBORS = 24  # matches over which distinctness is averaged
_PART = 0.5  # of the distinctness of the most distinct matches (their 90 % quantile)
_MOST_DISTINCT, _LEAST_DISTINCT = 0.35, 0.25  # upper bounds on that limit and on a repeated part
_OTHERS = 0.4  # smallest mean distinctness of the other matches
_MIN_PART, _MIN_SHARE = 8, 0.05  # matches of a repeated part
_REPEATED = 0.2  # largest probability of a repeated part
# Numbers of matches that are examined first, with the mean distinctness from which no others are.
_EXAMINED = ((32, 0.75), (300, 0.6))
_MAX_CHANGE, _MAX_ROTATION = 1.5, 20.0  # octaves and degrees, above which changes count equally
_UPSIDE_DOWN = 90.0  # degrees: a window also resembles others upside down
# Of 1, the logarithm of the share of distinct matches, octaves of scale and of anisotropy, and tens
# of degrees: fitted to parts of photographs without and with a common part, and to pairs of
# photographs (``python -m tools parts``).
COEFFICIENTS = (4.59, 4.27, 4.0, 4.38)


@dataclass(frozen=True, eq=False)
class Described:
    """All features of an image: their descriptors (n, d) and positions (n, 2)."""

    descriptors: NDArray[np.generic]
    xy: FloatArray


@dataclass(frozen=True, eq=False)
class Appearance:
    """The appearance of matches: their frames (m, 2, 3), and the features of both images.

    ``features`` are copied from a device when they are needed; ``indices`` (m, 2) are those of the
    matches.
    """

    features: Callable[[], tuple[Described, Described]]
    indices: NDArray[np.integer]
    frames: tuple[FloatArray, FloatArray]

    def selected(self, rows: NDArray[np.intp]) -> "Appearance":
        """Return that of some of the matches."""
        first, second = (select(maps, rows) for maps in self.frames)
        return Appearance(self.features, self.indices[rows], (first, second))

    def distinctness(self) -> "Distinctness":
        """Compare the matches with the features of the same images."""
        a, b = self.features()
        i, j = self.indices.T
        first, second = (
            np.asarray(side.descriptors[rows], np.float32) for side, rows in ((a, i), (b, j))
        )
        difference = first - second
        squares = np.einsum("ij,ij->i", difference, difference)
        pending = threads.begin(lambda: _nearest(a, i, first))
        nearest = np.minimum(_nearest(b, j, second), pending())
        ratios = np.sqrt(squares / np.maximum(nearest, 1e-12))
        positions = np.concatenate([frames[:, :, 2] for frames in self.frames], 1)
        return Distinctness(np.asarray(ratios, np.float64), local_maps(*self.frames), positions)


def _nearest(
    side: Described, rows: NDArray[np.integer], descriptors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the smallest square of the distances (k,) to features at other positions."""
    others = np.asarray(side.descriptors, np.float32)
    squares = -2 * descriptors @ others.T
    squares += np.einsum("ij,ij->i", descriptors, descriptors)[:, None]
    squares += np.einsum("ij,ij->i", others, others)
    xy = side.xy.astype(np.float32)
    near = (xy[rows, 0, None] - xy[:, 0]) ** 2 + (xy[rows, 1, None] - xy[:, 1]) ** 2 < _SAME**2
    squares[near] = np.inf
    return np.asarray(squares.min(1, initial=np.inf))


@dataclass(frozen=True, eq=False)
class Distinctness:
    """The ratios (m,) of matches, their local maps (m, 2, 2), and positions (m, 4)."""

    ratios: FloatArray
    maps: FloatArray
    positions: FloatArray

    @property
    def scores(self) -> FloatArray:
        """1 for distinct matches (m,), 0.5 for nearly distinct ones, otherwise 0."""
        return 0.5 * (self.ratios < _DISTINCT) + 0.5 * (self.ratios < _NEARLY)

    def selected(self, chosen: NDArray[np.bool_]) -> "Distinctness":
        """Return that of some of the matches."""
        return Distinctness(*(values[chosen] for values in vars(self).values()))

    @property
    def terms(self) -> tuple[float, ...]:
        """The regressors: see :data:`COEFFICIENTS`."""
        count = len(self.ratios)
        # A distinct match counts 1.5 and a nearly distinct one 0.5.
        distinct = (self.ratios < _DISTINCT).sum() + 0.5 * (self.ratios < _NEARLY).sum()
        change = np.median(self.maps, 0)
        largest, smallest = (max(float(v), 1e-3) for v in np.linalg.svd(change)[1])
        shape = abs(log2(largest * smallest)) / 2 + log2(largest / smallest)
        turn = abs(degrees(atan2(change[1, 0] - change[0, 1], change[0, 0] + change[1, 1])))
        turn = turn if turn < _UPSIDE_DOWN else 0.0
        share = log((distinct + 1) / (count + 10))
        return 1.0, share, min(shape, _MAX_CHANGE), min(turn, _MAX_ROTATION) / 10

    @property
    def probability(self) -> float:
        """The probability that the matches are not due to repeated structure."""
        if len(self.ratios) == 0:
            return 0.0
        return 1 / (1 + exp(-sum(c * t for c, t in zip(COEFFICIENTS, self.terms, strict=True))))

    @property
    def repeated(self) -> NDArray[np.bool_]:
        """The part of the matches (m,) that is due to repeated structure, if others are not."""
        none = np.zeros(len(self.ratios), bool)
        if len(none) <= _NEIGHBORS:
            return none
        from scipy.spatial import cKDTree  # slow to import

        scores = self.scores
        _, near = cKDTree(self.positions).query(self.positions, _NEIGHBORS)
        around = scores[near].mean(1)
        part = around < min(_PART * float(np.quantile(around, 0.9)), _MOST_DISTINCT)
        if part.sum() < max(_MIN_PART, _MIN_SHARE * len(part)) or part.all():
            return none
        least, others = float(scores[part].mean()), float(scores[~part].mean())
        if least > _LEAST_DISTINCT or others < _OTHERS:
            return none
        return part if self.selected(part).probability < _REPEATED else none


def examined(appearance: Appearance, inliers: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], float]:
    """Return the inliers (m,) that are due to repeated structure, if only a part is.

    Also return the probability that the others are not.
    """
    rows = np.flatnonzero(inliers)
    for number, clear in (*_EXAMINED, (len(rows), 0.0)):
        if number < len(rows) < 2 * number:
            continue
        some = rows[np.linspace(0, len(rows) - 1, min(len(rows), number)).astype(np.intp)]
        distinctness = appearance.selected(some).distinctness()
        if len(some) == len(rows) or distinctness.scores.mean() >= clear:
            break
    part = distinctness.repeated
    repeated = np.zeros(len(inliers), bool)
    repeated[some[part]] = True
    return repeated, distinctness.selected(~part).probability
