"""Nearest-neighbor search."""

import numpy as np
import pytest

from caloric.collection import index, store

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_an_inverted_index_has_a_recall_above_90_percent():
    rng = np.random.default_rng(0)
    clusters = rng.standard_normal((300, 16)).astype(np.float32)
    vectors = np.repeat(clusters, 10, 0) + 0.1 * rng.standard_normal((3000, 16)).astype(np.float32)
    vectors = (vectors / np.linalg.norm(vectors, axis=1)[:, None]).astype(np.float16)
    exact = index.nearest(index.build(vectors), vectors[:200], 10)
    inverted = index.nearest(index.build(vectors, exact=0), vectors[:200], 10)
    np.testing.assert_array_equal(exact[:, 0] // 10, np.arange(200) // 10)
    recall = [len(set(a) & set(b)) / 10 for a, b in zip(exact, inverted, strict=True)]
    assert np.mean(recall) > 0.9
