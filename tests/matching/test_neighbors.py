"""Nearest neighbors: exact, mutual, and the ratio test with positions."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import caloric
import photographs
from caloric.bench.speed import setting
from caloric.matching import neighbors
from caloric.runtime import native


def test_matching_is_exact():
    """Compared with the full distance matrix: mutual matches, ratio test, and positions (FGINN)."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 24)).astype(np.float32) for n in (1500, 1300))
    b[:400] = a[:400] + 0.5 * rng.standard_normal((400, 24))
    xy = rng.uniform(0, 60, (1300, 2))
    distance = cdist(a, b)
    nearest = distance.argmin(1)
    order = np.sort(distance, 1)
    back = distance.argmin(0)
    for mutual in (False, True):
        for ratio, positions in ((None, None), (0.8, None), (0.8, xy)):
            keep = np.ones(1500, bool)
            if mutual:
                keep &= back[nearest] == np.arange(1500)
            if ratio and positions is None:
                keep &= order[:, 0] < ratio * order[:, 1]
            elif ratio:
                for i, j in enumerate(nearest):
                    distant = np.abs(xy - xy[j]).max(1) > 10
                    keep[i] &= order[i, 0] < ratio * distance[i, distant].min()
            matches = neighbors.match_descriptors(a, b, mutual=mutual, ratio=ratio, xy_b=positions)
            expected = {(i, nearest[i]) for i in np.flatnonzero(keep)}
            assert {tuple(row) for row in matches.indices} == expected
            np.testing.assert_allclose(
                matches.distances, distance[matches.indices[:, 0], matches.indices[:, 1]], atol=1e-3
            )
            assert (np.diff(matches.distances) >= 0).all()


def test_many_descriptors_are_matched_in_blocks():
    rng = np.random.default_rng(1)
    a = rng.standard_normal((33_000, 8)).astype(np.float32)
    matches = neighbors.match_descriptors(a, a[::-1], mutual=True, ratio=None)
    assert len(matches) > 32_000
    assert (matches.indices.sum(1) == 32_999).mean() > 0.999


def test_empty_and_invalid_descriptors():
    none = np.zeros((0, 8), np.float32)
    some = np.random.default_rng(0).random((5, 8)).astype(np.float32)
    for a, b in ((none, some), (some, none), (none, none)):
        assert neighbors.match_descriptors(a, b).indices.shape == (0, 2)
    assert len(neighbors.match_descriptors(some, some[:1], ratio=None)) == 1
    with pytest.raises(caloric.InputError, match="8 and 7 dimensions"):
        caloric.match(some, some[:, :7])
    with pytest.raises(caloric.InputError, match=r"shape \(n, d\)"):
        caloric.match(some[0], some)
    with pytest.raises(caloric.InputError, match="NaN"):
        caloric.match(some * np.nan, some)
    with pytest.raises(caloric.InputError, match="ratio"):
        caloric.match(some, some, ratio=1.5)
    image = photographs.gray("camera")
    a, b = (caloric.extract(image, name, max_features=800) for name in ("sift", "heat"))
    with pytest.raises(caloric.InputError, match="'sift' and of 'heat' cannot be compared"):
        caloric.match(a, b)


def test_duplicate_descriptors_match_once():
    rng = np.random.default_rng(0)
    a = rng.random((6, 8), dtype=np.float32)
    matches = caloric.match(np.concatenate([a, a]), a, ratio=None)
    np.testing.assert_array_equal(np.sort(matches.indices[:, 0]), np.arange(6))


def test_the_second_nearest_skips_any_number_of_copies_at_one_position():
    """Seven copies exceed the four rounds of the fast search."""
    rng = np.random.default_rng(1)
    a, far = rng.random((2, 1, 8), dtype=np.float32)
    copies = a + 1e-3 * rng.random((7, 8), dtype=np.float32)
    b = np.concatenate([copies, far])
    xy = np.concatenate([np.full((7, 2), 50.0) + rng.random((7, 2)), [[200.0, 200.0]]])
    assert len(neighbors.match_descriptors(a, b, ratio=0.1, xy_b=xy)) == 1
    assert len(neighbors.match_descriptors(a, b, ratio=0.1)) == 0


@pytest.mark.parametrize("offset", [0, 100, 10_000])
def test_neighbors_are_exact_far_from_the_origin(offset):
    rng = np.random.default_rng(2)
    a = rng.standard_normal((200, 64))
    b = a + 0.3 * rng.standard_normal((200, 64))
    a, b = (a + offset).astype(np.float32), (b + offset).astype(np.float32)
    matches = caloric.match(a, b, mutual=False, ratio=None)
    true = cdist(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(matches.indices[:, 1], true.argmin(1)[matches.indices[:, 0]])
    np.testing.assert_allclose(matches.distances, true[tuple(matches.indices.T)], rtol=1e-3)
    assert caloric.match(a, a, ratio=None).distances.max() == 0


@pytest.mark.parametrize("compiled", ["0", "1"])
@pytest.mark.parametrize("spread", [1, 22, 80])  # those of descriptors have 22
@pytest.mark.parametrize("dimension", [36, 128, 145])
def test_distances_of_bytes_are_exact_and_of_equal_ones_the_first_counts(
    compiled, spread, dimension
):
    rng = np.random.default_rng(spread)
    a, b = (
        rng.normal(128, spread, (n, dimension)).round().clip(0, 255).astype(np.uint8)
        for n in (300, 400)
    )
    b[100:200] = b[:100]  # equal distances
    a[:50] = b[150:200]
    squares = ((a[:, None].astype(int) - b) ** 2).sum(2)
    with setting(**{native.SETTING: compiled}):
        result = neighbors.neighbors(a.astype(np.float32), b.astype(np.float32), None, 0.0)
    np.testing.assert_array_equal(result.nearest, squares.argmin(1))
    ordered = np.sort(squares, 1)
    for distances, expected in ((result.first, ordered[:, 0]), (result.second, ordered[:, 1])):
        np.testing.assert_array_equal(distances, np.sqrt(expected.astype(np.float32)))
