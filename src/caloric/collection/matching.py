"""Steps three and four: matches of pairs, and the geometry each pair agrees on.

Pairs go together whose first images lie in one shard of features and whose second images lie in
one, or in neighbouring ones where pairs are few: a worker reads each of a shard's images once.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from caloric import pipeline
from caloric.collection import extraction
from caloric.collection.engines import Engine
from caloric.collection.extraction import Kept
from caloric.collection.pairing import Pair
from caloric.collection.steps import Told, made, missing, untold
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError
from caloric.matching import geometry

MATCHES = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("indices", "uint32s"), ("distances", "float32s"),
    ("ratio", "float64"), ("made_from", "string"),
)  # fmt: skip
GEOMETRIES = (
    ("name_a", "string"), ("name_b", "string"), ("model", "string"),
    ("matrix", "float64s"), ("inliers", "uint32s"), ("matches", "string"), ("made_from", "string"),
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


Away = tuple[tuple[str, tuple[Pair, ...]], ...]


@dataclass(frozen=True)
class Task:
    """One shard of pairs: ``home`` is the shard of features with an image of each, ``away`` those
    with the other ones, each with its pairs. ``keys`` say what each pair's row is made from, and
    ``known`` has shards with such rows. Of a verification, ``matches`` is what it is of."""

    store: str
    path: str
    matching: Matching
    home: str
    away: Away
    keys: tuple[str, ...]
    known: tuple[str, ...] = ()
    matches: str = ""

    @property
    def pairs(self) -> list[Pair]:
        """In the order of their rows."""
        return _flat(self.away)

    @property
    def keyed(self) -> dict[Pair, str]:
        """What the row of each pair is made from."""
        return dict(zip(self.pairs, self.keys, strict=True))


def _flat(away: Away) -> list[Pair]:
    return [pair for _, pairs in away for pair in pairs]


def _rows(task: Task, columns: list[str] | None, wanted: set[Pair]) -> Iterator[tuple[Pair, Any]]:
    """Each of some pairs, and the rows of features by name that it needs."""
    own = extraction.shards(Path(task.store))

    def read(file: str, pairs: Iterable[Pair]) -> dict[str, dict[str, Any]]:
        names = {name for pair in pairs for name in pair}
        return {row["name"]: row for row in own.read(Path(file), columns, names)}

    at_home = read(task.home, wanted) if wanted else {}
    for file, pairs in task.away:
        left = [pair for pair in pairs if pair in wanted]
        if left:
            rows = at_home if file == task.home else at_home | read(file, left)
            yield from ((pair, rows) for pair in left)


def _reused(own: Shards, task: Task) -> dict[Pair, dict[str, Any]]:
    """Rows that are the same as those to be made."""
    keys = task.keyed
    found = {}
    for path in task.known:
        try:
            for row in own.read(Path(path)):
                pair = (row["name_a"], row["name_b"])
                if keys.get(pair) == row["made_from"]:
                    found[pair] = row
        except InputError:  # broken, and removed
            continue
    return found


def match_shard(task: Task) -> int:
    """By a worker: how many pairs had to be matched."""
    own = shards(Path(task.store))
    rows = _reused(own, task)
    keys = task.keyed
    new = keys.keys() - rows.keys()
    for (a, b), found in _rows(task, None, new):
        matches = pipeline.match(
            *(extraction.features_of(found[name]) for name in (a, b)), ratio=task.matching.ratio
        )
        rows[a, b] = {
            "name_a": a, "name_b": b, "count": len(matches), "ratio": task.matching.ratio,
            "indices": matches.indices.astype(np.uint32).ravel(), "distances": matches.distances,
            "made_from": keys[a, b],
        }  # fmt: skip
    own.write(Path(task.path), [rows[pair] for pair in task.pairs])
    return len(new)


def verify_shard(task: Task) -> int:
    """By a worker: how many pairs had to be verified."""
    own = geometries(Path(task.store))
    rows = _reused(own, task)
    new = set(task.pairs) - rows.keys()
    matched = {
        (row["name_a"], row["name_b"]): row
        for row in shards(Path(task.store)).read(Path(task.matches))
    }
    keys = task.keyed
    for (a, b), found in _rows(task, ["name", "frames"], new):
        pairs = matched[a, b]["indices"].reshape(-1, 2).astype(np.intp)
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
        rows[a, b] = {
            "name_a": a, "name_b": b, "model": task.matching.model, "matrix": matrix.ravel(),
            "inliers": inliers if known else [], "matches": matched[a, b]["made_from"],
            "made_from": keys[a, b],
        }  # fmt: skip
    own.write(Path(task.path), [rows[pair] for pair in task.pairs])
    return len(new)


def _bucket(path: Path) -> int:
    return int(path.name.split("-")[0], 16)


def made_from(a: Kept, b: Kept, ratio: float) -> str:
    """What the matches of two images are made from."""
    return fingerprint(a.key, b.key, ratio)


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


def _ordered(group: dict[Path, list[Pair]]) -> Away:
    return tuple((str(path), tuple(sorted(group[path]))) for path in sorted(group))


def tasks(
    store: Path, known: dict[str, Kept], pairs: list[Pair], matching: Matching
) -> dict[Path, Task]:
    """Of all pairs, by the shard of matches."""
    own = shards(store)
    planned = {}
    for (home, part), group in sorted(_groups(known, pairs).items()):
        away = _ordered(group)
        keys = tuple(made_from(known[a], known[b], matching.ratio) for a, b in _flat(away))
        path = own.path(f"{_bucket(home):06x}.{part:x}", fingerprint(keys))
        planned[path] = Task(str(store), str(path), matching, str(home), away, keys)
    return planned


def _with_known(own: Shards, planned: dict[Path, Task], left: dict[Path, Task]) -> dict[Path, Task]:
    """With the shards of other plans in which there are rows of these."""
    where: dict[str, str] = {}
    for path in own.all() if left else ():
        if path not in planned:
            with suppress(InputError):
                where |= {row["made_from"]: str(path) for row in own.read(path, ["made_from"])}
    return {
        path: replace(task, known=tuple(sorted({where[k] for k in task.keys if k in where})))
        for path, task in left.items()
    }


def _made(
    own: Shards, planned: dict[Path, Task], make: Any, engine: Engine, what: str, told: Told
) -> int:
    """How many pairs had to be made."""
    left = _with_known(own, planned, missing(own, planned))
    total, new = sum(len(task.keys) for task in left.values()), 0
    for number, count in enumerate(made(own, planned, left, make, engine), 1):
        new += count
        told(what, round(total * number / len(left)), total)
    return new


def match(
    store: Path, pairs: list[Pair], matching: Matching, engine: Engine, told: Told = untold
) -> int:
    """The matches of all pairs: how many pairs had to be matched."""
    store = store.absolute()
    planned = tasks(store, extraction.listed(store), pairs, matching)
    return _made(shards(store), planned, match_shard, engine, "pairs matched", told)


def verify(store: Path, matching: Matching, engine: Engine, told: Told = untold) -> tuple[int, int]:
    """The geometries of all pairs that are matched: how many pairs have one, of how many."""
    store = store.absolute()
    own, matched, known = geometries(store), shards(store), extraction.listed(store)
    how = (matching.model, matching.threshold, matching.least)
    planned = {}
    for path in matched.all():
        rows = list(matched.read(path, ["name_a", "name_b", "ratio", "made_from"]))
        current(store, known, rows)
        keys = {(r["name_a"], r["name_b"]): fingerprint(r["made_from"], how) for r in rows}
        home = int(path.name.split(".")[0], 16)
        group: dict[Path, list[Pair]] = {}
        for a, b in keys:
            first, second = known[a].path, known[b].path
            group.setdefault(second if _bucket(first) == home else first, []).append((a, b))
        at_home = next(one for pair in keys for one in (known[pair[0]].path, known[pair[1]].path)
                       if _bucket(one) == home)  # fmt: skip
        away = _ordered(group)
        ordered = tuple(keys[pair] for pair in _flat(away))
        target = own.path(bucket(path), fingerprint(ordered))
        planned[target] = Task(
            str(store), str(target), matching, str(at_home), away, ordered, matches=str(path)
        )
    if not planned:
        raise InputError(f"{store}: no matches in it; match first")
    _made(own, planned, verify_shard, engine, "pairs verified", told)
    found = [len(row["matrix"]) > 0 for path in planned for row in own.read(path, ["matrix"])]
    return sum(found), len(found)


def current(store: Path, known: dict[str, Kept], rows: Iterable[dict[str, Any]]) -> None:
    """That matches are of the features there are."""
    for row in rows:
        a, b = known.get(row["name_a"]), known.get(row["name_b"])
        if a is None or b is None or made_from(a, b, row["ratio"]) != row["made_from"]:
            raise InputError(f"{store}: features are newer than matches: match again")


def bucket(path: Path) -> str:
    """The first part of a shard's name, which matches and their geometries share."""
    return path.name.rsplit("-", 1)[0]
