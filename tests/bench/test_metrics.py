"""The metrics of the benchmarks."""

import numpy as np
import pytest

from caloric.bench import metrics


def test_average_precision():
    distance = np.array([0.3, 0.1, 0.2, 0.4])
    is_correct = np.array([True, True, False, False])
    # Ranked: correct, incorrect, correct, incorrect. Precisions 1 and 2/3; 3 were possible.
    assert metrics.average_precision(distance, is_correct, 3) == pytest.approx((1 + 2 / 3) / 3)
    assert metrics.average_precision(distance, is_correct & False, 3) == 0
    assert metrics.average_precision(distance, is_correct, 0) == 0


def test_a_match_is_correct_if_it_is_among_the_true_pairs():
    truth = np.array([[0, 2], [0, 3], [2, 0]])
    is_correct = metrics.correct_matches(np.array([3, 0, 1]), truth)
    assert is_correct.tolist() == [True, False, False]
    assert not metrics.correct_matches(np.array([3, 0, 1]), np.zeros((0, 2), int)).any()


def test_bootstrap_intervals_cover_the_mean():
    """About 95% of the intervals contain the true mean."""
    rng = np.random.default_rng(0)
    intervals = [metrics.bootstrap(rng.normal(1, 2, 40)) for _ in range(200)]
    assert 0.89 < np.mean([i.low <= 1 <= i.high for i in intervals]) < 0.985
    assert metrics.bootstrap(np.full(9, 0.25)) == metrics.Interval(0.25, 0.25, 0.25)
    # Equal values of a scene count once if scenes are resampled.
    values, scenes = np.repeat(rng.normal(0, 1, 6), 20), [str(k // 20) for k in range(120)]
    by_pair, by_scene = metrics.bootstrap(values), metrics.bootstrap(values, scenes)
    assert by_scene.high - by_scene.low > 2 * (by_pair.high - by_pair.low)
    assert by_scene.mean == pytest.approx(by_pair.mean)


def test_corner_error_and_matching_accuracy():
    shifted = np.array([[1.0, 0, 3], [0, 1, 4], [0, 0, 1]])
    assert metrics.corner_error(shifted, np.eye(3), (100, 200)) == pytest.approx(5)
    assert metrics.corner_error(None, np.eye(3), (100, 200)) == np.inf
    p = np.array([[0.0, 0], [10, 10], [20, 20]])
    shares = metrics.matching_accuracy(
        p, p + np.array([[0.5, 0], [2, 0], [9, 0]]), np.eye(3), (1, 3, 5)
    )
    assert shares == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert metrics.matching_accuracy(p[:0], p[:0], np.eye(3), (1, 3)) == [0, 0]
