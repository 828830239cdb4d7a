"""Frames are predicted in the other image from verified matches around them."""

import numpy as np
import pytest

from caloric.matching import propagation
from caloric.matching.points import PointIndex
from caloric.matching.propagation import Checks, Side
from caloric.matching.refinement import Refined

LINEAR = np.array([[0.9, -0.2], [0.1, 1.1]])
SHIFT = np.array([30.0, 12.0])
SIZES = (400, 500), (500, 600)
RNG = np.random.default_rng(0)


def frames(count, rng=RNG):
    maps = np.zeros((count, 2, 3))
    maps[:, :, :2] = 3 * np.eye(2)
    maps[:, :, 2] = rng.uniform([10, 10], [490, 390], (count, 2))
    return maps


def mapped(points):
    return points @ LINEAR.T + SHIFT


def predict(maps, p, q):
    """Return the predictions, which are the same without the compiled core."""
    actual = propagation.predict(maps, PointIndex.of(p), q, SIZES)
    expected = propagation.predict(maps, PointIndex(p, None), q, SIZES)
    np.testing.assert_array_equal(actual.rows, expected.rows)
    np.testing.assert_allclose(actual.maps, expected.maps, rtol=1e-9, atol=1e-9)
    return actual


@pytest.fixture
def inliers():
    p = np.random.default_rng(1).uniform([0, 0], [500, 400], (200, 2))
    return p, mapped(p)


def test_predictions_follow_the_local_map(inliers):
    maps = frames(100)
    predicted = predict(maps, *inliers)
    assert len(predicted.rows) > 80
    chosen = maps[predicted.rows]
    np.testing.assert_allclose(predicted.maps[:, :, 2], mapped(chosen[:, :, 2]), atol=1e-6)
    np.testing.assert_allclose(predicted.maps[:, :, :2], LINEAR @ chosen[:, :, :2], atol=1e-6)


def test_nothing_is_predicted_far_from_inliers_or_outside_the_other_image(inliers):
    p, q = inliers
    left = p[:, 0] < 150
    predicted = predict(frames(300), p[left], q[left])
    assert predicted.maps[:, 0, 2].max() < 260
    outside = predict(frames(100), p, q + 1000)
    assert len(outside.rows) == 0
    assert len(predict(frames(100), p[:5], q[:5]).rows) == 0
    assert len(predict(frames(0), *inliers).rows) == 0


def test_nothing_is_predicted_across_a_depth_edge(inliers):
    p, q = inliers
    q = q + np.where(p[:, :1] > 250, 25.0, 0.0)
    maps = frames(400)
    predicted = predict(maps, p, q)
    x = maps[predicted.rows, 0, 2]
    assert len(x) > 200
    assert not (np.abs(x - 250) < 10).any()


def test_collinear_inliers_predict_nothing():
    p = np.stack([np.linspace(0, 499, 100), np.linspace(0, 399, 100)], 1)
    assert len(predict(frames(100), p, mapped(p)).rows) == 0


def propagate(inliers, moved=True, cosine=1.0, consistent=True, allowed=True, covariance=0.01):
    """Propagate with refinement and descriptors that are replaced by simple functions."""
    sides = tuple(Side(frames(150), np.tile([1.0, 0.0], (150, 1)), size) for size in SIZES)

    def refine(i, a, b):
        covariances = np.tile(covariance * np.eye(2), (len(b), 1, 1))
        return Refined(b, np.full(len(b), moved), covariances, covariances)

    def describe(i, maps):
        return lambda: np.tile([cosine, np.sqrt(1 - cosine**2)], (len(maps), 1))

    def agree(p, q):
        return consistent & (np.abs(mapped(p) - q).max(1) < 1)

    checks = Checks(agree, (lambda xy: np.full(len(xy), allowed),) * 2)
    return propagation.propagate(sides, inliers, refine, describe, checks)


def test_frames_of_both_images_are_propagated_once(inliers):
    forward, backward = propagate(inliers)
    assert len(forward.rows) > 100
    assert len(backward.rows) > 50
    for part in (forward, backward):
        assert len(np.unique(part.rows)) == len(part.rows)
        assert len(part.maps) == len(part.covariances) == len(part.descriptors) == len(part.rows)


@pytest.mark.parametrize(
    "options",
    [
        {"moved": False},
        {"cosine": 0.5},
        {"consistent": False},
        {"allowed": False},
        {"covariance": 4.0},
    ],
)
def test_each_check_rejects(inliers, options):
    assert [len(part.rows) for part in propagate(inliers, **options)] == [0, 0]


def test_infinite_covariances_are_not_precise():
    covariances = np.stack([np.diag([np.inf, np.inf]), np.full((2, 2), np.nan), 0.01 * np.eye(2)])
    assert propagation.precise(covariances).tolist() == [False, False, True]
