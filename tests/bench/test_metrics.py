"""The measures of the benchmarks, by hand."""

import numpy as np
import pytest

from caloric.bench import metrics


def test_average_precision_by_hand():
    distance = np.array([0.3, 0.1, 0.2, 0.4])
    right = np.array([True, True, False, False])
    # Ranked: right, wrong, right, wrong: precisions 1 and 2/3, of three that were possible.
    assert metrics.average_precision(distance, right, 3) == pytest.approx((1 + 2 / 3) / 3)
    assert metrics.average_precision(distance, right & False, 3) == 0
    assert metrics.average_precision(distance, right, 0) == 0


def test_correct_matches():
    truth = np.array([[0, 2], [0, 3], [2, 0]])
    right = metrics.correct_matches(np.array([3, 0, 1]), truth)
    assert right.tolist() == [True, False, False]
    assert not metrics.correct_matches(np.array([3, 0, 1]), np.zeros((0, 2), int)).any()


def test_bootstrap_covers_the_mean():
    """Of 95 % intervals of samples of 40, about 95 % hold the true mean."""
    rng = np.random.default_rng(0)
    found = [metrics.bootstrap(rng.normal(1, 2, 40)) for _ in range(200)]
    assert 0.89 < np.mean([i.low <= 1 <= i.high for i in found]) < 0.985
    assert metrics.bootstrap(np.full(9, 0.25)) == metrics.Interval(0.25, 0.25, 0.25)
    # Pairs of a scene that say the same thing count once.
    values, scenes = np.repeat(rng.normal(0, 1, 6), 20), [str(k // 20) for k in range(120)]
    alone, whole = metrics.bootstrap(values), metrics.bootstrap(values, scenes)
    assert whole.high - whole.low > 2 * (alone.high - alone.low)
    assert whole.mean == pytest.approx(alone.mean)


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
