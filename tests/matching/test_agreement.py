"""Matches that agree with their neighbors have a high score, others do not."""

import numpy as np
import pytest
from scipy.stats import poisson

from caloric import Frames
from caloric.matching import agreement, geometry
from caloric.matching.points import PointIndex
from caloric.runtime import native

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


def both_ways(a, b, monkeypatch):
    """Return the scores by the compiled core and by NumPy."""
    expected = agreement.scores(a, b, SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(agreement.PointIndex, "of", lambda points: PointIndex(points, None))
        return expected, agreement.scores(a, b, SIZE)


@pytest.mark.skipif(native.core() is None, reason="needs the compiled core")
@pytest.mark.parametrize("count", [2, 3, 9, 30, 700])
def test_the_compiled_core_and_numpy_agree(count, monkeypatch):
    rng = np.random.default_rng(count)
    a = frames(rng, count)
    b = moved(a, np.array([[0.8, -0.3], [0.2, 0.9]]), np.array([[40.0], [20.0]]))
    b[:, :, 2] += rng.normal(0, 2, (count, 2))
    b[::2] = frames(rng, len(b[::2]))
    core, numpy = both_ways(a, b, monkeypatch)
    np.testing.assert_allclose(core, numpy, rtol=1e-9, atol=1e-9)
    assert count < 30 or core.max() > 8


@pytest.mark.skipif(native.core() is None, reason="needs the compiled core")
def test_the_surprise_of_the_core_is_that_of_numpy(monkeypatch):
    """For any tolerance, thus for means from almost 0 to the number of neighbors."""
    rng = np.random.default_rng(0)
    a = frames(rng, 300)
    for tolerance in (0.01, 1.0, 10.0, 40.0, 300.0):
        monkeypatch.setattr(agreement, "_TOLERANCE", tolerance)
        core, numpy = both_ways(a, a, monkeypatch)
        np.testing.assert_allclose(core, numpy, rtol=1e-9, atol=1e-12)


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


@pytest.mark.parametrize("count", [8, 20, 60, 150, 300])
def test_support_tells_related_from_unrelated_matches(count):
    rng = np.random.default_rng(count)
    a, other = frames(rng, count), frames(rng, count)
    b = moved(a, np.array([[0.0, -1.3], [1.3, 0.0]]), np.array([[800.0], [0.0]]))
    b[:, :, 2] += rng.normal(0, 2, (count, 2))
    assert agreement.has_support(a, b, SIZE)
    assert not agreement.has_support(a, other, SIZE)
    mixed = np.where((np.arange(count) % 2 == 0)[:, None, None], b, other)
    assert agreement.has_support(a, mixed, SIZE) or count == 8


def test_support_is_not_tested_without_orientations_or_scales():
    """Frames of other detectors may not follow the rotation and scale of the image."""
    rng = np.random.default_rng(0)
    points, ones = rng.uniform(0, 500, (50, 2)), np.ones(50)
    for sigma, angle in ((rng.uniform(1, 5, 50), 0.3 * ones), (2 * ones, rng.uniform(0, 6, 50))):
        a, b = (Frames.from_xysa(*xy.T, sigma, angle).maps for xy in (points, points[:, ::-1]))
        assert agreement.has_support(a, b, SIZE)
    many = frames(rng, 301)
    assert agreement.has_support(many, many[::-1], SIZE)


def test_a_pair_without_support_has_no_geometry():
    rng = np.random.default_rng(1)
    a, b = frames(rng, 70), frames(rng, 70)
    sizes = {"size_a": SIZE, "size": SIZE}
    estimate = geometry.estimate(
        a[:, :, 2], b[:, :, 2], model="fundamental", support=(a, b), **sizes
    )
    assert estimate.matrix is None
    assert estimate.reason == "no match agrees with its neighbors"
    assert not estimate.inliers.any()
    same = geometry.estimate(a[:, :, 2], a[:, :, 2], support=(a, a), **sizes)
    expected = geometry.estimate(a[:, :, 2], a[:, :, 2], **sizes)
    np.testing.assert_array_equal(same.matrix, expected.matrix)


@pytest.mark.parametrize("scales", [1.0, 3.0])
def test_upright_frames_do_not_agree_by_their_orientation(scales):
    """Random matches of upright frames, of one scale or of several, rarely have support."""
    rng = np.random.default_rng(0)
    a, b = np.zeros((2, 2000, 2, 3))
    for maps in (a, b):
        maps[:, :, :2] = np.eye(2) * rng.uniform(2, 2 * scales, (2000, 1, 1))
        maps[:, :, 2] = rng.uniform(0, 600, (2000, 2))
    assert (agreement.scores(a, b, (600, 600)) > agreement.MIN_SCORE).mean() < 0.02
