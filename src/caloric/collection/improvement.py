"""Keep refined positions only where the matches agree better than before.

The refined keypoints of a false match, or of one between very different views, may be farther from
each other's epipolar lines than before. Matches are scored by the epipolar geometry of their pair,
which is fitted to the original and to the refined positions. Tracks whose score decreases keep
their original positions. So do all images that are connected by matches unless significantly more
of their scores increase than decrease: a model from few matches may depend on any of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.collection.tracks import PairMatches, Tracks, join
from caloric.matching import estimation
from caloric.matching.estimation import Correspondences
from caloric.matching.likelihood import QUANTILES
from caloric.matching.models import Box
from caloric.runtime import threads
from caloric.types import FloatArray

Moved = tuple[NDArray[np.integer], FloatArray]  # indices (k,) of features, and positions (k, 2)

_THRESHOLD = 2.0  # pixels: the score of a match decreases from 1 to 0 at this residual
_MAX_SIGMA = _THRESHOLD / QUANTILES[1]  # of which 99 % of normal residuals are within the threshold
_MIN_MATCHES = 12  # fewer fit any geometry
_TOLERANCE = 0.5  # decrease of the score of a track that is not evidence against its refinement
_SIGNIFICANCE = 3.0  # standard errors by which increases must outnumber decreases


@dataclass(frozen=True, eq=False)
class _Pair:
    """Matches and epipolar geometries, from the original and from the refined positions."""

    matches: PairMatches
    matrices: list[FloatArray]

    def scores(self, xy: dict[str, FloatArray]) -> FloatArray:
        """Return the scores (m,) of the matches, in [0, 1], with the geometry fitted to them.

        The fit of a plane has many local minima, so it starts from all geometries.
        """
        points = _points(self.matches, xy)
        fits = [estimation.estimate(points, 0, _MAX_SIGMA, matrix) for matrix in self.matrices]
        residuals = [points.residuals(fit.matrix) for fit in fits if fit is not None]
        scores = [np.clip(1 - (values / _THRESHOLD) ** 2, 0, None) for values in residuals]
        return np.asarray(max(scores, key=np.sum, default=np.zeros(len(points))))


def improved(
    xy: dict[str, FloatArray],
    moved: dict[str, Moved],
    pairs: Sequence[PairMatches],
    joined: Tracks,
    significance: float = _SIGNIFICANCE,
) -> dict[str, Moved]:
    """Return the refined positions to keep.

    ``xy`` has the original positions (n, 2) of each image, ``joined`` the tracks of the matches.
    Of the scores of connected images, significantly more must increase than decrease: by
    ``significance`` standard errors.
    """
    refined = _changed(xy, moved)

    def fitted(pair: PairMatches) -> _Pair:
        fits = (
            estimation.estimate(_points(pair, positions), 0, _MAX_SIGMA)
            for positions in (xy, refined)
        )
        return _Pair(pair, [fit.matrix for fit in fits if fit is not None])

    enough = [pair for pair in pairs if len(pair.matches) >= _MIN_MATCHES]
    fits = [pair for pair in threads.each(fitted, enough) if pair.matrices]
    before, after = _scores(fits, xy), _scores(fits, refined)
    track_of = _tracks_of(xy, joined)
    gains = np.zeros(1 + joined.track.max(initial=-1))
    for pair, old, new in zip(fits, before, after, strict=True):
        track = track_of[pair.matches.name_a][pair.matches.matches[:, 0]]
        np.add.at(gains, track[track >= 0], (new - old)[track >= 0])
    worse = gains < -_TOLERANCE
    kept = {}
    for name, (rows, positions) in moved.items():
        keep = ~worse[track_of[name][rows]]
        kept[name] = rows[keep], positions[keep]
    if worse.any():
        after = _scores(fits, _changed(xy, kept))
    changes = [new - old for old, new in zip(before, after, strict=True)]
    rejected = _unimproved(sorted(xy), fits, changes, significance)
    return {name: part for name, part in kept.items() if name not in rejected and len(part[0])}


def improved_pair(
    p: FloatArray, q: FloatArray, refined: FloatArray, moved: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which of the moved (m,) positions of q (m, 2) to replace by the refined ones.

    p (m, 2) are the matched positions in the other image, which are not moved.
    """
    index = np.arange(len(p))
    pair = PairMatches(
        "p", "q", np.stack([index, index], 1).astype(np.uint32), np.zeros(len(p), np.float32)
    )
    rows = np.flatnonzero(moved)
    joined = join({"p": len(p), "q": len(q)}, [pair])
    kept = improved({"p": p, "q": q}, {"q": (rows, refined[rows])}, [pair], joined, 0.0)
    return np.isin(index, kept["q"][0]) if kept else np.zeros(len(p), bool)


def _scores(pairs: list[_Pair], xy: dict[str, FloatArray]) -> list[FloatArray]:
    return threads.each(lambda pair: pair.scores(xy), pairs)


def _points(pair: PairMatches, xy: dict[str, FloatArray]) -> Correspondences:
    p, q = xy[pair.name_a][pair.matches[:, 0]], xy[pair.name_b][pair.matches[:, 1]]
    return Correspondences(p, q, "fundamental", Box.of(None, q).size)


def _changed(xy: dict[str, FloatArray], moved: dict[str, Moved]) -> dict[str, FloatArray]:
    """Return all positions, with those of the moved features replaced."""
    result = dict(xy)
    for name, (rows, positions) in moved.items():
        result[name] = xy[name].copy()
        result[name][rows] = positions
    return result


def _tracks_of(xy: dict[str, FloatArray], joined: Tracks) -> dict[str, NDArray[np.int64]]:
    """Return the track of each feature, -1 for features that are in none."""
    result = {name: np.full(len(positions), -1) for name, positions in xy.items()}
    for name, part in joined.rows_by_image().items():
        result[name][joined.feature[part]] = joined.track[part]
    return result


def _unimproved(
    names: list[str], pairs: list[_Pair], changes: list[FloatArray], significance: float
) -> set[str]:
    """Return the images that are connected by pairs whose scores do not increase enough."""
    from scipy.sparse import coo_array  # slow to import
    from scipy.sparse.csgraph import connected_components

    number = {name: i for i, name in enumerate(names)}
    ends = [(number[p.matches.name_a], number[p.matches.name_b]) for p in pairs]
    a, b = np.array(ends, np.int64).reshape(-1, 2).T
    edges = coo_array((np.ones(len(a)), (a, b)), shape=(len(names), len(names)))
    _, label = connected_components(edges, directed=False)
    sums = np.zeros((3, len(names)))  # by label: changes, and the numbers of both signs
    for first, change in zip(a.tolist(), changes, strict=True):
        sums[:, label[first]] += change.sum(), (change > 0).sum(), (change < 0).sum()
    total, more, less = sums
    # If an increase is as likely as a decrease, this is the standard error of their difference.
    error = np.sqrt(more + less)
    rejected = (total < 0) | ((error > 0) & (more - less <= significance * error))
    return {name for name, i in zip(names, label.tolist(), strict=True) if rejected[i]}
