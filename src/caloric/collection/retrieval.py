"""Which images show the same: a VLAD of each image's descriptors, in few dimensions.

For each of 64 centres the residuals of the descriptors nearest to it are summed and brought to unit
length, so that a façade of a thousand windows counts once. All of them together are turned onto at
most 256 principal directions. Centres and directions, the codebook, are learned from the
collection; the vectors are made by the workers, a shard for each shard of features.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import extraction, index
from caloric.collection.engines import Engine
from caloric.collection.steps import Told, made, missing, untold
from caloric.collection.store import Shards, fingerprint
from caloric.descriptor import normalise, recipes
from caloric.errors import InputError
from caloric.features import Features
from caloric.runtime import threads

CENTRES = 64
DIMENSIONS = 256
_DESCRIPTORS = 200_000  # that the centres are learned from
_IMAGES = 2048  # that the directions are learned from

CODEBOOK = (("kind", "string"), ("values", "float32s"))
VECTORS = (("name", "string"), ("vector", "float16s"))


@dataclass(frozen=True, eq=False)
class Codebook:
    """Centres (k, d) and directions (m, k·d)."""

    centres: NDArray[np.float32]
    directions: NDArray[np.float32]


def unit(features: Features) -> NDArray[np.float32]:
    """Descriptors (n, d) of unit length, of what is kept as bytes."""
    values = features.descriptors.astype(np.float32)
    kept_as_bytes = features.descriptors.dtype == np.uint8
    if kept_as_bytes and recipes.descriptor(features.descriptor).whitening is not None:
        values = values - 128  # of whitened ones 128 is zero
    return np.asarray(normalise.l2(values), np.float32)


def vlad(descriptors: NDArray[np.float32], means: NDArray[np.float32]) -> NDArray[np.float32]:
    """(k·d,) of descriptors (n, d), of unit length."""
    scores = descriptors @ means.T - 0.5 * (means * means).sum(1)
    nearest = scores.argmax(1)
    sums = np.zeros_like(means)
    np.add.at(sums, nearest, descriptors - means[nearest])
    sums = normalise.l2(sums).astype(np.float32)
    return np.asarray(normalise.l2(sums.reshape(1, -1))[0], np.float32)


def _directions(vlads: NDArray[np.float32]) -> NDArray[np.float32]:
    """The principal ones of vectors (n, k·d), of which there are as many as there can be."""
    wide = vlads.astype(np.float64)
    values, turns = np.linalg.eigh(wide @ wide.T)
    first = np.argsort(values)[::-1][:DIMENSIONS]
    first = first[values[first] > 1e-9 * values.max()]
    return np.asarray(normalise.l2(turns[:, first].T @ wide), np.float32)


@threads.single_threaded_blas
def learned(sample: Callable[[], Iterator[Features]], count: int) -> Codebook:
    """From the features of ``count`` images, which are gone through twice."""
    of_each = -(-_DESCRIPTORS // count)
    some = np.concatenate([unit(one)[:of_each] for one in sample()])
    means = index.centres(some, min(CENTRES, len(some)))
    return Codebook(means, _directions(np.stack([vlad(unit(one), means) for one in sample()])))


def codebook(store: Path) -> Path:
    """The file with the codebook of a store, learned from its first images if it is not there."""
    own, features = Shards(store / "codebook", CODEBOOK), extraction.shards(store)
    first = [
        (name, one) for name, one in extraction.listed(store).items() if one.count
    ][:_IMAGES]  # fmt: skip
    if not first:
        raise InputError(f"{store}: no features in it; extract them first")
    path = own.path("codebook", fingerprint(CENTRES, DIMENSIONS, [one.key for _, one in first]))
    if not own.whole(path):
        names, files = {name for name, _ in first}, sorted({one.path for _, one in first})

        def sample() -> Iterator[Features]:
            for file in files:
                yield from map(extraction.features_of, features.read(file, None, names))

        made = learned(sample, len(first))
        own.write(
            path,
            [{"kind": "centre", "values": row} for row in made.centres]
            + [{"kind": "direction", "values": row} for row in made.directions],
        )
    own.tidy([path])
    return path


def _read(path: Path) -> Codebook:
    rows = list(Shards(path.parent, CODEBOOK).read(path))
    parts = (
        np.stack([row["values"] for row in rows if row["kind"] == kind])
        for kind in ("centre", "direction")
    )
    return Codebook(*parts)


@dataclass(frozen=True)
class Task:
    """The vectors of one shard of features."""

    store: str
    path: str
    features: str
    codebook: str


@threads.single_threaded_blas
def make(task: Task) -> int:
    """By a worker: how many vectors."""
    book = _read(Path(task.codebook))
    turns = book.directions.astype(np.float64)
    rows = []
    for row in extraction.shards(Path(task.store)).read(Path(task.features)):
        if row["count"]:
            turned = turns @ vlad(unit(extraction.features_of(row)), book.centres)
            vector = normalise.l2(turned[None])[0].astype(np.float16)
            rows.append({"name": row["name"], "vector": vector})
    shards(Path(task.store)).write(Path(task.path), rows)
    return len(rows)


def shards(store: Path) -> Shards:
    """Those of vectors."""
    return Shards(store / "vectors", VECTORS)


def vectors(
    store: Path, engine: Engine, told: Told = untold
) -> tuple[list[str], NDArray[np.float16]]:
    """The names of all images with features, sorted, and a vector of each; made where missing."""
    store = store.absolute()
    own, book = shards(store), codebook(store)
    planned = {}
    for features in extraction.shards(store).all():
        path = own.path(features.name.split("-")[0], fingerprint(book.name, features.name))
        planned[path] = Task(str(store), str(path), str(features), str(book))
    left = missing(own, planned)
    for done, _ in enumerate(made(own, planned, left, make, engine), 1):
        told("shards of vectors", done, len(left))
    names: list[str] = []
    parts = []
    for path in planned:
        rows = list(own.read(path))
        names += [row["name"] for row in rows]
        parts += [np.stack([row["vector"] for row in rows])] if rows else []
    order = sorted(range(len(names)), key=names.__getitem__)
    return [names[i] for i in order], np.concatenate(parts)[order]


def nearest(
    store: Path, queries: list[str], count: int, engine: Engine, told: Told = untold
) -> dict[str, list[str]]:
    """The ``count`` images most like each of some, best first, themselves left out."""
    names, every = vectors(store, engine, told)
    place = {name: i for i, name in enumerate(names)}
    rows = [place[query] for query in queries]
    found = index.nearest(index.built(every), every[rows], min(count + 1, len(names)))
    return {
        query: [names[i] for i in others if i >= 0 and names[i] != query][:count]
        for query, others in zip(queries, found.tolist(), strict=True)
    }
