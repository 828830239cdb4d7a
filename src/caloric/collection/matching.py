"""Steps three and four: matches of pairs, and the geometry each pair agrees on.

Pairs whose images lie in the same two shards of features go together, so that a worker reads two
files for a thousand pairs.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from caloric import features, geometry
from caloric.collection import extraction
from caloric.collection.engines import Engine
from caloric.collection.pairing import Pair
from caloric.collection.steps import Told, made, missing
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError
from caloric.features import Features

MATCHES = (
    ("name_a", "string"), ("name_b", "string"), ("count", "int32"),
    ("indices", "uint32s"), ("distances", "float32s"),
)  # fmt: skip
GEOMETRIES = (
    ("name_a", "string"), ("name_b", "string"), ("model", "string"),
    ("matrix", "float64s"), ("inliers", "uint32s"),
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
    """One shard of pairs, whose images are in two shards of features (or in one, twice)."""

    store: str
    path: str
    files: tuple[str, str]
    pairs: tuple[Pair, ...]
    matching: Matching
    matches: str = ""


def _read(task: Task, columns: list[str] | None) -> dict[str, dict[str, Any]]:
    own = extraction.shards(Path(task.store))
    wanted = {name for pair in task.pairs for name in pair}
    return {
        row["name"]: row
        for file in sorted(set(task.files))
        for row in own.read(Path(file), columns)
        if row["name"] in wanted
    }


def match_shard(task: Task) -> int:
    """By a worker: how many pairs."""
    found: dict[str, Features] = {
        n: extraction.features_of(r) for n, r in _read(task, None).items()
    }
    rows = []
    for a, b in task.pairs:
        matches = features.match(found[a], found[b], ratio=task.matching.ratio)
        rows.append(
            {"name_a": a, "name_b": b, "count": len(matches),
             "indices": matches.indices.astype(np.uint32).ravel(), "distances": matches.distances}
        )  # fmt: skip
    shards(Path(task.store)).write(Path(task.path), rows)
    return len(rows)


def verify_shard(task: Task) -> int:
    """By a worker: how many pairs."""
    frames = {
        name: row["frames"].reshape(-1, 2, 3)[:, :, 2].astype(np.float64)
        for name, row in _read(task, ["name", "frames"]).items()
    }
    rows = []
    for row in shards(Path(task.store)).read(Path(task.matches)):
        pairs = row["indices"].reshape(-1, 2).astype(np.intp)
        p, q = frames[row["name_a"]][pairs[:, 0]], frames[row["name_b"]][pairs[:, 1]]
        found = geometry.estimate(
            p, q, model=task.matching.model, threshold=task.matching.threshold
        )
        inliers = np.flatnonzero(found.inliers).astype(np.uint32)
        known = found.matrix is not None and len(inliers) >= task.matching.least
        matrix = np.zeros(0) if found.matrix is None or not known else found.matrix.ravel()
        rows.append(
            {"name_a": row["name_a"], "name_b": row["name_b"], "model": task.matching.model,
             "matrix": matrix, "inliers": inliers if known else []}
        )  # fmt: skip
    geometries(Path(task.store)).write(Path(task.path), rows)
    return len(rows)


def _groups(store: Path, pairs: list[Pair]) -> dict[tuple[str, str], list[Pair]]:
    own = extraction.shards(store)
    where = {row["name"]: str(path) for path in own.all() for row in own.read(path, ["name"])}
    groups: dict[tuple[str, str], list[Pair]] = {}
    for a, b in pairs:
        if a not in where or b not in where:
            raise InputError(f"{a}, {b}: a pair of images without features; extract them first")
        first, second = sorted((where[a], where[b]))
        groups.setdefault((first, second), []).append((a, b))
    return groups


def _planned(store: Path, pairs: list[Pair], matching: Matching) -> dict[Path, Task]:
    own = shards(store)
    planned = {}
    for files, group in sorted(_groups(store, pairs).items()):
        names = [Path(file).name for file in files]
        key = fingerprint(matching.ratio, names, group)
        bucket = "-".join(name.split("-")[0] for name in names)
        path = own.path(bucket, key)
        planned[path] = Task(str(store), str(path), files, tuple(group), matching)
    return planned


def match(store: Path, pairs: list[Pair], matching: Matching, engine: Engine, told: Told) -> int:
    """The matches of all pairs: how many pairs had to be made."""
    count, own, planned = 0, shards(store), _planned(store, pairs, matching)
    for done in made(own, planned, missing(own, planned), match_shard, engine):
        count += done
        told(f"{count} pairs matched")
    return count


def verify(store: Path, pairs: list[Pair], matching: Matching, engine: Engine, told: Told) -> int:
    """The geometries of all pairs, of which the matches are there: how many have one."""
    own = geometries(store)
    planned = {}
    for path, task in _planned(store, pairs, matching).items():
        key = fingerprint(asdict(matching), path.name)
        target = own.path(path.name.rsplit("-", 1)[0], key)
        planned[target] = Task(
            str(store), str(target), task.files, task.pairs, matching, matches=str(path)
        )
    count = 0
    for done in made(own, planned, missing(own, planned), verify_shard, engine):
        count += done
        told(f"{count} pairs verified")
    return sum(1 for path in planned for row in own.read(path, ["matrix"]) if len(row["matrix"]))
