"""Image retrieval by VLAD vectors of the descriptors of each image, reduced by PCA.

For each of 64 centers, the residuals of the descriptors nearest to it are summed and normalized, so
that repeated structure, such as the windows of a facade, counts only once. The concatenated sums
are projected onto principal directions, 256 or, if the collection is large enough to learn them,
512, of which those that many images have in common count less. The codebook (centers and
directions) is learned from the collection. Workers compute the vectors, one shard for each feature
shard.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caloric.collection import extraction, index
from caloric.collection.engines import Engine
from caloric.collection.steps import Progress, missing, no_progress, run_missing
from caloric.collection.store import Shards, fingerprint
from caloric.descriptor import normalize
from caloric.errors import InputError
from caloric.features import Features
from caloric.interop.conversion import unit_descriptors
from caloric.runtime import threads

CENTERS = 64
DIMENSIONS = 512  # of the vectors, at most
_DESCRIPTORS = 200_000  # for learning the centers
_IMAGES = 2048  # for learning the directions, at most
# The number of directions, and the exponent of the variances by which they are divided: of a small
# collection, and of one with enough images to learn from. In 5,000 rendered images, the second
# finds 99.97 instead of 99.79 % of the overlapping pairs; in few images it would find fewer.
_SMALL, _LARGE = (256, 0.0), (DIMENSIONS, 0.25)

CODEBOOK = (("kind", "string"), ("values", "float32s"))
VECTORS = (("name", "string"), ("vector", "float16s"))


@dataclass(frozen=True, eq=False)
class Codebook:
    """Centers (k, d) and principal directions (m, k·d)."""

    centers: NDArray[np.float32]
    directions: NDArray[np.float32]


def vlad(descriptors: NDArray[np.float32], means: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the VLAD vector (k·d,) of descriptors (n, d) for centers (k, d), of unit length."""
    scores = descriptors @ means.T - 0.5 * (means * means).sum(1)
    belongs = (scores.argmax(1) == np.arange(len(means))[:, None]).astype(np.float32)
    sums = belongs @ descriptors - belongs.sum(1)[:, None] * means
    sums = normalize.l2(sums).astype(np.float32)
    return np.asarray(normalize.l2(sums.reshape(1, -1))[0], np.float32)


def _directions(vlads: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the principal directions (m, k·d) of vectors (n, k·d); m is at most their rank."""
    wide = vlads.astype(np.float64)
    values, eigenvectors = np.linalg.eigh(wide @ wide.T)
    number, exponent = _settings(len(vlads))
    first = np.argsort(values)[::-1][:number]
    first = first[values[first] > 1e-9 * values.max()]
    directions = normalize.l2(eigenvectors[:, first].T @ wide)
    return np.asarray(directions / values[first, None] ** exponent, np.float32)


def _settings(images: int) -> tuple[int, float]:
    """Return the number of directions to learn from images, and the exponent of variances."""
    return _LARGE if images == _IMAGES else _SMALL


@threads.single_threaded_blas
def learn(sample: Callable[[], Iterator[Features]], count: int) -> Codebook:
    """Learn a codebook from the features of ``count`` images; ``sample`` is iterated twice."""
    per_image = -(-_DESCRIPTORS // count)
    sampled = np.concatenate([unit_descriptors(features)[:per_image] for features in sample()])
    means = index.centers(sampled, min(CENTERS, len(sampled)))
    vlads = np.stack([vlad(unit_descriptors(features), means) for features in sample()])
    return Codebook(means, _directions(vlads))


def codebook(store: Path) -> Path:
    """Return the path of the codebook of a store; learn it from the first images if missing."""
    stored, features = Shards(store / "codebook", CODEBOOK), extraction.shards(store)
    first = [
        (name, image) for name, image in extraction.stored_images(store).items() if image.count
    ][:_IMAGES]  # fmt: skip
    if not first:
        raise InputError(f"{store}: contains no features; extract them first")
    number, _ = _settings(len(first))
    path = stored.path("codebook", fingerprint(CENTERS, number, [image.key for _, image in first]))
    if not stored.is_complete(path):
        names, files = {name for name, _ in first}, sorted({image.path for _, image in first})

        def sample() -> Iterator[Features]:
            for file in files:
                yield from map(extraction.features_of, features.read(file, None, names))

        learned = learn(sample, len(first))
        stored.write(
            path,
            [{"kind": "center", "values": row} for row in learned.centers]
            + [{"kind": "direction", "values": row} for row in learned.directions],
        )
    stored.tidy([path])
    return path


@lru_cache(maxsize=1)  # for all tasks of a worker
def _read(path: Path) -> Codebook:
    rows = list(Shards(path.parent, CODEBOOK).read(path))
    parts = (
        np.stack([row["values"] for row in rows if row["kind"] == kind])
        for kind in ("center", "direction")
    )
    return Codebook(*parts)


@dataclass(frozen=True)
class Task:
    """A shard of vectors to write, with the feature shard and the codebook."""

    store: str
    path: str
    features: str
    codebook: str


@threads.single_threaded_blas
def make(task: Task) -> int:
    """Write one shard of vectors, on a worker; return the number of vectors."""
    book = _read(Path(task.codebook))
    names, vlads = [], []
    for row in extraction.shards(Path(task.store)).read(Path(task.features)):
        if row["count"]:
            names.append(row["name"])
            descriptors = unit_descriptors(extraction.features_of(row))
            vlads.append(vlad(descriptors, book.centers))
    rows = []
    if names:
        vectors = normalize.l2(np.stack(vlads) @ book.directions.T).astype(np.float16)
        rows = [
            {"name": name, "vector": vector} for name, vector in zip(names, vectors, strict=True)
        ]
    shards(Path(task.store)).write(Path(task.path), rows)
    return len(rows)


def shards(store: Path) -> Shards:
    """Return the vector shards of a store."""
    return Shards(store / "vectors", VECTORS)


def vectors(
    store: Path, engine: Engine, progress: Progress = no_progress
) -> tuple[list[str], NDArray[np.float16]]:
    """Return the sorted names of all images with features, and their vectors (n, m)."""
    store = store.absolute()
    stored, book = shards(store), codebook(store)
    planned = {}
    for features in extraction.shards(store).all():
        path = stored.path(features.name.split("-")[0], fingerprint(book.name, features.name))
        planned[path] = Task(str(store), str(path), str(features), str(book))
    tasks = missing(stored, planned)
    if tasks:
        progress("vector shards", 0, len(tasks))
    for done, _ in enumerate(run_missing(stored, planned, tasks, make, engine), 1):
        progress("vector shards", done, len(tasks))
    names: list[str] = []
    parts = []
    for path in planned:
        rows = list(stored.read(path))
        names += [row["name"] for row in rows]
        parts += [np.stack([row["vector"] for row in rows])] if rows else []
    order = sorted(range(len(names)), key=names.__getitem__)
    return [names[i] for i in order], np.concatenate(parts)[order]


def nearest(
    store: Path, queries: list[str], count: int, engine: Engine, progress: Progress = no_progress
) -> dict[str, list[str]]:
    """Return the ``count`` other images most similar to each query, best first."""
    names, all_vectors = vectors(store, engine, progress)
    rows_by_name = {name: i for i, name in enumerate(names)}
    rows = [rows_by_name[query] for query in queries]
    neighbors = index.nearest(
        index.build(all_vectors), all_vectors[rows], min(count + 1, len(names))
    )
    return {
        query: [names[i] for i in others if i >= 0 and names[i] != query][:count]
        for query, others in zip(queries, neighbors.tolist(), strict=True)
    }
