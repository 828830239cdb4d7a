"""Matches of two images and their geometry."""

import numpy as np
import pytest

from caloric.matching.two_views import TwoViews


def pair(matrix, model):
    matches = np.array([[0, 3], [1, 2], [5, 4]], np.uint32)
    distances, inliers = np.array([1, 2, 3], np.float32), np.array([0, 2], np.uint32)
    return TwoViews("a", "b", matches, distances, inliers, matrix, model)


@pytest.mark.parametrize("model", ["homography", "fundamental"])
def test_the_swapped_pair_has_the_inverse_geometry(model):
    matrix = np.array([[1.1, 0.2, 3], [-0.1, 0.9, 4], [0.001, 0.002, 1]])
    x, y = np.array([10.0, 20, 1]), np.array([5.0, 6, 1])
    back = pair(matrix, model).swapped()
    assert (back.name_a, back.name_b, back.model) == ("b", "a", model)
    np.testing.assert_array_equal(back.inlier_matches, [[3, 0], [4, 5]])
    if model == "homography":
        np.testing.assert_allclose(back.matrix @ (matrix @ x), x)
    else:
        assert x @ back.matrix @ y == pytest.approx(y @ matrix @ x)


def test_a_pair_may_be_verified_without_a_geometry():
    assert pair(None, "fundamental").is_verified
    assert not pair(None, "").is_verified
    assert pair(None, "").swapped().matrix is None
