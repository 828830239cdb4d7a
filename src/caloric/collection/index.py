"""Nearest-neighbor search with faiss: exhaustive for few vectors, an inverted index for many.

An inverted index assigns the vectors to cells around centers; a search visits only the nearest
cells.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.runtime import threads

EXACT = 1_000_000  # maximum number of vectors for an exhaustive search
PROBES = 64  # cells visited by a search
_TRAINING = 40  # training vectors per cell
_BLOCK = 65_536  # vectors converted to float32 at a time


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError("retrieval needs faiss: pip install 'caloric[collection]'") from None
    return faiss


def centers(sample: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Return ``count`` k-means centers (count, d) of vectors (n, d), deterministically."""
    faiss = _faiss()
    faiss.omp_set_num_threads(1)  # for a fixed order of summation
    means = faiss.Kmeans(sample.shape[1], count, niter=15, seed=1, min_points_per_centroid=1)
    means.train(np.ascontiguousarray(sample))
    return np.asarray(means.centroids, np.float32)


def build(vectors: NDArray[np.float16], exact: int = EXACT) -> Any:
    """Return a faiss inner-product index of unit vectors (n, d), inverted if n > ``exact``."""
    faiss = _faiss()
    count, d = vectors.shape
    if count <= exact:
        index = faiss.IndexFlatIP(d)
    else:
        cells = 2 * math.isqrt(count)
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(d), d, cells, faiss.ScalarQuantizer.QT_fp16,
            faiss.METRIC_INNER_PRODUCT, False,
        )  # fmt: skip
        index.cp.niter, index.cp.seed, index.nprobe = 10, 1, PROBES
        sample = vectors[:: max(1, count // (_TRAINING * cells))][: _TRAINING * cells]
        faiss.omp_set_num_threads(1)
        index.train(np.ascontiguousarray(sample, np.float32))
    faiss.omp_set_num_threads(threads.count())
    for first in range(0, count, _BLOCK):
        index.add(np.ascontiguousarray(vectors[first : first + _BLOCK], np.float32))
    return index


def nearest(index: Any, queries: NDArray[np.float16], count: int) -> NDArray[np.int64]:
    """Return the indices (m, count) of the vectors nearest to queries (m, d), or -1; best first."""
    _faiss().omp_set_num_threads(threads.count())
    blocks = [
        index.search(np.ascontiguousarray(queries[first : first + _BLOCK], np.float32), count)[1]
        for first in range(0, len(queries), _BLOCK)
    ]
    return np.concatenate(blocks)
