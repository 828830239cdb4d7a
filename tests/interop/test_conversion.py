"""Descriptors as SIFT-like bytes, matched as in COLMAP."""

import numpy as np
import pytest

import caloric
from brick import correct, views
from caloric.interop import conversion


def colmap_nearest(a, b, ratio=0.8):
    """Match as COLMAP's brute-force matcher does: by angles, from dot products of bytes."""
    dots = a.astype(np.int64) @ b.astype(np.int64).T
    angle = np.arccos(np.minimum(dots / 512**2, 1.0))

    def best(distance):
        order = np.argsort(distance, 1, kind="stable")[:, :2]
        first, second = np.take_along_axis(distance, order, 1).T
        return np.where((first < 0.7) & (first < ratio * second), order[:, 0], -1)

    forth, back = best(angle), best(angle.T)
    rows = np.flatnonzero((forth >= 0) & (back[forth] == np.arange(len(a))))
    return np.stack([rows, forth[rows]], 1)


@pytest.mark.parametrize("name", ["caloric", "caloric-unlearned"])
def test_colmaps_matcher_matches_sift_bytes(name):
    first, second, change = views()
    a, b = caloric.extract([first, second], name, max_features=600, dtype="uint8")
    values = [conversion.sift_bytes(f) for f in (a, b)]
    lengths = np.linalg.norm(values[0].astype(float), axis=1)
    np.testing.assert_allclose(lengths, 512, rtol=0.02)
    matches = colmap_nearest(*values)
    assert correct(a, b, matches, change) > 100
    assert correct(a, b, matches, change) > 0.9 * len(matches)
    with pytest.raises(caloric.InputError, match="128 dimensions"):
        conversion.sift_bytes(caloric.extract(first, "caloric-64", max_features=10))
