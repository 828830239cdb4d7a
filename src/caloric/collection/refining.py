"""Refine tracks: align the features of each track with its reference view.

Verified matches are joined into tracks. Each feature of a track is refined once, against the
reference view of the track, so that its position is the same in all pairs. Features that were added
by propagation from the reference are refined already. The tasks are pairs of a reference image and
another image, in shards by the reference.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.collection import extraction, image_cache, matching, observations, tracks
from caloric.collection.engines import Engine
from caloric.collection.image_cache import StoredFile
from caloric.collection.improvement import Moved, improved, improved_pair
from caloric.collection.pairing import Pair
from caloric.collection.sources import ImageFile
from caloric.collection.steps import (
    PairTask,
    Progress,
    no_progress,
    retry_errors,
    reused,
    run_pairs,
)
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError
from caloric.frames import sigmas
from caloric.runtime import threads
from caloric.runtime.words import counted
from caloric.types import FloatArray

COLUMNS = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("unread", "string"), ("error", "string"),
    ("features", "uint32s"), ("positions", "float32s"),
    ("geometries", "string"), ("made_from", "string"),
)  # fmt: skip
_VERSION = 3  # version of the rows
# Numbers of matches of a pair and of a store up to which refined positions are compared with the
# original ones.
_WEAK, _FEW = 100, 1000


def shards(store: Path) -> Shards:
    """Return the shards of refined positions of a store."""
    return Shards(store / "refined", COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Task(PairTask):
    """A shard to write: pairs of a reference and another image, with their matches (k, 2).

    ``shards_of`` has the path of the feature shard of each image; ``geometries`` is a hash of the
    geometries from which the tracks were joined.
    """

    directory: str
    joined: tuple[tuple[Pair, NDArray[np.uint32]], ...]
    shards_of: dict[str, str]
    geometries: str

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs in the order of their rows."""
        return [pair for pair, _ in self.joined]


@threads.single_threaded_blas
def make(task: Task) -> int:
    """Write one shard, on a worker; return the number of newly refined pairs."""
    stored = shards(Path(task.store))
    rows = reused(stored, task)
    keys = task.keyed
    new = [(pair, features) for pair, features in task.joined if pair not in rows]
    stored_rows = dict(_features(task, {name for pair, _ in new for name in pair}))

    def file(name: str) -> StoredFile:
        row = stored_rows[name]
        return ImageFile(name, row["content"]), row.get("white_level")

    def frames(name: str, features: NDArray[np.uint32]) -> FloatArray:
        return np.asarray(stored_rows[name]["frames"].reshape(-1, 2, 3)[features], np.float64)

    views = image_cache.of_directory(task.directory)
    for (a, b), features in new:
        row = {
            "name_a": a, "name_b": b, "count": 0, "unread": None, "error": None, "features": [],
            "positions": [],
            "geometries": task.geometries, "made_from": keys[a, b],
        }  # fmt: skip
        first, second = frames(a, features[:, 0]), frames(b, features[:, 1])
        name, loaded = a, []
        try:
            for name in (a, b):
                loaded.append(views[file(name)])
        except InputError as error:
            # The features of an unreadable image are not moved. A row without a key is not
            # reused, so that the next run retries the pair.
            rows[a, b] = row | {"unread": name, "error": str(error), "made_from": ""}
            continue
        result = image_cache.refine(loaded[0], loaded[1], first, second)
        chosen, xy = result.moved, result.xy
        if len(features) <= _WEAK:
            chosen = improved_pair(first[:, :, 2], second[:, :, 2], xy, chosen)
        rows[a, b] = row | {
            "count": int(chosen.sum()), "features": features[chosen, 1],
            "positions": xy[chosen].astype(np.float32).ravel(),
        }  # fmt: skip
    written = [rows[pair] | {"geometries": task.geometries} for pair in task.pairs]
    stored.write(Path(task.path), written)
    return len(new)


def _features(task: Task, names: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of images, with the frames of their new features."""
    store = Path(task.store)
    stored = extraction.shards(store)
    by_shard = sorted((task.shards_of[name], name) for name in names)
    for path, group in groupby(by_shard, key=lambda pair: pair[0]):
        wanted = {name for _, name in group}
        added = observations.added(store, Path(path))
        for row in stored.read(Path(path), ["name", "content", "white_level", "frames"], wanted):
            if row["name"] in added:
                row["frames"] = np.append(row["frames"], added[row["name"]].maps)
            yield row["name"], row


def _sigmas(store: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for row, added in observations.features(store, ["name", "frames"]):
        maps = row["frames"].reshape(-1, 2, 3).astype(np.float64)
        maps = maps if added is None else np.concatenate([maps, added.maps])
        yield row["name"], sigmas(maps).astype(np.float32)


def _without_origins(
    pairs: dict[Pair, tracks.Indices], origins: dict[Pair, NDArray[np.uint32]]
) -> dict[Pair, tracks.Indices]:
    """Return the pairs to refine without new features, which were refined with their origins."""
    result = {}
    for pair, features in pairs.items():
        known = {tuple(match) for match in origins[pair].tolist()} if pair in origins else set()
        keep = [tuple(match) not in known for match in features.tolist()]
        if any(keep):
            result[pair] = features[np.array(keep)]
    return result


@dataclass(frozen=True)
class RefinementResult:
    """The result of refinement.

    Attributes
    ----------
    tracks : int
        The number of tracks.
    features, moved : int
        The number of features to refine, and of those refined.
    skipped : dict
        Unreadable images with the reasons; their features are not moved.
    """

    tracks: int
    features: int
    moved: int
    skipped: dict[str, str]

    def __str__(self) -> str:
        """Return a summary in one line."""
        return (
            f"{counted(self.tracks, 'track')}; {self.moved:,} of "
            f"{counted(self.features, 'feature')} refined"
        )


def refine(
    directory: str, store: Path, engine: Engine, progress: Progress = no_progress
) -> RefinementResult:
    """Refine the features of all tracks of a verified store."""
    directory, store = matching.check_verified(directory, store)
    known, stored = extraction.stored_images(store), shards(store)
    all_tracks = observations.tracks(store)
    pairs = tracks.references(all_tracks, dict(_sigmas(store)))
    pairs = _without_origins(pairs, observations.origins(store))
    key, versions = observations.key(store), observations.versions(store)
    groups: dict[Path, list[Pair]] = {}
    for pair in sorted(pairs):
        groups.setdefault(known[pair[0]].path, []).append(pair)
    planned = {}
    for shard, group in sorted(groups.items()):
        joined = tuple((pair, pairs[pair].astype(np.uint32)) for pair in group)
        keys = tuple(
            fingerprint(
                _VERSION,
                known[a].key,
                known[b].key,
                features.tolist(),
                *(versions[name] for name in (a, b) if name in versions),
            )
            for (a, b), features in joined
        )
        path = stored.path(shard.name.split("-")[0], fingerprint(key, keys))
        names = {name for pair in group for name in pair}
        planned[path] = Task(
            store=str(store), path=str(path), keys=keys, directory=directory, joined=joined,
            shards_of={name: str(known[name].path) for name in sorted(names)}, geometries=key,
        )  # fmt: skip
    retry_errors(stored, planned)
    run_pairs(stored, planned, make, engine, "pairs refined", progress)
    rows = [row for path in planned for row in stored.read(path, ["count", "unread", "error"])]
    return RefinementResult(
        len(np.unique(all_tracks.track)), sum(len(v) for v in pairs.values()),
        sum(row["count"] for row in rows),
        {row["unread"]: row["error"] for row in rows if row["error"]},
    )  # fmt: skip


def positions(store: Path) -> dict[str, Moved]:
    """Return the refined features (k,) of each image with their positions (k, 2)."""
    stored = shards(store)
    parts: dict[str, list[Moved]] = {}
    paths = stored.all()
    key = observations.key(store) if paths else ""
    for path in paths:
        for row in stored.read(path):
            if row["geometries"] != key or "positions" not in row:
                raise InputError(f"{store}: the refined positions are outdated; refine again")
            xy = row["positions"].reshape(-1, 2).astype(np.float64)
            parts.setdefault(row["name_b"], []).append((row["features"], xy))
    return _significant(store, gathered(parts))


def _significant(store: Path, moved: dict[str, Moved]) -> dict[str, Moved]:
    """Return the refined positions; of few matches only if they agree significantly better."""
    if not moved:
        return moved
    pairs, total = [], 0
    for pair in observations.matches(store):
        pairs.append(pair)
        total += len(pair.matches)
        if total > _FEW:
            return moved
    xy = {}
    for row, added in observations.features(store, ["name", "frames"]):
        positions = row["frames"].reshape(-1, 2, 3)[:, :, 2].astype(np.float64)
        xy[row["name"]] = (
            positions if added is None else np.append(positions, added.maps[:, :, 2], axis=0)
        )
    return improved(xy, moved, pairs, tracks.join(observations.counts(store), pairs))


def gathered(parts: Mapping[str, list[Moved]]) -> dict[str, Moved]:
    """Return the moved features of each image, concatenated over all pairs."""
    return {
        name: (np.concatenate([rows for rows, _ in moved]), np.concatenate([xy for _, xy in moved]))
        for name, moved in parts.items()
        if moved
    }


def clear(store: Path) -> None:
    """Remove all refined positions, so that features have their detected positions."""
    shards(store).tidy([])
