"""Refine tracks: align the features of each track with its reference view.

Verified matches are joined into tracks. Each feature of a track is refined once, against the
reference view of the track, so that its position is the same in all pairs. The tasks are pairs of a
reference image and another image, in shards by the reference.
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
from caloric.collection.sources import ImageFile
from caloric.collection.steps import PairTask, Progress, no_progress, reused, run_pairs
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError
from caloric.frames import Frames, sigmas
from caloric.image import reading
from caloric.image.pixels import to_gray
from caloric.matching import refinement
from caloric.runtime import threads
from caloric.runtime.files import check_input_directory
from caloric.types import FloatArray

COLUMNS = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("unread", "string"), ("error", "string"),
    ("features", "uint32s"), ("positions", "float32s"),
    ("geometries", "string"), ("made_from", "string"),
)  # fmt: skip
_VERSION = 2  # version of the rows
_MEMORY = 256e6  # maximum size of the images that a worker keeps, in bytes


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


@dataclass(frozen=True, eq=False)
class _View:
    """An upright image, and the affine map (2, 3) from its coordinates to those of the file."""

    gray: NDArray[np.float32]
    to_stored: FloatArray

    def upright(self, maps: FloatArray) -> FloatArray:
        """Return frames (k, 2, 3) of the file in the coordinates of the upright image."""
        frames = Frames(np.asarray(maps, np.float64), np.zeros(len(maps), np.float32))
        return frames.moved(np.asarray(cv2.invertAffineTransform(self.to_stored))).maps

    def stored(self, xy: FloatArray) -> FloatArray:
        """Return positions (k, 2) of the upright image in the coordinates of the file."""
        return np.asarray(xy @ self.to_stored[:, :2].T + self.to_stored[:, 2])


class Views:
    """A cache of images by name; ``read`` returns the pixels and the EXIF orientation."""

    def __init__(self, read: Callable[[str], tuple[NDArray[np.generic], int]]) -> None:
        """Start with an empty cache."""
        self.read = read
        self.cache: OrderedDict[str, _View] = OrderedDict()

    def __getitem__(self, name: str) -> _View:
        """Return an image; errors of ``read`` are passed on."""
        if name in self.cache:
            self.cache.move_to_end(name)
            return self.cache[name]
        pixels, orientation = self.read(name)
        gray = to_gray(pixels)
        h, w = gray.shape
        view = _View(gray, reading.to_stored((h, w), orientation))
        self.cache[name] = view
        while len(self.cache) > 2 and sum(v.gray.nbytes for v in self.cache.values()) > _MEMORY:
            self.cache.popitem(last=False)
        return view

    def refined(
        self, a: str, b: str, maps_a: FloatArray, maps_b: FloatArray
    ) -> tuple[NDArray[np.bool_], FloatArray]:
        """Return which frames of b (k, 2, 3) were aligned with those of a, and all positions.

        All coordinates are those of the files.
        """
        first, second = self[a], self[b]
        result = refinement.refine(
            first.gray, second.gray, first.upright(maps_a), second.upright(maps_b)
        )
        return result.moved, second.stored(result.xy)


@threads.single_threaded_blas
def make(task: Task) -> int:
    """Write one shard, on a worker; return the number of newly refined pairs."""
    stored = shards(Path(task.store))
    rows = reused(stored, task)
    keys = task.keyed
    new = [(pair, features) for pair, features in task.joined if pair not in rows]
    stored_rows = dict(_features(task, {name for pair, _ in new for name in pair}))

    def read(name: str) -> tuple[NDArray[np.generic], int]:
        row = stored_rows[name]
        return sources.pixels(
            task.directory, ImageFile(name, row["content"]), row.get("white_level")
        )

    def frames(name: str, features: NDArray[np.uint32]) -> FloatArray:
        return np.asarray(stored_rows[name]["frames"].reshape(-1, 2, 3)[features], np.float64)

    views = Views(read)
    for (a, b), features in new:
        row = {
            "name_a": a, "name_b": b, "count": 0, "unread": None, "error": None, "features": [],
            "positions": [],
            "geometries": task.geometries, "made_from": keys[a, b],
        }  # fmt: skip
        try:
            chosen, xy = views.refined(a, b, frames(a, features[:, 0]), frames(b, features[:, 1]))
        except InputError as error:
            # The features of an unreadable image are not moved. A row without a key is not
            # reused, so that the next run retries the pair.
            bad = a if a not in views.cache else b
            rows[a, b] = row | {"unread": bad, "error": str(error), "made_from": ""}
            continue
        rows[a, b] = row | {
            "count": int(chosen.sum()), "features": features[chosen, 1],
            "positions": xy[chosen].astype(np.float32).ravel(),
        }  # fmt: skip
    written = [rows[pair] | {"geometries": task.geometries} for pair in task.pairs]
    stored.write(Path(task.path), written)
    return len(new)


def _features(task: Task, names: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    stored = extraction.shards(Path(task.store))
    by_shard = sorted((task.shards_of[name], name) for name in names)
    for path, group in groupby(by_shard, key=lambda pair: pair[0]):
        wanted = {name for _, name in group}
        for row in stored.read(Path(path), ["name", "content", "white_level", "frames"], wanted):
            yield row["name"], row


def _sigmas(store: Path) -> Iterator[tuple[str, NDArray[np.float32]]]:
    stored = extraction.shards(store)
    for path in stored.all():
        for row in stored.read(path, ["name", "frames"]):
            maps = row["frames"].reshape(-1, 2, 3).astype(np.float64)
            yield row["name"], sigmas(maps).astype(np.float32)


def geometries_key(store: Path) -> str:
    """Return a hash of the geometries of a store, to detect outdated refined positions."""
    return fingerprint([path.name for path in matching.geometries(store).all()])


def _verified(store: Path) -> Iterator[tracks.PairMatches]:
    """Yield the inliers of all verified pairs."""
    for pair in matching.two_views(store):
        rows = pair.inliers
        yield tracks.PairMatches(pair.name_a, pair.name_b, pair.matches[rows], pair.distances[rows])


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
        return f"{self.tracks:,} tracks; {self.moved:,} of {self.features:,} features refined"


def refine(
    directory: str, store: Path, engine: Engine, progress: Progress = no_progress
) -> RefinementResult:
    """Refine the features of all tracks of a verified store."""
    directory, store = sources.absolute(directory), store.absolute()
    if not sources.is_remote(directory):
        check_input_directory(directory)
    if not matching.geometries(store).all():
        raise InputError(f"{store}: contains no geometries; verify first")
    known, stored = extraction.stored_images(store), shards(store)
    all_tracks = tracks.join({name: image.count for name, image in known.items()}, _verified(store))
    pairs = tracks.references(all_tracks, dict(_sigmas(store)))
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
        # Shards with unreadable images are written again; under another name their rows are reused.
        if stored.is_complete(path) and any(r["error"] for r in stored.read(path, ["error"])):
            path.rename(path.with_name(f"again.{path.name}"))
    run_pairs(stored, planned, make, engine, "pairs refined", progress)
    rows = [row for path in planned for row in stored.read(path, ["count", "unread", "error"])]
    return RefinementResult(
        len(np.unique(all_tracks.track)), sum(len(v) for v in pairs.values()),
        sum(row["count"] for row in rows),
        {row["unread"]: row["error"] for row in rows if row["error"]},
    )  # fmt: skip


Moved = tuple[NDArray[np.integer], FloatArray]  # feature indices (k,), new positions (k, 2)


def positions(store: Path) -> dict[str, Moved]:
    """Return the refined features (k,) of each image with their positions (k, 2)."""
    stored = shards(store)
    parts: dict[str, list[Moved]] = {}
    paths = stored.all()
    key = geometries_key(store) if paths else ""
    for path in paths:
        for row in stored.read(path):
            if row["geometries"] != key or "positions" not in row:
                raise InputError(f"{store}: the refined positions are outdated; refine again")
            xy = row["positions"].reshape(-1, 2).astype(np.float64)
            parts.setdefault(row["name_b"], []).append((row["features"], xy))
    return gathered(parts)


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
