"""Matching on a device agrees with the CPU, for one pair and for many."""

import numpy as np
import pytest
import torch

import caloric
from caloric.gpu import neighbors as gpu_neighbors
from torch_device import HERE, photograph


@pytest.mark.parametrize("options", [{}, {"ratio": None}, {"mutual": False, "ratio": 0.95}])
def test_matches_agree_with_the_cpu(options):
    a = caloric.extract(photograph(size=(260, 300)), max_features=300)
    b = caloric.extract(np.rot90(photograph(size=(260, 300))).copy(), max_features=250)
    expected = caloric.match(a, b, **options)
    matches = caloric.match(a, b, device=HERE, **options)
    np.testing.assert_array_equal(matches.indices, expected.indices)
    np.testing.assert_allclose(matches.distances, expected.distances, atol=1e-5)
    expected = caloric.match(a.descriptors, b.descriptors, **options)
    matches = caloric.match(a.descriptors, b.descriptors, device=HERE, **options)
    np.testing.assert_array_equal(matches.indices, expected.indices)


def test_later_searches_of_one_pair_do_not_see_earlier_ones():
    """On a GPU, a recorded graph searches sets that are padded to the same size."""
    sets = [
        caloric.extract(photograph(name, (300, 260)), max_features=count)
        for name, count in (("astronaut", 600), ("coffee", 90), ("camera", 300))
    ]
    for a, b in ((0, 2), (2, 0), (1, 0), (0, 1), (1, 1), (2, 1)):
        expected = caloric.match(sets[a], sets[b], ratio=0.95)
        matches = caloric.match(sets[a], sets[b], ratio=0.95, device=HERE)
        np.testing.assert_array_equal(matches.indices, expected.indices)
        np.testing.assert_allclose(matches.distances, expected.distances, atol=1e-5)


def test_padding_does_not_change_rows():
    rng = np.random.default_rng(0)
    values = torch.tensor(rng.random((30, 16), np.float32))
    padded, used = torch.zeros((64, 16)), torch.zeros(64, dtype=torch.bool)
    at = [*range(12), *range(32, 50)]
    padded[at], used[at] = values, True
    expected = gpu_neighbors._Rows.of(values, None)
    rows = gpu_neighbors._Rows.of(padded, None, used)
    assert rows.largest == expected.largest
    np.testing.assert_allclose(rows.values[at], expected.values, atol=1e-6)
    assert (rows.values[~used] == 0).all()


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("count", [1, 1023, 1024, 1025])
def test_recorded_searches_of_any_size_agree_with_the_cpu(count):
    """Sets are padded to 1,024 or 2,048 rows; the second search records a graph."""
    rng, shared = np.random.default_rng(count), min(count, 300)
    for _ in range(3):
        a, b = rng.random((count, 64), np.float32), rng.random((700, 64), np.float32)
        b[:shared] = a[:shared] + 0.05 * rng.random((shared, 64), np.float32)
        for first, second in ((a, b), (b, a)):
            expected = caloric.match(first, second, ratio=None)
            matches = caloric.match(first, second, ratio=None, device="cuda")
            np.testing.assert_array_equal(matches.indices, expected.indices)
            np.testing.assert_allclose(matches.distances, expected.distances, atol=1e-5)


def test_equal_descriptors_match_as_on_the_cpu():
    rng = np.random.default_rng(0)
    few = rng.standard_normal((6, 16)).astype(np.float32)
    a, b = few[[0, 0, 1, 2, 3]], few[[1, 0, 0, 4, 3]]
    for mutual in (True, False):
        expected = caloric.match(a, b, ratio=None, mutual=mutual)
        matches = caloric.match(a, b, ratio=None, mutual=mutual, device=HERE)
        np.testing.assert_array_equal(matches.indices, expected.indices)


def test_a_list_of_pairs_gives_the_matches_of_single_calls():
    names = (("astronaut", 120), ("coffee", 90), ("camera", 60))
    a, b, c = (
        caloric.extract(photograph(name, (160, 150)), max_features=count) for name, count in names
    )
    empty = a[:0]
    pairs = [(a, b), (c, a), (b, b), (empty, a), (a, empty), (a.descriptors, b.descriptors)]
    for device in ("cpu", HERE):
        results = caloric.match(pairs, ratio=0.95, device=device)
        assert len(results) == len(pairs)
        for pair, matches in zip(pairs, results, strict=True):
            expected = caloric.match(*pair, ratio=0.95)
            np.testing.assert_array_equal(matches.indices, expected.indices)
            np.testing.assert_allclose(matches.distances, expected.distances, atol=1e-5)
    assert caloric.match([], device=HERE) == []
    with pytest.raises(caloric.InputError, match="list of such pairs"):
        caloric.match([a, b, c], device=HERE)
    with pytest.raises(caloric.InputError, match="one pair at a time"):
        caloric.match(pairs, refine=True)
    broken = a.descriptors.copy()
    broken[3, 4] = np.nan
    with pytest.raises(caloric.InputError, match="second set: descriptors contain NaN"):
        caloric.match(a.descriptors, broken, device=HERE)
    with pytest.raises(caloric.InputError, match="dimensions"):
        caloric.match([(a.descriptors, b.descriptors[:, :64])], device=HERE)


def test_groups_of_pairs_have_a_bounded_size(monkeypatch):
    monkeypatch.setattr(gpu_neighbors, "_BYTES", 40_000)
    sets = [gpu_neighbors.Set(np.zeros((n, 8), np.float32)) for n in (100, 1000, 10)]
    pairs = [(i, j) for i in range(3) for j in range(3)] * 3
    groups = list(gpu_neighbors._groups(sets, pairs))
    assert [pair for group in groups for pair in group] == pairs
    assert 1 < max(map(len, groups)) < len(pairs)
