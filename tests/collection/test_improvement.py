"""Refined positions are kept only where the matches agree better than before."""

import numpy as np
import pytest

from caloric.collection import improvement, tracks
from caloric.collection.tracks import PairMatches

NUMBER = 60
NAMES = ["a", "b", "c"]


def views(seed, nearest=6, farthest=10):
    """Return the positions (n, 2) of random points in three images."""
    rng = np.random.default_rng(seed)
    xyz = rng.uniform([-2, -2, nearest], [2, 2, farthest], (NUMBER, 3))
    result = {}
    for i, name in enumerate(NAMES):
        angle = 0.1 * i
        turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0],
                         [-np.sin(angle), 0, np.cos(angle)]])  # fmt: skip
        points = xyz @ turn.T - [0.8 * i, 0.1 * i, 0]
        result[name] = 800 * points[:, :2] / points[:, 2:] + 400
    return result


def matched():
    index = np.arange(NUMBER, dtype=np.uint32)
    pairs = [
        PairMatches(a, b, np.stack([index, index], 1), np.zeros(NUMBER, np.float32))
        for a, b in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    return pairs, tracks.join(dict.fromkeys(NAMES, NUMBER), pairs)


def moved_to(positions, names=("b", "c")):
    index = np.arange(NUMBER)
    return {name: (index, positions[name]) for name in names}


@pytest.mark.parametrize("seed", range(3))
def test_precise_positions_are_kept_and_tracks_that_move_away_are_not(seed):
    rng, exact = np.random.default_rng(seed), views(seed)
    noisy = {name: xy + rng.normal(0, 0.5, xy.shape) for name, xy in exact.items()}
    refined = {name: xy.copy() for name, xy in exact.items()} | {"a": noisy["a"]}
    refined["b"][:6] += [0, 6.0]  # away from the epipolar lines
    pairs, joined = matched()
    kept = improvement.improved(noisy, moved_to(refined), pairs, joined)
    for name in ("b", "c"):
        rows, xy = kept[name]
        assert not np.isin(rows, np.arange(6)).any()  # all observations of these tracks
        assert len(rows) >= 0.9 * (NUMBER - 6)
        np.testing.assert_array_equal(xy, refined[name][rows])


def test_images_whose_matches_agree_less_in_total_are_not_changed():
    rng, exact = np.random.default_rng(0), views(0)
    # Most tracks lose less than is evidence against a single one.
    worse = {name: xy + rng.normal(0, 0.7, xy.shape) for name, xy in exact.items()}
    pairs, joined = matched()
    assert improvement.improved(exact, moved_to(worse), pairs, joined) == {}
    better = improvement.improved(worse, moved_to(exact, NAMES), pairs, joined)
    assert sum(len(rows) for rows, _ in better.values()) > 0.9 * 3 * NUMBER


@pytest.mark.parametrize("seed", range(8))
def test_a_flat_scene(seed):
    # Many epipolar geometries fit it, and each fit has other residuals.
    rng, exact = np.random.default_rng(seed), views(seed, 8, 8)
    noisy, refined = (
        {name: xy + rng.normal(0, noise, xy.shape) for name, xy in exact.items()}
        for noise in (0.1, 0.02)
    )
    pairs, joined = matched()
    kept = improvement.improved(noisy, moved_to(refined, NAMES), pairs, joined)
    assert sum(len(rows) for rows, _ in kept.values()) > 0.9 * 3 * NUMBER
    assert improvement.improved(refined, moved_to(noisy, NAMES), pairs, joined) == {}


def test_a_single_pair():
    rng, exact = np.random.default_rng(1), views(1)
    noisy = exact["b"] + rng.normal(0, 0.5, (NUMBER, 2))
    refined, moved = exact["b"].copy(), np.ones(NUMBER, bool)
    refined[:6] += [0, 6.0]
    moved[-5:] = False
    kept = improvement.improved_pair(exact["a"], noisy, refined, moved)
    assert not kept[:6].any()
    assert not kept[-5:].any()
    assert kept[6:-5].mean() > 0.9
    assert not improvement.improved_pair(exact["a"], exact["b"], noisy, moved).any()


def test_pairs_with_few_matches_are_not_judged():
    pairs, _ = matched()
    few = [PairMatches(p.name_a, p.name_b, p.matches[:8], p.distances[:8]) for p in pairs]
    joined = tracks.join(dict.fromkeys(NAMES, NUMBER), few)
    moved = {"b": (np.arange(8), views(0)["b"][:8] + 3)}
    kept = improvement.improved(views(0), moved, few, joined)
    np.testing.assert_array_equal(kept["b"][1], moved["b"][1])
    assert improvement.improved(views(0), {}, [], joined) == {}
