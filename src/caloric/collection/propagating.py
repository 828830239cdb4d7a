"""Propagate tracks: find each point in all images that show it.

The matches of verified pairs are joined into tracks. For each image, the tracks without a feature
in it and the unmatched features of the images that it has a geometry with are predicted in it
(:mod:`caloric.collection.proposals`). The tasks are images, in the same shards as their features; a
row has the new observations of the features of one image ``name_a`` in another, ``name_b``.
"""

import hashlib
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from caloric.collection import extraction, image_cache, matching, proposals, tracks
from caloric.collection.engines import Engine
from caloric.collection.extraction import StoredImage
from caloric.collection.image_cache import StoredFile
from caloric.collection.pairing import Pair
from caloric.collection.proposals import Observed, Source
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
from caloric.extraction import dispatch
from caloric.features import encoding_of, offset_of
from caloric.frames import Frames
from caloric.image import tiles
from caloric.matching import refinement
from caloric.matching.two_views import TwoViews
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.runtime.words import counted
from caloric.types import Encoding, FloatArray, GeometryModel

# ``nodes`` are the features of ``name_b`` that ``features`` of ``name_a`` are; new ones follow the
# stored ones. ``origins`` are the features of ``name_a`` that became the new features ``added``,
# with ``maps`` and ``descriptors``.
COLUMNS = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("unread", "string"), ("error", "string"),
    ("features", "uint32s"), ("nodes", "uint32s"),
    ("origins", "uint32s"), ("added", "uint32s"), ("maps", "float32s"), ("descriptors", "uint8s"),
    ("geometries", "string"), ("made_from", "string"),
)  # fmt: skip
_VERSION = 3  # version of the rows and of the rules by which they are chosen


def shards(store: Path) -> Shards:
    """Return the shards of propagated observations of a store."""
    return Shards(store / "propagated", COLUMNS)


Tracked = tuple[NDArray[np.int64], NDArray[np.int64]]  # features (k,) and their tracks (k,)


@dataclass(frozen=True, eq=False)
class Target:
    """An image, and its verified pairs (other image, image), the most inliers first.

    The matches of the pairs are inliers.
    """

    name: str
    pairs: tuple[TwoViews, ...]


@dataclass(frozen=True, kw_only=True)
class Task(PairTask):
    """A shard to write: images and their pairs, and the features of all images in tracks.

    ``shards_of`` has the path of the feature shard of each image; ``geometries`` is a hash of the
    geometries from which the tracks were joined. ``options`` are those of the descriptors.
    """

    directory: str
    targets: tuple[Target, ...]
    tracked: dict[str, Tracked]
    shards_of: dict[str, str]
    geometries: str
    options: ExtractOptions

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs in the order of their rows."""
        return [(pair.name_a, target.name) for target in self.targets for pair in target.pairs]


@threads.single_threaded_blas
def make(task: Task) -> int:
    """Write one shard, on a worker; return the number of new pairs."""
    stored = shards(Path(task.store))
    rows, keys, new = reused(stored, task), task.keyed, 0
    worker = _Worker(task)
    for target in task.targets:
        missing = [pair for pair in target.pairs if (pair.name_a, target.name) not in rows]
        if missing:
            key = keys[missing[0].name_a, target.name]
            new += len(target.pairs)
            for row in worker.rows(target):
                made_from = "" if row["error"] else key
                rows[row["name_a"], target.name] = row | {"made_from": made_from}
    written = [rows[pair] | {"geometries": task.geometries} for pair in task.pairs]
    stored.write(Path(task.path), written)
    return new


class _Worker:
    """Propagates to the images of a task, with a cache of images."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.files: dict[str, StoredFile] = {}
        self.views = image_cache.of_directory(task.directory)

    def image(self, name: str) -> Observed:
        """Return the features of an image."""
        row = extraction.rows(Path(self.task.shards_of[name]), {name})[name]
        self.files[name] = ImageFile(name, row["content"]), row.get("white_level")
        features = extraction.features_of(row)
        none = np.zeros(0, np.int64)
        return Observed(
            features.frames.maps,
            _decoded(features.descriptors, features.encoding),
            features.image_size,
            *self.task.tracked.get(name, (none, none)),
        )

    def rows(self, target: Target) -> list[dict[str, Any]]:
        """Return the rows of all pairs of an image."""
        image, options = self.image(target.name), self.task.options
        encoding = encoding_of(options.output, options.recipe.whitening is not None)
        rows = [_row(pair.name_a, target.name) for pair in target.pairs]
        try:
            view = self.views[self.files[target.name]]
        except InputError as error:
            return [row | {"unread": target.name, "error": str(error)} for row in rows]

        def source(number: int, pair: TwoViews) -> Source | None:
            observed = self.image(pair.name_a)
            try:
                first = self.views[self.files[pair.name_a]]
            except InputError as error:
                rows[number] |= {"unread": pair.name_a, "error": str(error)}
                return None
            assert pair.matrix is not None
            model = cast(GeometryModel, pair.model)
            matches = pair.matches.astype(np.int64)
            descent = partial(refinement.descend, max_start_cost=proposals.MAX_START_COST)
            refine = partial(image_cache.refine, first, view, descent=descent)
            return Source(number, observed, matches, pair.matrix, model, refine)

        def describe(maps: FloatArray) -> NDArray[np.float32]:
            frames = Frames(view.upright(maps), np.zeros(len(maps), np.float32))
            values = dispatch.describe_frames(view.gray, frames, options, None, tiles.MEMORY)
            return _decoded(values, encoding)

        each = (source(number, pair) for number, pair in enumerate(target.pairs))
        proposed = proposals.propose(image, (s for s in each if s is not None), describe)
        links = proposals.link(image, proposed)
        offset = offset_of(encoding)
        for number, row in enumerate(rows):
            of_source = links.proposals.source == number
            new = links.new[of_source[links.new]]
            row |= {
                "count": len(new), "features": links.proposals.feature[of_source],
                "nodes": links.nodes[of_source], "origins": links.proposals.feature[new],
                "added": links.nodes[new],
                "maps": links.proposals.maps[new].astype(np.float32).ravel(),
                "descriptors": (links.proposals.descriptors[new] + offset).astype(np.uint8).ravel(),
            }  # fmt: skip
        return rows


def _row(name_a: str, name_b: str) -> dict[str, Any]:
    """Return a row without observations."""
    lists = ("features", "nodes", "origins", "added", "maps", "descriptors")
    row: dict[str, Any] = {"name_a": name_a, "name_b": name_b, "count": 0}
    return row | {"unread": None, "error": None} | {name: [] for name in lists}


def _decoded(descriptors: NDArray[np.generic], encoding: Encoding) -> NDArray[np.float32]:
    """Return stored descriptors (n, d) with signs."""
    return np.asarray(descriptors, np.float32) - np.float32(offset_of(encoding))


@dataclass(frozen=True)
class PropagationResult:
    """The result of propagation.

    Attributes
    ----------
    observations : int
        The number of new observations of tracks and unmatched features.
    features : int
        The number of new features; other observations are features that were detected.
    skipped : dict
        Unreadable images with the reasons.
    """

    observations: int
    features: int
    skipped: dict[str, str]

    def __str__(self) -> str:
        """Return a summary in one line."""
        return (
            f"{counted(self.observations, 'propagated observation')}; "
            f"{counted(self.features, 'new feature')}"
        )


def propagate(
    directory: str,
    store: Path,
    engine: Engine,
    progress: Progress = no_progress,
    options: ExtractOptions | None = None,
) -> PropagationResult:
    """Propagate the tracks and the unmatched features of a verified store.

    ``options`` are those of the extraction, by default those of the stored descriptor.
    """
    directory, store = matching.check_verified(directory, store)
    known, stored = extraction.stored_images(store), shards(store)
    described = _options(store, options)
    verified = [_of_inliers(p) for p in matching.two_views(store) if p.matrix is not None]
    joined = tracks.join(
        {name: image.count for name, image in known.items()},
        (tracks.PairMatches(p.name_a, p.name_b, p.matches, p.distances) for p in verified),
    )
    tracked = {
        name: (joined.feature[rows], joined.track[rows])
        for name, rows in joined.rows_by_image().items()
    }
    targets = _targets(verified)
    key, planned = matching.geometries_key(store), {}
    groups: dict[Path, list[Target]] = {}
    for name in sorted(targets):
        groups.setdefault(known[name].path, []).append(targets[name])
    for shard, group in sorted(groups.items()):
        keys = tuple(
            value
            for target in group
            for value in [_key(target, known, tracked, described)] * len(target.pairs)
        )
        path = stored.path(shard.name.split("-")[0], fingerprint(key, keys))
        names = sorted({name for t in group for name in (t.name, *(p.name_a for p in t.pairs))})
        planned[path] = Task(
            store=str(store), path=str(path), keys=keys, directory=directory,
            targets=tuple(group), tracked={n: tracked[n] for n in names if n in tracked},
            shards_of={name: str(known[name].path) for name in names}, geometries=key,
            options=described,
        )  # fmt: skip
    retry_errors(stored, planned)
    run_pairs(stored, planned, make, engine, "pairs propagated", progress)
    columns = ["count", "nodes", "unread", "error"]
    rows = [row for path in planned for row in stored.read(path, columns)]
    return PropagationResult(
        sum(len(row["nodes"]) for row in rows), sum(row["count"] for row in rows),
        {row["unread"]: row["error"] for row in rows if row["error"]},
    )  # fmt: skip


def _options(store: Path, given: ExtractOptions | None) -> ExtractOptions:
    """Return the options of the stored descriptors; raise an error if they are not known."""
    stored = extraction.shards(store)
    columns = ["count", "descriptor", "recipe"]
    rows = (row for path in stored.all() for row in stored.read(path, columns) if row["count"])
    for row in rows:
        options = extraction.stored_as_bytes(given or ExtractOptions(descriptor=row["descriptor"]))
        if options.fingerprint != row["recipe"]:
            raise InputError(
                f"{store}: the descriptors were computed with other options; pass them as options, "
                "or use propagate=False"
            )
        return options
    return extraction.stored_as_bytes(given or ExtractOptions())


def _of_inliers(pair: TwoViews) -> TwoViews:
    """Return a pair without its outliers."""
    inliers = np.arange(len(pair.inliers), dtype=np.uint32)
    return replace(
        pair, matches=pair.inlier_matches, distances=pair.distances[pair.inliers], inliers=inliers
    )


def _targets(pairs: list[TwoViews]) -> dict[str, Target]:
    """Return each image with its pairs that have enough inliers, as the second image."""
    by_image: dict[str, list[TwoViews]] = {}
    for pair in pairs:
        if len(pair.matches) < proposals.MIN_INLIERS:
            continue
        by_image.setdefault(pair.name_b, []).append(pair)
        by_image.setdefault(pair.name_a, []).append(pair.swapped())
    return {
        name: Target(name, tuple(sorted(group, key=lambda p: (-len(p.matches), p.name_a))))
        for name, group in by_image.items()
    }


def _key(
    target: Target,
    known: dict[str, StoredImage],
    tracked: dict[str, Tracked],
    options: ExtractOptions,
) -> str:
    """Return a hash of everything that the rows of an image depend on."""
    none = np.zeros(0, np.int64)
    names = [target.name, *(pair.name_a for pair in target.pairs)]
    features, track = zip(*(tracked.get(name, (none, none)) for name in names), strict=True)
    # Tracks of other images do not change the numbers.
    _, numbers = np.unique(np.concatenate(track), return_inverse=True)
    digest = hashlib.sha256(numbers.astype(np.uint32).tobytes())
    for values in (*features, *(pair.matches for pair in target.pairs)):
        digest.update(np.ascontiguousarray(values, np.uint32).tobytes())
    matrices = [pair.matrix.tolist() for pair in target.pairs if pair.matrix is not None]
    return fingerprint(
        _VERSION, names, [known[name].key for name in names], [len(f) for f in features],
        [(len(pair.matches), pair.model) for pair in target.pairs], matrices, digest.hexdigest(),
        options.fingerprint,
    )  # fmt: skip


def clear(store: Path) -> None:
    """Remove all propagated observations."""
    shards(store).tidy([])
