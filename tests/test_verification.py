"""Two-view geometry of features, and of points of any matcher."""

import re

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
import photographs

CHANGE = photographs.similarity(1.2, 15, (8, -3), (150, 150))


@pytest.fixture(scope="module")
def features():
    image = photographs.gray("brick", (300, 300))
    return caloric.extract([image, photographs.warp(image, CHANGE)], max_features=300)


def error(geometry):
    """Return the largest error in pixels at the corners of the image."""
    corners = np.array([[0.0, 0.0], [300, 0], [0, 300], [300, 300]])
    mapped = cv2.perspectiveTransform(corners[None], geometry.matrix)[0]
    return np.abs(mapped - photographs.apply(CHANGE, corners)).max()


def test_points_and_features_give_the_same_geometry(features):
    a, b = features
    matches = caloric.match(a, b)
    expected = caloric.verify(a, b, matches)
    i, j = matches.indices.T
    sizes = a.image_size, b.image_size
    forms = [
        caloric.verify(a.frames.xy[i], b.frames.xy[j], image_sizes=sizes),
        caloric.verify(a.frames.xy, b.frames.xy, matches, image_sizes=sizes),
        caloric.verify(a.frames.xy[i].tolist(), b.frames.xy[j].tolist()),
        caloric.verify(a.frames[i].to_opencv(), b.frames[j].to_opencv()),
        caloric.verify(a[i], b[j]),
    ]
    assert error(expected) < 2
    for geometry in forms:
        assert geometry
        assert error(geometry) < 2
        assert abs(len(geometry) - len(expected)) <= 0.05 * len(expected)


def test_matches_of_opencv_are_verified(features):
    a, b = features
    nearest = cv2.BFMatcher(crossCheck=True).match(a.descriptors, b.descriptors)
    points = [
        side.frames.xy[[getattr(m, index) for m in nearest]]
        for side, index in ((a, "queryIdx"), (b, "trainIdx"))
    ]
    assert error(caloric.verify(*points, model="homography")) < 2


@pytest.fixture(scope="module")
def scene():
    """Return points of a scene with depth, and their projections (60, 2) in two images."""
    rng = np.random.default_rng(0)
    points = rng.uniform((-1, -1, 4), (1, 1, 8), (60, 3))
    intrinsics = np.array([[500.0, 0, 200], [0, 500, 200], [0, 0, 1]])
    sides = (points, points + np.array([-1, 0.2, 0.1]))
    p, q = ((side @ intrinsics.T)[:, :2] / side[:, 2:] for side in sides)
    return p, q, intrinsics


def test_the_model_is_chosen_from_the_matches(scene):
    p, q, k = scene
    sizes = (400, 400), (400, 400)
    plane = caloric.verify(p, photographs.apply(CHANGE, p), image_sizes=sizes, model="auto")
    assert plane
    assert plane.model == "homography"
    assert plane.reason.startswith("homography: the scene is planar")
    depth = caloric.verify(p, q, image_sizes=sizes, model="auto")
    assert depth
    assert depth.model == "fundamental"
    assert "60 with a fundamental matrix" in depth.reason
    calibrated = caloric.verify(p, q, image_sizes=sizes, model="auto", intrinsics=(k, k))
    assert calibrated
    assert calibrated.model == "essential"
    assert "60 with an essential matrix" in calibrated.reason
    # A model that is passed is kept.
    assert caloric.verify(p, q, model="homography").model == "homography"
    assert caloric.verify(p, q, intrinsics=(k, k)).model == "homography"


def test_no_choice_without_a_reliable_model():
    p, q = np.random.default_rng(0).uniform(0, 300, (2, 50, 2))
    geometry = caloric.verify(p, q, model="auto")
    assert not geometry
    assert geometry.reason.startswith("not reliable (")
    nothing = caloric.verify(p[:3], q[:3], model="auto")
    assert nothing.matrix is None
    assert "too few matches at distinct positions" in nothing.reason


def test_invalid_choices(scene):
    p, q, k = scene
    with pytest.raises(caloric.InputError, match="choose from auto, homography"):
        caloric.verify(p, q, model="plane")
    with pytest.raises(caloric.InputError, match="two 3 x 3 matrices"):
        caloric.verify(p, q, model="auto", intrinsics=(k, k[:2]))


def test_descriptors_have_no_positions(features):
    a, b = features
    matches = caloric.match(a.descriptors, b.descriptors)
    with pytest.raises(
        caloric.InputError, match=r"\(300, 128\) has no positions; pass caloric.Feat"
    ):
        caloric.verify(a.descriptors, b.descriptors, matches)
    with pytest.raises(caloric.InputError, match="features_b: an array of shape"):
        caloric.verify(a, b.descriptors, matches)


@pytest.mark.parametrize(
    "sizes", [(300, 300), ((300, 300),), ((0, 5), (5, 5)), "large", ((np.nan, 5), (5, 5)), 3]
)
def test_invalid_sizes_are_errors(sizes):
    points = np.zeros((5, 2))
    with pytest.raises(caloric.InputError, match="image_sizes must be"):
        caloric.verify(points, points, image_sizes=sizes)


def test_invalid_points_are_errors():
    points = np.zeros((5, 2))
    for a, b, message in [
        (points, points[:3], "5 points in the first image but 3 in the second; without matches"),
        (points, np.zeros((5, 3)), "has no positions"),
        (points, "points", "features_b: expected Frames"),
        (points, np.full((5, 2), np.nan), "NaN or infinite"),
    ]:
        with pytest.raises(caloric.InputError, match=message):
            caloric.verify(a, b)
    with pytest.raises(caloric.InputError, match=r"pass matched points: verify\(points_a"):
        caloric.verify(points, points, np.zeros((5, 2), int))
    assert not caloric.verify(np.zeros((0, 2)), np.zeros((0, 2)))


def test_sizes_that_do_not_contain_the_points_are_errors():
    points = np.random.default_rng(0).uniform(0, (640, 480), (50, 2))
    assert caloric.verify(points, points + 1, image_sizes=((481, 641), (481, 641)))
    with pytest.raises(caloric.InputError, match="outside of the first image, which is 480 pixels"):
        caloric.verify(points, points + 1, image_sizes=((640, 480), (640, 480)))


def test_points_in_the_shape_of_opencv():
    points = np.random.default_rng(0).uniform(0, 400, (50, 1, 2))
    geometry = caloric.verify(points, points + np.array([5, 7]))
    np.testing.assert_allclose(geometry.matrix, [[1, 0, 5], [0, 1, 7], [0, 0, 1]], atol=1e-6)


LINE = np.linspace(0, 600, 200)[:, None] * (1, 0.5) + 10
SPREAD = np.random.default_rng(0).uniform(0, 400, (300, 2))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("model", ["homography", "fundamental", "auto"])
@pytest.mark.parametrize(
    ("p", "q", "reason"),
    [
        (LINE, 1.01 * LINE, "on one line"),
        (SPREAD, SPREAD * (-1, 1) + (400, 0), "mirrored|no sample of matches gives a model"),
    ],
)  # fmt: skip
def test_matches_that_determine_no_geometry(model, p, q, reason, seed):
    noise = np.random.default_rng(seed).normal(0, 0.2, q.shape)
    geometry = caloric.verify(p, q + noise, model=model)
    assert geometry.confidence < 0.1
    assert re.search(reason, geometry.reason)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("extent", "count"), [(10, 1000), (30, 1000), (60, 50)])
def test_a_cluster_of_matches_does_not_determine_a_homography(extent, count, seed):
    rng = np.random.default_rng(seed)
    p = 300 + rng.uniform(0, extent, (count, 2))
    q = p + np.array([5, 3]) + rng.normal(0, 0.5, p.shape)
    geometry = caloric.verify(p, q, image_sizes=((640, 640), (640, 640)))
    grid = np.stack(np.meshgrid(*[np.linspace(0, 639, 9)] * 2), -1).reshape(-1, 2)
    z = np.c_[grid, np.ones(len(grid))] @ geometry.matrix.T
    error = np.linalg.norm(z[:, :2] / z[:, 2:] - grid - (5, 3), axis=1).mean()
    assert error < 5 or geometry.confidence < 0.5
    assert bool(geometry.reason) == (geometry.confidence <= 0.9)


def test_two_motions_lower_the_confidence():
    turn = np.array([[0.9, 0.3], [-0.3, 0.9]])
    q = np.concatenate([SPREAD[:150] + np.array([40, 0]), SPREAD[150:] @ turn])
    q += np.random.default_rng(1).normal(0, 0.3, q.shape)
    for model in ("homography", "fundamental", "auto"):
        geometry = caloric.verify(SPREAD, q, model=model)
        assert geometry.confidence < 0.7, model
        assert "second geometry" in geometry.reason


def test_the_confidence_does_not_depend_on_the_origin():
    q = SPREAD[:40] * (1.02, 0.98) + np.random.default_rng(1).normal(0, 0.5, (40, 2))
    near, far = (caloric.verify(SPREAD[:40] + s, q + s).confidence for s in (0, 3000))
    assert far == pytest.approx(near, abs=0.02)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31 - 1), st.floats(0.5, 2), st.floats(-3, 3))
def test_an_exact_similarity_is_recovered(seed, scale, angle):
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, 500, (40, 2))
    c, s = scale * np.cos(angle), scale * np.sin(angle)
    moved = points @ np.array([[c, s], [-s, c]]) + (20, -30)
    geometry = caloric.verify(points, moved, model="affine")
    np.testing.assert_allclose(geometry.matrix[:, :2], [[c, -s], [s, c]], atol=1e-4)
