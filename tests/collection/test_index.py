"""The search for the nearest vectors."""

import numpy as np
import pytest

from caloric.collection import index, store

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_in_cells_the_nearest_are_mostly_found():
    rng = np.random.default_rng(0)
    places = rng.standard_normal((300, 16)).astype(np.float32)
    every = np.repeat(places, 10, 0) + 0.1 * rng.standard_normal((3000, 16)).astype(np.float32)
    every = (every / np.linalg.norm(every, axis=1)[:, None]).astype(np.float16)
    exact = index.nearest(index.build(every), every[:200], 10)
    cells = index.nearest(index.build(every, exact=0), every[:200], 10)
    np.testing.assert_array_equal(exact[:, 0] // 10, np.arange(200) // 10)
    same = [len(set(a) & set(b)) / 10 for a, b in zip(exact, cells, strict=True)]
    assert np.mean(same) > 0.9
