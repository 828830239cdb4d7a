"""Matches that agree with their neighbors have a high score, others do not."""

import numpy as np
import pytest
from scipy.stats import poisson

from caloric import Frames
from caloric.matching import agreement

SIZE = (600, 800)


def frames(rng, count):
    x, y = rng.uniform([20, 20], [780, 580], (count, 2)).T
    return Frames.from_xysa(x, y, rng.uniform(2, 8, count), rng.uniform(0, 6, count)).maps


def moved(maps, linear, shift):
    return np.concatenate([linear @ maps[:, :, :2], linear @ maps[:, :, 2:] + shift], 2)


def test_matches_of_a_surface_support_each_other():
    rng = np.random.default_rng(0)
    a = frames(rng, 400)
    b = moved(a, np.array([[0.8, -0.3], [0.2, 0.9]]), np.array([[40.0], [20.0]]))
    b[:, :, 2] += rng.normal(0, 1, (400, 2))
    unrelated = rng.permutation(400)[:320]
    b[unrelated] = frames(rng, 320)
    scores = agreement.scores(a, b, SIZE)
    correct = np.ones(400, bool)
    correct[unrelated] = False
    # One match in five is correct.
    assert (scores[correct] > agreement.MIN_SCORE).mean() > 0.8
    assert (scores[~correct] > agreement.MIN_SCORE).mean() < 0.02


@pytest.mark.parametrize("seed", range(3))
def test_unrelated_matches_have_no_support(seed):
    rng = np.random.default_rng(seed)
    scores = agreement.scores(frames(rng, 800), frames(rng, 800), SIZE)
    assert (scores > agreement.MIN_SCORE).mean() < 0.01


def test_rotated_frames_do_not_agree():
    """Positions alone are not enough."""
    rng = np.random.default_rng(0)
    a = frames(rng, 200)
    b = a.copy()
    b[:, :, :2] = frames(rng, 200)[:, :, :2]
    both = agreement.scores(a, a, SIZE), agreement.scores(a, b, SIZE)
    assert np.median(both[0]) > 3 * np.median(both[1])


def test_features_at_one_position_are_no_support():
    rng = np.random.default_rng(0)
    a = np.repeat(frames(rng, 20), 8, 0)
    assert agreement.scores(a, np.repeat(frames(rng, 20), 8, 0), SIZE).max() < agreement.MIN_SCORE


def test_no_matches_have_no_scores():
    rng = np.random.default_rng(0)
    for count in (0, 1, 2):
        assert agreement.scores(frames(rng, count), frames(rng, count), SIZE).shape == (count,)


@pytest.mark.parametrize("expected", [0.001, 0.05, 0.5, 3.0])
def test_the_surprise_is_the_tail_of_the_poisson_distribution(expected):
    counts = np.arange(8)
    surprise = agreement._surprise(counts, np.full(8, expected))
    exact = -np.log10(poisson.sf(counts - 1, expected))
    np.testing.assert_allclose(surprise, exact, rtol=0.05, atol=0.05)
