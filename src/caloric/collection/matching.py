"""Steps three and four: matches of pairs, and the geometry each pair agrees on.

Pairs go together whose first images lie in one shard of features and whose second images lie in
one, or in neighbouring ones where pairs are few: a worker reads each of a shard's images once.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from caloric import features, geometry
from caloric.collection import extraction
from caloric.collection.engines import Engine
from caloric.collection.extraction import Kept
from caloric.collection.pairing import Pair
from caloric.collection.steps import Told, made, missing, untold
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError

MATCHES = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("indices", "uint32s"), ("distances", "float32s"), ("made_from", "string"),
)  # fmt: skip
GEOMETRIES = (
    ("name_a", "string"), ("name_b", "string"), ("model", "string"),
    ("matrix", "float64s"), ("inliers", "uint32s"), ("made_from", "string"),
)  # fmt: skip


@dataclass(frozen=True)
class Matching:
    """:func:`caloric.match`'s options, and of the geometry its model and threshold in pixels."""

    ratio: float = 0.85
    model: Literal["fundamental", "homography"] = "fundamental"
    threshold: float = 1.5
    least: int = 15  # inliers, or it is no geometry


def shards(store: Path) -> Shards:
    """Those of matches."""
    return Shards(store / "matches", MATCHES)


def geometries(store: Path) -> Shards:
    """Those of geometries."""
    return Shards(store / "geometries", GEOMETRIES)


@dataclass(frozen=True)
class Task:
    """One shard of pairs: ``home`` is the shard of features with an image of each, ``away`` those
    with the other ones, each with its pairs. Of a verification, ``matches`` is what it is of."""

    store: str
    path: str
    matching: Matching
    home: str
    away: tuple[tuple[str, tuple[Pair, ...]], ...]
    made_from: tuple[str, ...]
    matches: str = ""

    @property
    def count(self) -> int:
        """Of pairs."""
        return sum(len(pairs) for _, pairs in self.away)


def _rows(task: Task, columns: list[str] | None) -> Iterator[tuple[Pair, dict[str, Any]]]:
    """Each pair, and the rows of features by name that it needs."""
    own = extraction.shards(Path(task.store))

    def read(file: str, names: set[str]) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in own.read(Path(file), columns, names)}

    at_home = read(task.home, {name for _, pairs in task.away for pair in pairs for name in pair})
    for file, pairs in task.away:
        rows = at_home
        if file != task.home:
            rows = at_home | read(file, {name for pair in pairs for name in pair})
        for pair in pairs:
            yield pair, rows


def match_shard(task: Task) -> int:
    """By a worker: how many pairs."""
    rows = []
    for ((a, b), found), key in zip(_rows(task, None), task.made_from, strict=True):
        matches = features.match(
            *(extraction.features_of(found[name]) for name in (a, b)), ratio=task.matching.ratio
        )
        rows.append(
            {"name_a": a, "name_b": b, "count": len(matches), "made_from": key,
             "indices": matches.indices.astype(np.uint32).ravel(), "distances": matches.distances}
        )  # fmt: skip
    shards(Path(task.store)).write(Path(task.path), rows)
    return len(rows)


def verify_shard(task: Task) -> int:
    """By a worker: how many pairs."""
    rows = []
    matched = shards(Path(task.store)).read(Path(task.matches))
    for ((a, b), found), row in zip(_rows(task, ["name", "frames"]), matched, strict=True):
        pairs = row["indices"].reshape(-1, 2).astype(np.intp)
        p, q = (
            found[name]["frames"].reshape(-1, 2, 3)[pairs[:, i], :, 2].astype(np.float64)
            for i, name in enumerate((a, b))
        )
        estimate = geometry.estimate(
            p, q, model=task.matching.model, threshold=task.matching.threshold
        )
        inliers = np.flatnonzero(estimate.inliers).astype(np.uint32)
        known = estimate.matrix is not None and len(inliers) >= task.matching.least
        matrix = estimate.matrix if known and estimate.matrix is not None else np.zeros(0)
        rows.append(
            {"name_a": a, "name_b": b, "model": task.matching.model, "matrix": matrix.ravel(),
             "inliers": inliers if known else [], "made_from": Path(task.matches).name}
        )  # fmt: skip
    geometries(Path(task.store)).write(Path(task.path), rows)
    return len(rows)


def _bucket(path: Path) -> int:
    return int(path.name.split("-")[0], 16)


def made_from(a: Kept, b: Kept) -> str:
    """What the matches of two images were made from."""
    return fingerprint(a.key, b.key)


def _groups(
    known: dict[str, Kept], pairs: list[Pair]
) -> dict[tuple[Path, int], dict[Path, list[Pair]]]:
    """The pairs of each task: by the shard at home and a part of all buckets, then by shard."""
    files = {one.path for one in known.values()}
    buckets = max((_bucket(path) for path in files), default=0).bit_length()
    wanted = min(512, max(16, math.isqrt(len(pairs))))  # pairs a task, about
    parts = math.log2(max(1, len(pairs) / (wanted * max(1, len(files)))))
    shift = max(0, buckets - int(parts))
    groups: dict[tuple[Path, int], dict[Path, list[Pair]]] = {}
    for a, b in pairs:
        if a not in known or b not in known:
            raise InputError(f"{a}, {b}: a pair of images without features; extract them first")
        home, away = sorted((known[a].path, known[b].path))
        if (_bucket(home) + _bucket(away)) % 2:  # or the first shard would have the most pairs
            home, away = away, home
        group = groups.setdefault((home, _bucket(away) >> shift), {})
        group.setdefault(away, []).append((a, b))
    return groups


def _planned(store: Path, pairs: list[Pair], matching: Matching) -> dict[Path, Task]:
    own, known = shards(store), extraction.listed(store)
    planned = {}
    for (home, part), group in sorted(_groups(known, pairs).items()):
        away = tuple((str(path), tuple(sorted(group[path]))) for path in sorted(group))
        ordered = [pair for _, some in away for pair in some]
        sources = tuple(made_from(known[a], known[b]) for a, b in ordered)
        key = fingerprint(matching.ratio, ordered, sources)
        path = own.path(f"{_bucket(home):06x}.{part:x}", key)
        planned[path] = Task(str(store), str(path), matching, str(home), away, sources)
    return planned


def match(
    store: Path, pairs: list[Pair], matching: Matching, engine: Engine, told: Told = untold
) -> int:
    """The matches of all pairs: how many pairs had to be made."""
    own, planned = shards(store), _planned(store, pairs, matching)
    return _made(own, planned, match_shard, engine, "pairs matched", told)


def _made(
    own: Shards, planned: dict[Path, Task], make: Any, engine: Engine, what: str, told: Told
) -> int:
    left = missing(own, planned)
    total, count = sum(task.count for task in left.values()), 0
    for done in made(own, planned, left, make, engine):
        count += done
        told(what, count, total)
    return count


def verify(
    store: Path, pairs: list[Pair], matching: Matching, engine: Engine, told: Told = untold
) -> int:
    """The geometries of all pairs: how many have one. Their matches must be there."""
    own = geometries(store)
    planned = {}
    for path, task in _planned(store, pairs, matching).items():
        if not path.exists():
            raise InputError(f"{store}: pairs without matches; match them first, alike")
        target = own.path(bucket(path), fingerprint(asdict(matching), path.name))
        planned[target] = replace(task, path=str(target), matches=str(path))
    _made(own, planned, verify_shard, engine, "pairs verified", told)
    return sum(1 for path in planned for row in own.read(path, ["matrix"]) if len(row["matrix"]))


def bucket(path: Path) -> str:
    """The first part of a shard's name, which matches and their geometries share."""
    return path.name.rsplit("-", 1)[0]
