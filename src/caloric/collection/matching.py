"""Match image pairs, and verify the matches of each pair geometrically.

Pairs are grouped by the feature shards of their two images, so that a worker reads each image of a
shard once. The ``anchor`` shard of a task contains one image of each of its pairs; if there are few
pairs, the other images may be in several neighboring shards.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from caloric import comparison, pipeline
from caloric.collection import extraction, sources
from caloric.collection.engines import Engine
from caloric.collection.extraction import StoredImage
from caloric.collection.pairing import Pair
from caloric.collection.steps import PairTask, Progress, no_progress, reused, run_pairs
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError, check_bool, unknown
from caloric.features import Features
from caloric.matching import geometry
from caloric.matching.estimation import VERSION
from caloric.matching.geometry import Geometry, check_threshold
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import check_input_directory
from caloric.runtime.words import counted

MATCHES = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("indices", "uint32s"), ("distances", "float32s"),
    ("ratio", "float64"), ("agreement", "int32"), ("made_from", "string"),
)  # fmt: skip
GEOMETRIES = (
    ("name_a", "string"), ("name_b", "string"), ("model", "string"),
    ("matrix", "float64s"), ("inliers", "uint32s"), ("count", "int32"), ("confidence", "float64"),
    ("matches", "string"), ("made_from", "string"),
)  # fmt: skip

Model = Literal["fundamental", "homography"]


@dataclass(frozen=True)
class Matching:
    """Options of matching and verification.

    Parameters
    ----------
    ratio : float
        The threshold of the ratio test.
    model : "fundamental" or "homography"
        The geometric model of a pair.
    threshold : float or None
        The maximum residual of an inlier, in pixels; by default it follows from the noise of the
        matches.
    confidence : float
        The minimum confidence of a geometry (:attr:`caloric.Geometry.confidence`).
    agreement : bool
        Also keep matches that fail the ratio test but agree with their neighbors: see
        :func:`caloric.match`.
    """

    ratio: float = 0.85
    model: Model = "fundamental"
    threshold: float | None = None
    confidence: float = 0.5
    agreement: bool = False

    def __post_init__(self) -> None:
        """Raise an error if an option is invalid."""
        if self.model not in get_args(Model):
            raise unknown("model", self.model, get_args(Model))
        if not 0 < self.ratio <= 1:
            raise InputError("ratio must be in (0, 1]")
        check_threshold(self.threshold)
        if not 0 <= self.confidence < 1:
            raise InputError("confidence must be at least 0 and below 1")
        check_bool("agreement", self.agreement)


def shards(store: Path) -> Shards:
    """Return the match shards of a store."""
    return Shards(store / "matches", MATCHES)


def geometries(store: Path) -> Shards:
    """Return the geometry shards of a store."""
    return Shards(store / "geometries", GEOMETRIES)


Groups = tuple[tuple[str, tuple[Pair, ...]], ...]  # paths of feature shards, each with its pairs


@dataclass(frozen=True, kw_only=True)
class Task(PairTask):
    """A shard of matches or geometries to write.

    ``anchor`` is the feature shard that contains one image of each pair; ``groups`` are the shards
    with the other images, each with its pairs. For verification, ``matches`` is the match shard.
    ``device`` is the device for matching.
    """

    matching: Matching
    anchor: str
    groups: Groups
    matches: str = ""
    device: str = "cpu"

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs in the order of their rows."""
        return _flat(self.groups)


def _flat(groups: Groups) -> list[Pair]:
    return [pair for _, pairs in groups for pair in pairs]


def _rows(task: Task, columns: list[str] | None, wanted: set[Pair]) -> Iterator[tuple[Pair, Any]]:
    """Yield each wanted pair with a dictionary that has the feature rows of both images."""
    stored = extraction.shards(Path(task.store))

    def read(path: str, pairs: Iterable[Pair]) -> dict[str, dict[str, Any]]:
        names = {name for pair in pairs for name in pair}
        if columns is None:
            return extraction.rows(Path(path), names)
        return {row["name"]: row for row in stored.read(Path(path), columns, names)}

    anchored = read(task.anchor, wanted) if wanted else {}
    for path, pairs in task.groups:
        # Pairs of one second image follow each other, because it is prepared once for matching.
        selected = sorted((pair for pair in pairs if pair in wanted), key=lambda pair: pair[::-1])
        if selected:
            rows = anchored if path == task.anchor else anchored | read(path, selected)
            yield from ((pair, rows) for pair in selected)


_BATCH = 128  # pairs matched in one call, for a GPU


def _batches(rows: Iterator[tuple[Pair, Any]]) -> Iterator[list[tuple[Pair, Any]]]:
    """Yield pairs with their rows in batches."""
    while batch := list(islice(rows, _BATCH)):
        yield batch


def match_shard(task: Task) -> int:
    """Write one match shard, on a worker; return the number of newly matched pairs."""
    stored = shards(Path(task.store))
    # Shards of earlier versions have no column for agreement.
    rows = {pair: {"agreement": 0} | row for pair, row in reused(stored, task).items()}
    keys = task.keyed
    new = keys.keys() - rows.keys()
    ratio, agreement = task.matching.ratio, task.matching.agreement
    for batch in _batches(_rows(task, None, new)):
        known: dict[str, Features] = {}
        for pair, stored_rows in batch:
            for name in pair:
                if name not in known:
                    known[name] = extraction.features_of(stored_rows[name])
        feature_pairs = [(known[a], known[b]) for (a, b), _ in batch]
        results = pipeline.match(
            feature_pairs, ratio=ratio, agreement=agreement, device=task.device
        )
        for ((a, b), _), matches in zip(batch, results, strict=True):
            rows[a, b] = {
                "name_a": a, "name_b": b, "count": len(matches), "ratio": ratio,
                "agreement": int(agreement),
                "indices": matches.indices.astype(np.uint32).ravel(),
                "distances": matches.distances, "made_from": keys[a, b],
            }  # fmt: skip
    stored.write(Path(task.path), [rows[pair] for pair in task.pairs])
    return len(new)


def estimated(a: Features, b: Features, indices: NDArray[np.intp], options: Matching) -> Geometry:
    """Return the geometry of matches (m, 2) between the features of two images."""
    first, second = a.frames.maps[indices[:, 0]], b.frames.maps[indices[:, 1]]
    return geometry.estimate(
        first[:, :, 2], second[:, :, 2], model=options.model, threshold=options.threshold,
        size_a=a.image_size, size=b.image_size, support=(first, second),
        appearance=comparison.appearance((a, b), indices, (first, second)),
    )  # fmt: skip


def verify_shard(task: Task) -> int:
    """Write one geometry shard, on a worker; return the number of newly verified pairs."""
    stored = geometries(Path(task.store))
    rows = reused(stored, task)
    new = set(task.pairs) - rows.keys()
    matched = {
        (row["name_a"], row["name_b"]): row
        for row in shards(Path(task.store)).read(Path(task.matches))
    }
    keys = task.keyed
    for (a, b), stored_rows in _rows(task, None, new):
        first, second = (extraction.features_of(stored_rows[name]) for name in (a, b))
        indices = matched[a, b]["indices"].reshape(-1, 2).astype(np.intp)
        estimate = estimated(first, second, indices, task.matching)
        matrix, inliers = np.zeros(0), np.flatnonzero(estimate.inliers).astype(np.uint32)
        if estimate.matrix is not None and estimate.confidence > task.matching.confidence:
            matrix = estimate.matrix.ravel()
        rows[a, b] = {
            "name_a": a, "name_b": b, "model": task.matching.model, "matrix": matrix,
            "inliers": inliers if len(matrix) else [], "count": len(inliers),
            "confidence": estimate.confidence, "matches": matched[a, b]["made_from"],
            "made_from": keys[a, b],
        }  # fmt: skip
    stored.write(Path(task.path), [rows[pair] for pair in task.pairs])
    return len(new)


def _bucket(path: Path) -> int:
    return int(path.name.split("-")[0], 16)


def made_from(a: StoredImage, b: StoredImage, ratio: float, agreement: bool) -> str:
    """Return a hash of everything that the matches of two images depend on."""
    # Without agreement, the hash is that of versions that did not have it.
    return fingerprint(a.key, b.key, ratio, *(["agreement"] if agreement else []))


def _groups(
    known: dict[str, StoredImage], pairs: list[Pair]
) -> dict[tuple[Path, int], dict[Path, list[Pair]]]:
    """Return the pairs by anchor and range of buckets (one task each), then by the other shard."""
    files = sorted({image.path for image in known.values()})
    numbers = {path: i for i, path in enumerate(files)}
    shard_of = {name: numbers[image.path] for name, image in known.items()}
    buckets = [_bucket(path) for path in files]
    bits = max(buckets, default=0).bit_length()
    per_task = min(512, max(1, math.isqrt(len(pairs)) // 4))  # approximate number of pairs
    parts = math.log2(max(1, len(pairs) / (per_task * max(1, len(files)))))
    shift = max(0, bits - int(parts))
    groups: dict[tuple[Path, int], dict[Path, list[Pair]]] = {}
    for a, b in pairs:
        if a not in shard_of or b not in shard_of:
            raise InputError(f"{a}, {b}: no features of this pair; extract them first")
        anchor, other = shard_of[a], shard_of[b]
        # Swap half of the cases; otherwise the first shards would have the most pairs.
        if (anchor > other) == ((buckets[anchor] + buckets[other]) % 2 == 0):
            anchor, other = other, anchor
        group = groups.setdefault((files[anchor], buckets[other] >> shift), {})
        group.setdefault(files[other], []).append((a, b))
    return groups


def _ordered(group: dict[Path, list[Pair]]) -> Groups:
    return tuple((str(path), tuple(sorted(group[path]))) for path in sorted(group))


def tasks(
    store: Path,
    known: dict[str, StoredImage],
    pairs: list[Pair],
    matching: Matching,
    device: str = "cpu",
) -> dict[Path, Task]:
    """Return the tasks of all pairs, by path of their match shard."""
    stored = shards(store)
    planned = {}
    for (anchor, part), group in sorted(_groups(known, pairs).items()):
        groups = _ordered(group)
        keys = tuple(
            made_from(known[a], known[b], matching.ratio, matching.agreement)
            for a, b in _flat(groups)
        )
        path = stored.path(f"{_bucket(anchor):06x}.{part:x}", fingerprint(keys))
        planned[path] = Task(
            store=str(store), path=str(path), keys=keys, matching=matching, anchor=str(anchor),
            groups=groups, device=device,
        )  # fmt: skip
    return planned


@dataclass(frozen=True)
class MatchingResult:
    """The number of pairs, and of those newly matched."""

    pairs: int
    new: int

    def __str__(self) -> str:
        """Return a summary in one line."""
        return f"{counted(self.pairs, 'pair')}, {self.new:,} newly matched"


@dataclass(frozen=True)
class VerificationResult:
    """The number of matched pairs, and of those with a geometry."""

    pairs: int
    verified: int

    def __str__(self) -> str:
        """Return a summary in one line."""
        verb = "has" if self.verified == 1 else "have"
        return f"{self.verified:,} of {counted(self.pairs, 'pair')} {verb} a geometry"


def match(
    store: Path,
    pairs: list[Pair],
    matching: Matching,
    engine: Engine,
    progress: Progress = no_progress,
    device: str = "cpu",
) -> MatchingResult:
    """Match all new and changed pairs."""
    store = store.absolute()
    planned = tasks(store, extraction.stored_images(store), pairs, matching, device)
    new = run_pairs(shards(store), planned, match_shard, engine, "pairs matched", progress)
    return MatchingResult(len(pairs), new)


def verify(
    store: Path, matching: Matching, engine: Engine, progress: Progress = no_progress
) -> VerificationResult:
    """Verify all matched pairs."""
    store = store.absolute()
    stored, matched, known = geometries(store), shards(store), extraction.stored_images(store)
    options = (matching.model, matching.threshold, matching.confidence, VERSION)
    buckets = {path: _bucket(path) for path in {image.path for image in known.values()}}
    planned = {}
    for path in matched.all():
        rows = list(matched.read(path, ["name_a", "name_b", "ratio", "agreement", "made_from"]))
        check_current(store, known, rows)
        keys = {(r["name_a"], r["name_b"]): fingerprint(r["made_from"], options) for r in rows}
        anchor_bucket = int(path.name.split(".")[0], 16)
        anchor = Path()
        group: dict[Path, list[Pair]] = {}
        for a, b in keys:
            anchor, other = known[a].path, known[b].path
            if buckets[anchor] != anchor_bucket:
                anchor, other = other, anchor
            group.setdefault(other, []).append((a, b))
        groups = _ordered(group)
        ordered = tuple(keys[pair] for pair in _flat(groups))
        target = stored.path(bucket(path), fingerprint(ordered))
        planned[target] = Task(
            store=str(store), path=str(target), keys=ordered, matching=matching,
            anchor=str(anchor), groups=groups, matches=str(path),
        )  # fmt: skip
    if not planned:
        raise InputError(f"{store}: contains no matches; match first")
    run_pairs(stored, planned, verify_shard, engine, "pairs verified", progress)
    accepted = [
        row["confidence"] > matching.confidence
        for path in planned
        for row in stored.read(path, ["confidence"])
    ]
    return VerificationResult(len(accepted), sum(accepted))


def check_current(
    store: Path, known: dict[str, StoredImage], rows: Iterable[dict[str, Any]]
) -> None:
    """Raise an error if matches do not belong to the current features of the store."""
    for row in rows:
        a, b = known.get(row["name_a"]), known.get(row["name_b"])
        agreement = bool(row.get("agreement"))  # missing in shards of earlier versions
        if a is None or b is None or made_from(a, b, row["ratio"], agreement) != row["made_from"]:
            raise InputError(f"{store}: the features are newer than the matches; match again")


def bucket(path: Path) -> str:
    """Return the first part of a shard's name, common to matches and their geometries."""
    return path.name.rsplit("-", 1)[0]


def check_verified(directory: str, store: Path) -> tuple[str, Path]:
    """Return the absolute paths of an image directory and its store.

    Raise InputError if the directory does not exist, or if no pair of the store was verified.
    """
    directory, store = sources.absolute(directory), store.absolute()
    if not sources.is_remote(directory):
        check_input_directory(directory)
    if not geometries(store).all():
        raise InputError(f"{store}: contains no geometries; verify first")
    return directory, store


def geometries_key(store: Path) -> str:
    """Return a hash of the geometries of a store, to detect outdated results."""
    return fingerprint([path.name for path in geometries(store).all()])


def two_views(store: Path) -> Iterator[TwoViews]:
    """Yield the matches of all pairs of a store, with the geometries of verified pairs."""
    matched, stored = shards(store), geometries(store)
    known = extraction.stored_images(store)
    verified = {bucket(path): path for path in stored.all()}
    for path in matched.all():
        rows = {}
        if bucket(path) in verified:
            for row in stored.read(verified[bucket(path)]):
                rows[row["name_a"], row["name_b"]] = row
        for row in matched.read(path):
            check_current(store, known, [row])
            geometry = rows.get((row["name_a"], row["name_b"]))
            if verified and (geometry is None or geometry["matches"] != row["made_from"]):
                raise InputError(
                    f"{store}: the matches are newer than the geometries; verify again"
                )
            yield _two_views(row, geometry)


def _two_views(row: dict[str, Any], geometry: dict[str, Any] | None) -> TwoViews:
    indices, distances = row["indices"].reshape(-1, 2), row["distances"]
    model, inliers, matrix = "", np.zeros(0, np.uint32), None
    if geometry is not None:
        model, inliers = geometry["model"], geometry["inliers"]
        matrix = geometry["matrix"].reshape(3, 3) if len(geometry["matrix"]) else None
    return TwoViews(row["name_a"], row["name_b"], indices, distances, inliers, matrix, model)
