"""The nearest of many vectors, by faiss: all are compared where they are few, else the likely ones.

Many: the vectors lie in cells around centres, and a search looks into the nearest cells alone.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.runtime import threads

EXACT = 1_000_000  # vectors, up to which all are compared
PROBES = 64  # cells looked into
_LEARNED = 40  # vectors a cell, that the cells are learned from
_BLOCK = 65_536  # vectors in float32 at a time


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError("retrieval needs faiss: pip install 'caloric[collection]'") from None
    return faiss


def centres(sample: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """(count, d) of vectors (n, d), by k-means, the same every time."""
    faiss = _faiss()
    faiss.omp_set_num_threads(1)  # a sum has one order
    means = faiss.Kmeans(sample.shape[1], count, niter=15, seed=1, min_points_per_centroid=1)
    means.train(np.ascontiguousarray(sample))
    return np.asarray(means.centroids, np.float32)


def built(every: NDArray[np.float16], exact: int = EXACT) -> Any:
    """A faiss index of unit vectors (n, d) by inner product; of more than ``exact``, in cells."""
    faiss = _faiss()
    count, d = every.shape
    if count <= exact:
        index = faiss.IndexFlatIP(d)
    else:
        cells = 2 * math.isqrt(count)
        index = faiss.IndexIVFScalarQuantizer(
            faiss.IndexFlatIP(d), d, cells, faiss.ScalarQuantizer.QT_fp16,
            faiss.METRIC_INNER_PRODUCT, False,
        )  # fmt: skip
        index.cp.niter, index.cp.seed, index.nprobe = 10, 1, PROBES
        sample = every[:: max(1, count // (_LEARNED * cells))][: _LEARNED * cells]
        faiss.omp_set_num_threads(1)
        index.train(np.ascontiguousarray(sample, np.float32))
    faiss.omp_set_num_threads(threads.count())
    for first in range(0, count, _BLOCK):
        index.add(np.ascontiguousarray(every[first : first + _BLOCK], np.float32))
    return index


def nearest(index: Any, queries: NDArray[np.float16], count: int) -> NDArray[np.int64]:
    """The ``count`` nearest of each query (m, d), best first, (m, count); -1 where none is."""
    _faiss().omp_set_num_threads(threads.count())
    found = [
        index.search(np.ascontiguousarray(queries[first : first + _BLOCK], np.float32), count)[1]
        for first in range(0, len(queries), _BLOCK)
    ]
    return np.concatenate(found)
