"""New observations in one image: features of other images, predicted by verified matches.

Each point that other images show, a track or a feature without matches, is predicted from the
inliers around it, refined and checked as in :mod:`caloric.matching.propagation`. A point is
proposed by the images with the most inliers first, and by at most two images. If the image has a
similar feature at the refined position, the point is joined with it. Otherwise the position becomes
a new feature, which is shared by all points that were proposed there.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from caloric.frames import sigmas
from caloric.matching import propagation
from caloric.matching.models import homogeneous, residual
from caloric.matching.points import PointIndex
from caloric.matching.refinement import Refined, unrefined
from caloric.runtime.indexing import first_of_cells
from caloric.types import FloatArray, GeometryModel

_ATTEMPTS = 2  # images that propose a track
_MAX_PER_PAIR = 4000  # frames that are refined
MIN_INLIERS = 60  # of pairs along which tracks are propagated
MAX_RESIDUAL = 1.5  # pixels: of the geometry of the pair
_RADIUS = 1.0  # pixels: closer observations are of the same point
_STEPS = (-1.5, 1.5)  # σ of the frame: other starts along the epipolar line
# A sample of the frames is refined first, and of the others those with a success or an inlier as
# near as the nearest of the sample. Failed ones are tried again if one of those around them
# succeeded. This takes two thirds of the time of refining everything, for 3 % fewer observations.
_SAMPLE, _SAMPLES_AROUND, _AROUND = 8, 4, 16
# The cost before the first step at which a frame is given up; unrelated patches have 2. In lund it
# saves an eighth of the time, and takes 0.2 % of the observations.
MAX_START_COST = 1.6
_NEAR = 4  # features that are compared at one position

Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Observed:
    """An image: frames (n, 2, 3), descriptors (n, d), size (h, w), and its features in tracks.

    ``features`` (k,) are the features in the tracks ``tracks`` (k,). Descriptors have signs.
    """

    frames: FloatArray
    descriptors: NDArray[np.float32]
    size: tuple[int, int]
    features: Indices
    tracks: Indices

    @property
    def track_of(self) -> Indices:
        """Return the track of each feature (n,), -1 for features that are in none."""
        result = np.full(len(self.frames), -1)
        result[self.features] = self.tracks
        return result


@dataclass(frozen=True, eq=False)
class Source:
    """Another image with a verified geometry: inliers (m, 2) and the matrix (3, 3) to the target.

    ``refine`` moves frames (k, 2, 3) of the target to agree with frames (k, 2, 3) of the image.
    """

    number: int
    image: Observed
    inliers: Indices
    matrix: FloatArray
    model: GeometryModel
    refine: Callable[[FloatArray, FloatArray], Refined]


@dataclass(frozen=True, eq=False)
class Proposals:
    """Observations (k,) in one image: features of sources, and their frames in the image.

    ``source`` is the number of the source, ``feature`` the index of its feature, which is in a
    track if ``in_track`` is true. ``maps`` (k, 2, 3) are the frames, with ``variances`` of their
    positions, and ``descriptors`` (k, d).
    """

    source: Indices
    feature: Indices
    in_track: NDArray[np.bool_]
    maps: FloatArray
    variances: FloatArray
    descriptors: NDArray[np.float32]

    def __len__(self) -> int:
        """Return the number of observations."""
        return len(self.source)

    def __getitem__(self, rows: NDArray[np.generic]) -> "Proposals":
        """Return the observations selected by a mask or by indices."""
        return Proposals(*(getattr(self, field.name)[rows] for field in fields(self)))

    @classmethod
    def joined(cls, parts: "list[Proposals]") -> "Proposals":
        """Return the observations of several sources."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


@dataclass(frozen=True, eq=False)
class Links:
    """Proposals and their features in the image.

    ``nodes`` (k,) are indices of the features of the image, followed by the new ones. ``new`` are
    the rows of the proposals that became the new features.
    """

    proposals: Proposals
    nodes: Indices
    new: Indices


def cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the cosines (...) between descriptors (..., d)."""
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    return np.asarray((a * b).sum(-1) / np.maximum(norms, 1e-6))


def propose(
    target: Observed,
    sources: Iterable[Source],
    describe: Callable[[FloatArray], NDArray[np.float32]],
) -> Proposals:
    """Return the observations of sources in the target; ``describe`` computes its descriptors."""
    # Positions of tracks in the target, with which other tracks are predicted.
    known = dict(zip(target.tracks.tolist(), target.frames[target.features, :, 2], strict=True))
    tries = dict.fromkeys(known, _ATTEMPTS)
    none = np.zeros(0, np.int64)
    parts = [
        Proposals(
            none, none, np.zeros(0, bool), np.zeros((0, 2, 3)), np.zeros(0), target.descriptors[:0]
        )
    ]
    for source in sources:
        image = source.image
        track_of, rows = image.track_of, _candidates(image, tries)
        p, q = _inliers(target, source, known)
        predicted = propagation.predict(
            image.frames[rows], PointIndex.of(p), q, (image.size, target.size)
        )
        rows, maps = rows[predicted.rows[:_MAX_PER_PAIR]], predicted.maps[:_MAX_PER_PAIR]
        for track in track_of[rows].tolist():
            tries[track] = tries.get(track, 0) + 1
        refined = _refined(source, image.frames[rows], maps)
        keep = refined.moved & propagation.precise(refined.total_covariances)
        keep &= _inside(refined.xy, target.size)
        errors = residual(image.frames[rows, :, 2], refined.xy, source.model, source.matrix)
        keep &= errors <= MAX_RESIDUAL
        rows, maps = rows[keep], refined.maps[keep]
        variances = np.trace(refined.covariances[keep], axis1=1, axis2=2)
        number = np.full(len(rows), source.number)
        described = image.descriptors[rows]
        parts.append(Proposals(number, rows, track_of[rows] >= 0, maps, variances, described))
        new = dict(zip(track_of[rows].tolist(), maps[:, :, 2], strict=True))
        new.pop(-1, None)
        known |= new
        tries |= dict.fromkeys(new, _ATTEMPTS)
    joined = Proposals.joined(parts)
    # Descriptors are computed together: they need the scale space of the target.
    descriptors = describe(joined.maps)
    similar = cosines(descriptors, joined.descriptors) > propagation.MIN_COSINE
    return replace(joined, descriptors=descriptors)[similar]


def _refined(source: Source, frames: FloatArray, maps: FloatArray) -> Refined:
    """Return the refined frames.

    A sample of them shows which parts of the source are visible in the target; frames elsewhere
    are not refined. Those that fail, but not all around them, are tried again along their epipolar
    lines.
    """
    starts, along = (
        (maps, None) if source.model != "fundamental" else _on_lines(source, frames, maps)
    )
    xy, result = frames[:, :, 2], unrefined(maps)

    def attempt(rows: Indices, starts: FloatArray) -> None:
        again = source.refine(frames[rows], starts)
        for array, values in zip(vars(result).values(), vars(again).values(), strict=True):
            array[rows] = values

    sample = np.arange(0, len(xy), _SAMPLE)
    attempt(sample, starts[sample])
    good = np.concatenate([xy[result.moved], source.image.frames[source.inliers[:, 0], :, 2]])
    visible = _nearer(good, xy[sample], xy, _SAMPLES_AROUND)
    visible[sample] = False
    attempt(np.flatnonzero(visible), starts[visible])
    if along is None:
        return result
    visible = _nearer(xy[result.moved], xy, xy, 1 + _AROUND)
    for step in _STEPS:
        rows = np.flatnonzero(visible & ~result.moved)
        moved = starts[rows].copy()
        moved[:, :, 2] += step * along[rows]
        attempt(rows, moved)
    return result


def _on_lines(
    source: Source, frames: FloatArray, maps: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return frames moved to their epipolar lines, and vectors (n, 2) of length σ along these."""
    lines = homogeneous(frames[:, :, 2]) @ source.matrix.T
    normals = lines[:, :2] / np.maximum(np.linalg.norm(lines[:, :2], axis=1), 1e-12)[:, None]
    distances = (lines * homogeneous(maps[:, :, 2])).sum(1) / np.linalg.norm(lines[:, :2], axis=1)
    maps = maps.copy()
    maps[:, :, 2] -= distances[:, None] * normals
    return maps, normals[:, ::-1] * [-1, 1] * sigmas(maps)[:, None]


def _nearer(good: FloatArray, others: FloatArray, xy: FloatArray, number: int) -> NDArray[np.bool_]:
    """Return which positions (n, 2) have a good one as near as the nearest ``number`` others."""
    if len(good) == 0 or len(xy) == 0:
        return np.zeros(len(xy), bool)
    distances, _ = PointIndex.of(others).nearest(xy, min(number, len(others)))
    return np.asarray(PointIndex.of(good).nearest(xy, 1)[0][:, 0] <= distances[:, -1])


def _inliers(
    target: Observed, source: Source, known: dict[int, FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return positions (m, 2) in the source and the target: inliers and tracks of both."""
    image = source.image
    rows = [i for i, track in enumerate(image.tracks.tolist()) if track in known]
    p = image.frames[image.features[rows], :, 2]
    q = np.array([known[track] for track in image.tracks[rows].tolist()]).reshape(-1, 2)
    keep = residual(p, q, source.model, source.matrix) <= MAX_RESIDUAL
    # Inliers come first: of several at one position one is used.
    first, second = source.inliers.T
    p = np.concatenate([image.frames[first, :, 2], p[keep]])
    q = np.concatenate([target.frames[second, :, 2], q[keep]])
    once = first_of_cells(np.floor(p / _RADIUS).astype(np.int64))
    return p[once], q[once]


def _candidates(image: Observed, tries: dict[int, int]) -> Indices:
    """Return the features to propose: those in tracks, then those in none at new positions."""
    open_tracks = [tries.get(track, 0) < _ATTEMPTS for track in image.tracks.tolist()]
    xy = image.frames[:, :, 2]
    unmatched = np.flatnonzero(image.track_of < 0)
    if len(image.features):
        unmatched = unmatched[propagation.free(xy[unmatched], xy[image.features])]
    return np.concatenate([image.features[np.array(open_tracks, bool)], unmatched])


def _inside(xy: FloatArray, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Return which positions (k, 2) are in an image of size (h, w)."""
    return np.asarray(((xy >= 0) & (xy <= np.array(size[::-1]) - 1)).all(1))


def link(target: Observed, proposals: Proposals) -> Links:
    """Return which features of the target the proposals are, and the new features."""
    from scipy.spatial import cKDTree  # slow to import

    if len(proposals) == 0:
        return Links(proposals, np.zeros(0, np.int64), np.zeros(0, np.int64))
    nodes = np.full(len(proposals), -1)
    duplicate = np.zeros(len(proposals), bool)
    xy, is_tracked = proposals.maps[:, :, 2], target.track_of >= 0
    if len(target.frames):
        tree = cKDTree(target.frames[:, :, 2])
        distance, near = tree.query(xy, list(range(1, _NEAR + 1)), distance_upper_bound=_RADIUS)
        is_near = np.isfinite(distance)
        near = np.where(is_near, near, 0)
        similarity = np.where(
            is_near, cosines(target.descriptors[near], proposals.descriptors[:, None]), -1.0
        )
        best = similarity.argmax(1)
        rows = np.arange(len(nodes))
        similar = similarity[rows, best] > propagation.MIN_COSINE
        nodes = np.where(similar, near[rows, best], -1)
        duplicate = ~similar & (is_near & is_tracked[near]).any(1)
    # Tracks come before features without matches, precise positions before others.
    free = np.flatnonzero((nodes < 0) & ~duplicate)
    order = free[np.lexsort((free, proposals.variances[free], ~proposals.in_track[free]))]
    assigned = _clusters(xy[order])
    new = order[assigned == np.arange(len(order))]
    number = np.full(len(nodes), -1)
    number[new] = len(target.frames) + np.arange(len(new))
    nodes[order] = number[order[assigned]]
    keep = nodes >= 0
    return Links(proposals[keep], nodes[keep], (np.cumsum(keep) - 1)[new])


def _clusters(xy: FloatArray) -> Indices:
    """Return for each position (k, 2) the first one within the radius that starts a cluster."""
    from scipy.spatial import cKDTree  # slow to import

    cluster = np.full(len(xy), -1)
    if len(xy) == 0:
        return cluster
    for i, near in enumerate(cKDTree(xy).query_ball_point(xy, _RADIUS)):
        if cluster[i] < 0:
            free = [j for j in near if cluster[j] < 0]
            cluster[free] = i
    return cluster
