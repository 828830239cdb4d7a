"""Features and matches of a store, with those that propagation added."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from caloric.collection import extraction, matching, propagating
from caloric.collection.proposals import MAX_RESIDUAL, MIN_INLIERS
from caloric.collection.store import fingerprint
from caloric.collection.tracks import PairMatches, Tracks, join
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.matching.models import residual
from caloric.matching.two_views import TwoViews
from caloric.types import FloatArray, GeometryModel

_LATER = 1e9  # distance of propagated matches: the others are joined first
_MAX_MEDIAN = 0.6  # pixels: of the residuals of an observation with the others of its track
_MIN_OBSERVATIONS = 4  # of a track with propagated observations


def key(store: Path) -> str:
    """Return a hash of the geometries and propagated observations, to detect outdated results."""
    propagated = [path.name for path in propagating.shards(store).all()]
    geometries = matching.geometries_key(store)
    return fingerprint(geometries, propagated) if propagated else geometries


def _rows(store: Path, columns: list[str], path: Path | None = None) -> Iterator[dict[str, Any]]:
    """Yield propagated rows of a store or of one shard; raise an error if they are outdated."""
    stored = propagating.shards(store)
    paths = stored.all() if path is None else [path]
    current = matching.geometries_key(store) if paths else ""
    for shard in paths:
        for row in stored.read(shard, ["geometries", *columns]):
            if row["geometries"] != current:
                raise InputError(f"{store}: the propagated observations are outdated; refine again")
            yield row


@dataclass(frozen=True, eq=False)
class Added:
    """New features of an image: frames (k, 2, 3) and stored descriptors (k, d)."""

    maps: FloatArray
    descriptors: NDArray[np.uint8]

    def after(self, features: Features) -> Features:
        """Return features with the new ones at the end, which have a score of 0."""
        frames = Frames(
            np.concatenate([features.frames.maps, self.maps]),
            np.concatenate([features.scores, np.zeros(len(self.maps), np.float32)]),
        )
        descriptors = np.concatenate([features.descriptors, self.descriptors])
        return replace(features, frames=frames, descriptors=descriptors)


def added(store: Path, shard: Path) -> dict[str, Added]:
    """Return the new features of the images of a feature shard."""
    bucket = matching.bucket(shard)
    paths = [p for p in propagating.shards(store).all() if matching.bucket(p) == bucket]
    parts: dict[str, list[dict[str, Any]]] = {}
    for path in paths:
        for row in _rows(store, ["name_b", "added", "maps", "descriptors"], path):
            parts.setdefault(row["name_b"], []).append(row)
    result = {}
    for name, rows in parts.items():
        order = np.argsort(np.concatenate([row["added"] for row in rows]))
        maps, descriptors = (
            np.concatenate([row[column] for row in rows]) for column in ("maps", "descriptors")
        )
        if len(order):
            values = descriptors.reshape(len(order), -1)[order]
            result[name] = Added(maps.reshape(-1, 2, 3).astype(np.float64)[order], values)
    return result


def features(store: Path, columns: list[str] | None = None) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield the row of each image of a store, and its new features or None."""
    stored = extraction.shards(store)
    for path in stored.all():
        new = added(store, path)
        for row in stored.read(path, columns):
            yield row, new.get(row["name"])


def versions(store: Path) -> dict[str, tuple[int, str]]:
    """Return the number of new features of each image that has any, and a hash of them."""
    counts: dict[str, int] = {}
    digests: dict[str, Any] = {}
    for row in _rows(store, ["name_b", "count", "added", "maps"]):
        if row["count"]:
            name = row["name_b"]
            counts[name] = counts.get(name, 0) + row["count"]
            digest = digests.setdefault(name, hashlib.sha256())
            digest.update(row["added"].tobytes())
            digest.update(row["maps"].tobytes())
    return {name: (counts[name], digests[name].hexdigest()) for name in counts}


def counts(store: Path) -> dict[str, int]:
    """Return the number of features of each image, with the new ones."""
    new = versions(store)
    return {
        name: image.count + new.get(name, (0, ""))[0]
        for name, image in extraction.stored_images(store).items()
    }


def origins(store: Path) -> dict[tuple[str, str], NDArray[np.uint32]]:
    """Return matches (k, 2) of features with the new features they became, by pair of images."""
    return {
        (row["name_a"], row["name_b"]): np.stack([row["origins"], row["added"]], 1)
        for row in _rows(store, ["name_a", "name_b", "origins", "added"])
    }


def tracks(store: Path) -> Tracks:
    """Return the tracks of the inliers of verified pairs and of propagated observations."""
    return join(counts(store), matches(store))


def matches(store: Path) -> Iterator[PairMatches]:
    """Yield the inliers of verified pairs, and then the propagated observations."""
    for pair in matching.two_views(store):
        rows = pair.inliers
        yield PairMatches(pair.name_a, pair.name_b, pair.matches[rows], pair.distances[rows])
    for row in _rows(store, ["name_a", "name_b", "features", "nodes"]):
        indices = np.stack([row["features"], row["nodes"]], 1)
        distances = np.full(len(indices), _LATER, np.float32)
        yield PairMatches(row["name_a"], row["name_b"], indices, distances)


def two_views(
    store: Path, moved: dict[str, tuple[NDArray[np.integer], FloatArray]]
) -> Iterator[TwoViews]:
    """Yield the matches of all pairs of a store, with the geometries of verified pairs.

    If tracks were propagated, the inliers of a verified pair are the observations of its common
    tracks that are consistent. Pairs with few inliers get no new ones: COLMAP must not take them
    for reliable pairs to start from. ``moved`` are refined features (k,) of each image and their
    positions (k, 2).
    """
    if not propagating.shards(store).all():
        yield from matching.two_views(store)
        return
    all_tracks = tracks(store)
    xy = _positions(store, all_tracks, moved)
    common = _common(store, all_tracks, xy)
    keep = consistent(all_tracks, list(common.values()), _matched(store, all_tracks))
    for pair in matching.two_views(store):
        if pair.matrix is None:
            yield pair
            continue
        edges = common[pair.name_a, pair.name_b]
        rows = edges.rows[(edges.residuals <= MAX_RESIDUAL) & keep[edges.rows].all(1)]
        inliers = all_tracks.feature[rows].astype(np.uint32)
        if len(pair.inliers) < MIN_INLIERS:
            inliers = inliers[np.isin(_codes(inliers), _codes(pair.inlier_matches))]
        yield _with_inliers(pair, inliers)


def _positions(
    store: Path,
    all_tracks: Tracks,
    moved: dict[str, tuple[NDArray[np.integer], FloatArray]],
) -> NDArray[np.float32]:
    """Return the refined positions (n, 2) of all observations."""
    result = np.zeros((len(all_tracks.track), 2), np.float32)
    rows_of = all_tracks.rows_by_image()
    for row, new in features(store, ["name", "frames"]):
        name = row["name"]
        if name in rows_of:
            xy = row["frames"].reshape(-1, 2, 3)[:, :, 2].copy()
            xy = xy if new is None else np.concatenate([xy, new.maps[:, :, 2]])
            if name in moved:
                xy[moved[name][0]] = moved[name][1]
            result[rows_of[name]] = xy[all_tracks.feature[rows_of[name]]]
    return result


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of observations (k, 2) of the same tracks in two images, and their residuals (k,)."""

    rows: NDArray[np.int64]
    residuals: NDArray[np.float32]


def _common(
    store: Path, all_tracks: Tracks, xy: NDArray[np.float32]
) -> dict[tuple[str, str], Edges]:
    """Return the observations of the common tracks of each verified pair."""
    rows_of, result = all_tracks.rows_by_image(), {}
    for pair in matching.two_views(store):
        if pair.matrix is None:
            continue
        both = [rows_of.get(name, slice(0, 0)) for name in (pair.name_a, pair.name_b)]
        track_a, track_b = (all_tracks.track[rows] for rows in both)
        _, a, b = np.intersect1d(track_a, track_b, True, return_indices=True)
        rows = np.stack([both[0].start + a, both[1].start + b], 1)
        p, q = xy[rows[:, 0]].astype(np.float64), xy[rows[:, 1]].astype(np.float64)
        errors = residual(p, q, cast(GeometryModel, pair.model), pair.matrix)
        result[pair.name_a, pair.name_b] = Edges(rows, errors.astype(np.float32))
    return result


def _matched(store: Path, all_tracks: Tracks) -> NDArray[np.bool_]:
    """Return which observations (n,) are inliers that were matched by their descriptors."""
    result, rows_of = np.zeros(len(all_tracks.track), bool), all_tracks.rows_by_image()
    for pair in matching.two_views(store):
        for i, name in enumerate((pair.name_a, pair.name_b)):
            rows = rows_of.get(name, slice(0, 0))
            result[rows] |= np.isin(all_tracks.feature[rows], pair.inlier_matches[:, i])
    return result


def consistent(
    all_tracks: Tracks, edges: list[Edges], matched: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which observations (n,) are consistent with their tracks.

    The median of the residuals of an observation is small. Observations that were not ``matched``
    (n,) by descriptors are kept in tracks of enough observations only.
    """
    number = len(all_tracks.track)
    rows = np.concatenate([np.zeros((0, 2), np.int64), *(e.rows for e in edges)]).T.ravel()
    residuals = np.concatenate([np.zeros(0, np.float32), *(e.residuals for e in edges)])
    residuals = np.concatenate([residuals, residuals])
    order = np.lexsort((residuals, rows))
    count = np.bincount(rows, minlength=number)
    middle = np.cumsum(count) - count + np.maximum(count - 1, 0) // 2
    keep = count > 0
    keep[keep] = residuals[order[middle[keep]]] <= _MAX_MEDIAN
    length = np.bincount(all_tracks.track[keep], minlength=all_tracks.track.max(initial=-1) + 1)
    needed = min(_MIN_OBSERVATIONS, len(np.unique(all_tracks.image)))
    return np.asarray(keep & (matched | (length >= needed)[all_tracks.track]))


def _with_inliers(pair: TwoViews, inliers: NDArray[np.uint32]) -> TwoViews:
    """Return a pair with other inliers (k, 2), which are added to its matches if they are new."""
    codes = _codes(pair.matches)
    order = np.argsort(codes)
    at = np.minimum(np.searchsorted(codes[order], _codes(inliers)), len(codes) - 1)
    is_known = codes[order[at]] == _codes(inliers)
    new = inliers[~is_known]
    rows = np.where(is_known, order[at], len(codes) + np.cumsum(~is_known) - 1)
    # The distances of their descriptors are not known: they are not better than the others.
    distances = np.full(len(new), pair.distances.max(initial=0), np.float32)
    return replace(
        pair, matches=np.concatenate([pair.matches, new]),
        distances=np.concatenate([pair.distances, distances]),
        inliers=np.sort(rows).astype(np.uint32),
    )  # fmt: skip


def _codes(matches: NDArray[np.uint32]) -> NDArray[np.uint64]:
    return (matches[:, 0].astype(np.uint64) << np.uint64(32)) | matches[:, 1].astype(np.uint64)
