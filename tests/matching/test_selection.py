"""The kind of model is chosen from the matches."""

import cv2
import numpy as np
import pytest

from caloric.matching import selection

K = np.array([[900.0, 0, 500], [0, 900, 400], [0, 0, 1]])
TURN = cv2.Rodrigues(np.array([0.05, 0.2, -0.1]))[0]
SIZES = {"size": (800, 1000), "size_a": (800, 1000)}


def views(points, rotation, translation, noise=0.3):
    """Return the images (n, 2) of points (n, 3) in two cameras."""
    moved = points @ rotation.T + translation
    p, q = ((v @ K.T)[:, :2] / v[:, 2:] for v in (points, moved))
    return p, q + np.random.default_rng(1).normal(0, noise, q.shape)


def scene(depth, n=300):
    rng = np.random.default_rng(0)
    xy = rng.uniform([-2, -1.5], [2, 1.5], (n, 2))
    return np.column_stack([xy, depth(xy, rng)])


def test_a_plane_is_recognized():
    p, q = views(scene(lambda xy, _: 5 + 0.3 * xy[:, 0]), TURN, np.array([1.0, 0, 0]))
    result = selection.estimate(p, q, **SIZES)
    assert result.model == "homography"
    assert result
    assert result.reason.startswith("homography: the scene is planar or the camera only rotated")


def test_relief_of_few_pixels_is_no_parallax():
    p, q = views(
        scene(lambda xy, rng: 5 + 0.003 * rng.normal(size=len(xy))), TURN, np.array([1.0, 0, 0])
    )
    result = selection.estimate(p, q, **SIZES)
    assert result.model == "homography"
    assert result.alternative.model == "fundamental"
    assert len(result.alternative) > 200


@pytest.mark.parametrize("moving", [0, 60])
def test_a_fixed_camera_is_recognized(moving):
    """A moving object agrees with some epipolar geometry of the background, which is static."""
    rng = np.random.default_rng(0)
    p = rng.uniform([0, 0], [1000, 800], (240, 2))
    q = p + rng.normal(0, 0.1, p.shape)
    p[:moving] = rng.uniform([300, 300], [500, 450], (moving, 2))
    q[:moving] = p[:moving] @ [[1.05, 0.1], [-0.1, 1.05]] + [60, -20]
    result = selection.estimate(p, q, **SIZES)
    assert result
    assert result.model == "homography"
    np.testing.assert_allclose(result.matrix, np.eye(3), atol=0.2)
    assert "the camera did not move" in result.reason
    assert ("part of the image did" in result.reason) == (moving > 0)


def test_a_rotating_camera_is_recognized():
    p, q = views(scene(lambda xy, rng: rng.uniform(4, 9, len(xy))), TURN, np.zeros(3))
    result = selection.estimate(p, q, **SIZES)
    assert result.model == "homography"
    assert result


@pytest.mark.parametrize("intrinsics", [None, (K, K)])
def test_depth_is_recognized(intrinsics):
    p, q = views(scene(lambda xy, rng: rng.uniform(4, 9, len(xy))), TURN, np.array([1.0, 0, 0]))
    result = selection.estimate(p, q, intrinsics=intrinsics, **SIZES)
    assert result.model == ("fundamental" if intrinsics is None else "essential")
    assert result
    assert "the scene has depth" in result.reason


def test_a_plane_with_parallax_is_recognized():
    def depth(xy, rng):
        return np.where(xy[:, 0] > 1, rng.uniform(3, 4, len(xy)), 5.0)

    p, q = views(scene(depth), TURN, np.array([1.0, 0, 0]))
    result = selection.estimate(p, q, **SIZES)
    assert result.model == "fundamental"
    assert "most of the scene is planar, with parallax" in result.reason


def test_unrelated_matches_have_no_reliable_model():
    p, q = np.random.default_rng(0).uniform(0, 800, (2, 200, 2))
    result = selection.estimate(p, q, **SIZES)
    assert not result
    assert "chance" in result.reason
