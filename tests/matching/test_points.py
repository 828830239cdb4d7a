"""The search for nearest points gives the same distances with the compiled core and with SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.matching.points import PointIndex
from caloric.runtime import native

ARRANGEMENTS = ["uniform", "repeated", "column", "one position", "scales", "flat"]


def arranged(kind, rng, count):
    """Return points (count, 2) in an arrangement that is difficult for a grid."""
    uniform = rng.uniform(0, 1000, (count, 2))
    return {
        "uniform": uniform,
        "repeated": np.round(uniform, -2),
        "column": uniform * (0, 1) + (5, 0),
        "one position": np.repeat(uniform[:1], count, 0),
        "scales": rng.normal(0, 1, (count, 2)) * 10.0 ** rng.uniform(-8, 8, (count, 1)),
        "flat": uniform * (1e-6, 1e6),
    }[kind]


@pytest.mark.skipif(native.core() is None, reason="needs the compiled core")
@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(ARRANGEMENTS),
    seed=st.integers(0, 10_000), size=st.integers(1, 300), queries=st.integers(0, 60),
    data=st.data(),
)  # fmt: skip
def test_nearest_points_agree_with_scipy(kind, seed, size, queries, data):
    rng = np.random.default_rng(seed)
    known, asked = arranged(kind, rng, size), rng.uniform(-500, 1500, (queries, 2))
    count = data.draw(st.integers(1, min(size, 30)))
    distances, indices = PointIndex.of(known).nearest(asked, count)
    expected, _ = PointIndex(known, None).nearest(asked, count)
    np.testing.assert_allclose(distances, expected, rtol=1e-12, atol=1e-12)
    difference = known[indices] - asked[:, None]
    np.testing.assert_allclose(np.hypot(*np.moveaxis(difference, 2, 0)), distances, rtol=1e-12)
    assert all(len(set(row)) == count for row in indices)


@pytest.mark.parametrize("size", [(1000, 1000), (0, 1000), (1000, 0), (10, 1000)])
def test_many_queries_in_blocks_around_points_of_any_shape(size):
    rng = np.random.default_rng(0)
    known, asked = rng.uniform(0, size, (3000, 2)), rng.uniform(-500, 1500, (5000, 2))
    distances, indices = PointIndex.of(known).nearest(asked, 9)
    expected, rows = PointIndex(known, None).nearest(asked, 9)
    np.testing.assert_allclose(distances, expected, rtol=1e-12)
    np.testing.assert_array_equal(indices, rows)


@pytest.mark.skipif(native.core() is None, reason="needs the compiled core")
@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(ARRANGEMENTS),
    seed=st.integers(0, 10_000), size=st.integers(1, 300), queries=st.integers(0, 60),
    radius=st.sampled_from([0.0, 1.0, 30.0, 2000.0]),
)  # fmt: skip
def test_points_within_a_radius_are_those_of_the_nearest_distances(
    kind, seed, size, queries, radius
):
    rng = np.random.default_rng(seed)
    known = arranged(kind, rng, size)
    asked = np.concatenate([
        rng.uniform(-500, 1500, (queries, 2)), known + rng.normal(0, 1, known.shape), known,
        known + np.array([radius, 0]),
    ])  # fmt: skip
    index = PointIndex.of(known)
    distances, _ = index.nearest(asked, 1)
    np.testing.assert_array_equal(index.within(asked, radius), distances[:, 0] <= radius)


def test_thousands_of_neighbors():
    points = np.random.default_rng(0).uniform(0, 500, (4000, 2))
    distances, _ = PointIndex.of(points).nearest(points[:3], 3500)
    expected = np.sort(np.linalg.norm(points[:3, None] - points, axis=2), axis=1)[:, :3500]
    np.testing.assert_allclose(distances, expected, rtol=1e-12)


def test_without_points_nothing_is_near():
    distances, _ = PointIndex.of(np.zeros((0, 2))).nearest(np.zeros((3, 2)), 1)
    assert np.isinf(distances).all()
    assert not PointIndex.of(np.zeros((0, 2))).within(np.zeros((3, 2)), 100.0).any()


def test_of_equally_distant_points_the_first_are_found():
    if native.core() is None:
        pytest.skip("SciPy's order is not defined")
    _, indices = PointIndex.of(np.ones((50, 2))).nearest(np.zeros((1, 2)), 5)
    assert indices.tolist() == [[0, 1, 2, 3, 4]]


def test_dense_clusters_are_searched_by_scipy():
    rng = np.random.default_rng(0)
    known = np.concatenate([rng.normal(0, 1e-3, (500, 2)), rng.uniform(0, 1000, (20, 2))])
    index = PointIndex.of(known)
    assert index.grid is None
    assert (index.nearest(known, 3)[0][:, 0] == 0).all()


def test_points_that_are_not_finite_are_rejected():
    with pytest.raises(ValueError, match="finite"):
        PointIndex.of(np.full((3, 2), np.nan)).nearest(np.zeros((1, 2)), 1)
