"""Which images show the same: a VLAD of their descriptors, compared by faiss.

For each of 64 centres the residuals of the descriptors nearest to it are summed and brought to unit
length, so that a façade of a thousand windows counts once; all of them together are the vector.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import normalise, recipes
from caloric.collection import extraction
from caloric.errors import InputError
from caloric.features import Features

CENTRES = 64
_LEARNED = 200_000  # descriptors
_OF_EACH = 2000


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError("retrieval needs faiss: pip install 'caloric[collection]'") from None
    return faiss


def _rows(store: Path) -> Iterator[tuple[str, Features]]:
    own = extraction.shards(store)
    for path in own.all():
        for row in own.read(path):
            if row["count"]:
                yield row["name"], extraction.features_of(row)


def unit(features: Features) -> NDArray[np.float32]:
    """Descriptors (n, d) of unit length, of what is kept as bytes."""
    values = features.descriptors.astype(np.float32)
    kept_as_bytes = features.descriptors.dtype == np.uint8
    if kept_as_bytes and recipes.descriptor(features.descriptor).whitening is not None:
        values = values - 128  # of whitened ones 128 is zero
    return np.asarray(normalise.l2(values), np.float32)


def centres(store: Path) -> NDArray[np.float32]:
    """(64, d), learned from descriptors of all images, the same every time."""
    faiss = _faiss()
    some = [unit(found)[:_OF_EACH] for _, found in _rows(store)]
    if not some:
        raise InputError(f"{store}: no features in it; extract them first")
    sample = np.concatenate(some)
    sample = np.ascontiguousarray(sample[:: -(-len(sample) // _LEARNED)])
    count = min(CENTRES, len(sample))
    faiss.omp_set_num_threads(1)  # a sum has one order
    means = faiss.Kmeans(sample.shape[1], count, niter=15, seed=1, min_points_per_centroid=1)
    means.train(sample)
    return np.asarray(means.centroids, np.float32)


def vlad(descriptors: NDArray[np.float32], means: NDArray[np.float32]) -> NDArray[np.float32]:
    """(k·d,) of descriptors (n, d), of unit length."""
    scores = descriptors @ means.T - 0.5 * (means * means).sum(1)
    nearest = scores.argmax(1)
    sums = np.zeros_like(means)
    np.add.at(sums, nearest, descriptors - means[nearest])
    sums = normalise.l2(sums).astype(np.float32)
    return np.asarray(normalise.l2(sums.reshape(1, -1))[0], np.float32)


def vectors(store: Path) -> tuple[list[str], NDArray[np.float32]]:
    """The names of all images, and a vector of each."""
    means = centres(store)
    found = {name: vlad(unit(own), means) for name, own in _rows(store)}
    names = sorted(found)
    return names, np.stack([found[name] for name in names])


def nearest(store: Path, queries: list[str], count: int) -> dict[str, list[str]]:
    """The ``count`` images most like each of some, best first, themselves left out."""
    faiss = _faiss()
    names, every = vectors(store)
    index = faiss.IndexFlatIP(every.shape[1])
    index.add(every)
    rows = [names.index(query) for query in queries]
    _, found = index.search(every[rows], min(count + 1, len(names)))
    return {
        query: [names[i] for i in others if names[i] != query][:count]
        for query, others in zip(queries, found, strict=True)
    }
