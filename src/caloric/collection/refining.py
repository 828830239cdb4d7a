"""Refinement of tracks: every feature of a point is moved to agree with one of its views.

Verified matches are joined into tracks; each track has a reference view, and its other features are
refined against that once, so that a feature has one place whichever pair it is seen in. The tasks
are pairs of a reference image and another, in shards by the reference.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.collection import extraction, matching, sources, tracks
from caloric.collection.engines import Engine
from caloric.collection.pairing import Pair
from caloric.collection.sources import Photograph
from caloric.collection.steps import PairTask, Progress, no_progress, reused, run_pairs
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError
from caloric.frames import Frames, sigmas
from caloric.image import reading
from caloric.image.pixels import to_gray
from caloric.matching import refinement
from caloric.runtime import threads
from caloric.types import FloatArray

COLUMNS = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("unread", "string"), ("error", "string"),
    ("features", "uint32s"), ("places", "float32s"),
    ("geometries", "string"), ("made_from", "string"),
)  # fmt: skip
_VERSION = 1  # of what a row means
_MEMORY = 256e6  # bytes of images that a worker keeps


def shards(store: Path) -> Shards:
    """Return the shards of refined places."""
    return Shards(store / "refined", COLUMNS)


@dataclass(frozen=True, kw_only=True)
class Task(PairTask):
    """One shard: pairs of a reference and another image, each with features (k, 2) that agree.

    ``shards_of`` are the shards of features by image; ``geometries`` is a hash of what the tracks
    were joined from.
    """

    directory: str
    joined: tuple[tuple[Pair, NDArray[np.uint32]], ...]
    shards_of: dict[str, str]
    geometries: str

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs in the order of their rows."""
        return [pair for pair, _ in self.joined]


@dataclass(frozen=True, eq=False)
class _View:
    """An upright image, and what turns its coordinates into those of the file."""

    gray: NDArray[np.float32]
    turn: FloatArray

    def upright(self, maps: FloatArray) -> FloatArray:
        """Return frames (k, 2, 3) of the file in the coordinates of the upright image."""
        frames = Frames(np.asarray(maps, np.float64), np.zeros(len(maps), np.float32))
        return frames.moved(np.asarray(cv2.invertAffineTransform(self.turn))).maps

    def stored(self, xy: FloatArray) -> FloatArray:
        """Return places (k, 2) of the upright image in the coordinates of the file."""
        return np.asarray(xy @ self.turn[:, :2].T + self.turn[:, 2])


class Views:
    """Images by name, as ``read`` decodes them with their orientation; the last are in memory."""

    def __init__(self, read: Callable[[str], tuple[NDArray[np.generic], int]]) -> None:
        """Keep how to read an image."""
        self.read = read
        self.kept: OrderedDict[str, _View] = OrderedDict()

    def __getitem__(self, name: str) -> _View:
        """Return an image; raise an error if it cannot be read."""
        if name in self.kept:
            self.kept.move_to_end(name)
            return self.kept[name]
        pixels, orientation = self.read(name)
        gray = to_gray(pixels)
        h, w = gray.shape
        view = _View(gray, reading.to_stored((h, w), orientation))
        self.kept[name] = view
        while len(self.kept) > 2 and sum(v.gray.nbytes for v in self.kept.values()) > _MEMORY:
            self.kept.popitem(last=False)
        return view

    def refined(
        self, a: str, b: str, maps_a: FloatArray, maps_b: FloatArray
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which frames (k, 2, 3) of b agree with those of a after a move, and where (k, 2).

        All coordinates are those of the files.
        """
        first, second = self[a], self[b]
        found = refinement.refine(
            first.gray, second.gray, first.upright(maps_a), second.upright(maps_b)
        )
        return found.moved, second.stored(found.xy)


@threads.single_threaded_blas
def make(task: Task) -> int:
    """Write one shard, on a worker; return how many pairs were newly refined."""
    stored = shards(Path(task.store))
    rows = reused(stored, task)
    keys = task.keyed
    new = [(pair, features) for pair, features in task.joined if pair not in rows]
    stored_rows = dict(_features(task, {name for pair, _ in new for name in pair}))

    def read(name: str) -> tuple[NDArray[np.generic], int]:
        return sources.pixels(task.directory, Photograph(name, stored_rows[name]["content"]))

    def frames(name: str, features: NDArray[np.uint32]) -> FloatArray:
        return np.asarray(stored_rows[name]["frames"].reshape(-1, 2, 3)[features], np.float64)

    views = Views(read)
    for (a, b), features in new:
        row = {
            "name_a": a, "name_b": b, "count": 0, "unread": None, "error": None, "features": [],
            "places": [],
            "geometries": task.geometries, "made_from": keys[a, b],
        }  # fmt: skip
        try:
            chosen, places = views.refined(
                a, b, frames(a, features[:, 0]), frames(b, features[:, 1])
            )
        except InputError as error:
            # The places stay as they were; one bad image does not end the run, and without a key
            # the row is made again next time.
            bad = a if a not in views.kept else b
            rows[a, b] = row | {"unread": bad, "error": str(error), "made_from": ""}
            continue
        rows[a, b] = row | {
            "count": int(chosen.sum()), "features": features[chosen, 1],
            "places": places[chosen].astype(np.float32).ravel(),
        }  # fmt: skip
    made = [rows[pair] | {"geometries": task.geometries} for pair in task.pairs]
    stored.write(Path(task.path), made)
    return len(new)


def _features(task: Task, names: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    stored = extraction.shards(Path(task.store))
    by_shard = sorted((task.shards_of[name], name) for name in names)
    for path, group in groupby(by_shard, key=lambda pair: pair[0]):
        wanted = {name for _, name in group}
        for row in stored.read(Path(path), ["name", "content", "frames"], wanted):
            yield row["name"], row


def _sigmas(store: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    stored = extraction.shards(store)
    for path in stored.all():
        for row in stored.read(path, ["name", "frames"]):
            maps = row["frames"].reshape(-1, 2, 3).astype(np.float64)
            yield row["name"], sigmas(maps).astype(np.float32)


def geometries_key(store: Path) -> str:
    """Return a hash of the geometries of a store, by which refined places are known to be newer."""
    return fingerprint([path.name for path in matching.geometries(store).all()])


def _verified(store: Path) -> Iterator[tracks.Joined]:
    """Yield the matches of all pairs that agree with a geometry."""
    for pair in matching.two_views(store):
        rows = pair.inliers
        yield tracks.Joined(pair.name_a, pair.name_b, pair.matches[rows], pair.distances[rows])


@dataclass(frozen=True)
class RefinementResult:
    """The number of tracks, of features to refine, and of refined features.

    ``skipped`` has the images that could not be read, with the reason; their features keep their
    positions.
    """

    tracks: int
    features: int
    moved: int
    skipped: dict[str, str]

    def __str__(self) -> str:
        """Return a summary in one line."""
        return f"{self.tracks:,} tracks; {self.moved:,} of {self.features:,} features refined"


def refine(
    directory: str, store: Path, engine: Engine, progress: Progress = no_progress
) -> RefinementResult:
    """Refine the features of all tracks of a verified store."""
    directory, store = sources.absolute(directory), store.absolute()
    if not sources.is_remote(directory) and not Path(directory).is_dir():
        raise InputError(f"{directory}: no such directory")
    if not matching.geometries(store).all():
        raise InputError(f"{store}: no geometries in it; verify first")
    known, stored = extraction.listed(store), shards(store)
    found = tracks.join({name: image.count for name, image in known.items()}, _verified(store))
    pairs = tracks.references(found, dict(_sigmas(store)))
    key = geometries_key(store)
    groups: dict[Path, list[Pair]] = {}
    for pair in sorted(pairs):
        groups.setdefault(known[pair[0]].path, []).append(pair)
    planned = {}
    for shard, group in sorted(groups.items()):
        joined = tuple((pair, pairs[pair].astype(np.uint32)) for pair in group)
        keys = tuple(
            fingerprint(_VERSION, known[a].key, known[b].key, features.tolist())
            for (a, b), features in joined
        )
        path = stored.path(shard.name.split("-")[0], fingerprint(key, keys))
        names = {name for pair in group for name in pair}
        planned[path] = Task(
            store=str(store), path=str(path), keys=keys, directory=directory, joined=joined,
            shards_of={name: str(known[name].path) for name in sorted(names)}, geometries=key,
        )  # fmt: skip
    for path in planned:
        # Shards in which an image could not be read are made again.
        if stored.is_complete(path) and any(r["error"] for r in stored.read(path, ["error"])):
            path.rename(path.with_name(f"again.{path.name}"))
    run_pairs(stored, planned, make, engine, "pairs refined", progress)
    rows = [row for path in planned for row in stored.read(path, ["count", "unread", "error"])]
    return RefinementResult(
        len(np.unique(found.track)), sum(len(v) for v in pairs.values()),
        sum(row["count"] for row in rows),
        {row["unread"]: row["error"] for row in rows if row["error"]},
    )  # fmt: skip


Moved = tuple[NDArray[np.integer], FloatArray]  # features (k,) of an image, and places (k, 2)


def places(store: Path) -> dict[str, Moved]:
    """Return the moved features (k,) of each image and their places (k, 2), if there are any."""
    stored = shards(store)
    parts: dict[str, list[Moved]] = {}
    paths = stored.all()
    key = geometries_key(store) if paths else ""
    for path in paths:
        for row in stored.read(path):
            if row["geometries"] != key:
                raise InputError(f"{store}: geometries are newer than refined places; refine again")
            xy = row["places"].reshape(-1, 2).astype(np.float64)
            parts.setdefault(row["name_b"], []).append((row["features"], xy))
    return gathered(parts)


def gathered(parts: Mapping[str, list[Moved]]) -> dict[str, Moved]:
    """Return the moved features of each image, from the parts of several pairs."""
    return {
        name: (np.concatenate([rows for rows, _ in some]), np.concatenate([xy for _, xy in some]))
        for name, some in parts.items()
        if some
    }


def forget(store: Path) -> None:
    """Remove all refined places: features are then where they were found."""
    shards(store).tidy([])
