"""Robust estimators of geometries."""

import cv2
import numpy as np
import pytest

from caloric.matching import geometry, robust
from caloric.matching.fitting import Correspondences

MATRIX = np.array([[1.1, 0.05, 20.0], [-0.04, 0.95, -8.0], [1e-4, -5e-5, 1.0]])


@pytest.fixture
def matches():
    rng = np.random.default_rng(0)
    p = rng.uniform(0, 500, (200, 2))
    q = cv2.perspectiveTransform(p[:, None], MATRIX)[:, 0] + rng.normal(0, 0.1, (200, 2))
    q[:60] = rng.uniform(0, 500, (60, 2))
    return p, q


def test_the_default_estimator_finds_the_model(matches):
    matrix = robust.estimate(Correspondences(*matches, "homography"), 2.0, 0)
    np.testing.assert_allclose(matrix / matrix[2, 2], MATRIX, rtol=2e-2, atol=2e-5)


def test_another_estimator_can_be_used(matches):
    calls = []

    def by_ransac(given, threshold, seed):
        calls.append((len(given), given.model, threshold, seed))
        return cv2.findHomography(given.p, given.q, cv2.RANSAC, threshold)[0]

    ours = geometry.estimate(*matches)
    other = geometry.estimate(*matches, threshold=3.0, seed=4, estimator=by_ransac)
    assert calls == [(200, "homography", 3.0, 4)]
    assert other.confidence > 0.9
    assert (ours.inliers[60:] & other.inliers[60:]).sum() >= 135


def test_an_estimator_that_finds_nothing_gives_no_geometry(matches):
    nothing = geometry.estimate(*matches, estimator=lambda *_: None)
    assert nothing.matrix is None
    assert not nothing
