"""Matching and refining features and frames of two images."""

from dataclasses import replace

import numpy as np
import pytest

import caloric
import photographs
from caloric import Frames, comparison


def test_features_of_different_recipes_cannot_be_matched():
    image = photographs.gray("camera")[200:328, 150:278]
    plain = caloric.extract(image, "sift", max_features=20)
    for other in (
        caloric.extract(image, "sift", max_features=20, sigma_d=0.25),
        caloric.extract(image, "sift", max_features=20, domain_sizes=3),
        caloric.extract(image, "sift", max_features=20, normalisation="l2"),
    ):
        with pytest.raises(caloric.InputError, match="'sift' with different parameters"):
            caloric.match(plain, other)
    small = caloric.extract(image, "sift", max_features=20, dtype="uint8")
    with pytest.raises(caloric.InputError, match="encoding 'unit' and of 'uint8'"):
        caloric.match(plain, small)
    with pytest.raises(caloric.InputError, match="frames but descriptors of shape"):
        replace(plain, descriptors=plain.descriptors[1:])


def test_invalid_arguments_of_refine_are_errors():
    first = photographs.gray("astronaut", (160, 120))
    second, a = first[:, ::-1].copy(), caloric.extract(first, max_features=20)
    with pytest.raises(caloric.InputError, match="must match row by row"):
        caloric.refine(first, second, [[1.0, 2.0]], np.zeros((2, 2)))
    with pytest.raises(caloric.InputError, match="frames_b: expected"):
        caloric.refine(first, second, [[1.0, 2.0]], np.zeros((1, 5)))
    with pytest.raises(caloric.InputError, match="sigma"):
        caloric.refine(first, second, [[1.0, 2.0]], [[1.0, 2.0]], sigma=0)
    with pytest.raises(caloric.InputError):
        caloric.refine(first, second, [[np.nan, 2.0]], [[1.0, 2.0]])
    for invalid in ("points", [[1.0, 2.0], [3.0]], np.array([object()])):
        with pytest.raises(caloric.InputError, match="keypoints"):
            caloric.refine(first, second, invalid, invalid)
    with pytest.raises(caloric.InputError, match="images="):
        caloric.match(a, a, refine=True)
    with pytest.raises(caloric.InputError, match="Features"):
        caloric.match(a.descriptors, a.descriptors, refine=True, images=(first, first))
    with pytest.raises(caloric.InputError, match="its features are from"):
        caloric.match(a, a, refine=True, images=(first, first[:50]))
    assert len(caloric.refine(first, second, [], [])) == 0


@pytest.mark.parametrize("invalid", [3, "ab", [1, 2], [("a", "b", "c")], [[1], [2]]])
def test_only_lists_of_pairs_are_accepted(invalid):
    with pytest.raises(caloric.InputError, match="list of such pairs"):
        comparison.checked_pairs(invalid)
    assert comparison.checked_pairs([[1, 2], (3, 4)]) == [(1, 2), (3, 4)]


def test_frames_keypoints_and_points_give_the_same_maps():
    points = np.array([[3.0, 4.0], [50.0, 6.5]])
    expected = np.zeros((2, 2, 3))
    expected[:, [0, 1], [0, 1]] = 2.5
    expected[:, :, 2] = points
    frames = Frames(expected, np.zeros(2))
    for given in (points, points.tolist(), expected, frames):
        np.testing.assert_array_equal(comparison.maps_of(given, "frames_a", 2.5), expected)
    keypoints = frames.to_opencv()
    for given in (keypoints, np.array(keypoints, object)):
        np.testing.assert_allclose(comparison.maps_of(given, "frames_a", 9.0), expected, atol=1e-5)


def test_refined_frames_replace_those_of_the_second_image():
    a, b = (Frames.from_xysa(x, [5.0, 6.0], [1.0, 1.0]) for x in ([1.0, 2.0], [3.0, 4.0]))
    matches = caloric.Matches(np.array([[1, 0]]), np.zeros(1, np.float32))
    first, second = comparison.matched_maps(a.maps, b.maps, matches)
    assert (first[0, 0, 2], second[0, 0, 2]) == (2.0, 3.0)
    moved = replace(matches, refined=b.maps[[1]], covariances=np.zeros((1, 2, 2)))
    assert comparison.matched_maps(a.maps, b.maps, moved)[1][0, 0, 2] == 4.0
    for invalid in ([[2, 0]], [[0, 2]], [[-1, 0]]):
        with pytest.raises(caloric.InputError, match="do not exist"):
            comparison.matched_maps(a.maps, b.maps, replace(matches, indices=np.array(invalid)))


def test_one_match_per_position_of_simulated_views():
    """Two features at one position: with views the match of the second is dropped."""
    xy = np.array([[10.0, 10], [10, 10], [80, 60]])
    values = np.eye(3, dtype=np.float32)
    empty = caloric.extract(np.zeros((90, 120)), "sift")
    plain = replace(empty, frames=Frames.from_xysa(*xy.T, np.ones(3)), descriptors=values)
    options = comparison.MatchOptions(ratio=None)
    (matches,) = comparison.matched([(plain, plain)], options)
    assert len(matches) == 3
    views = replace(plain, views=2)
    (distinct,) = comparison.matched([(views, views)], options)
    assert len(distinct) == 2


def test_two_lists_of_features_are_an_error_that_shows_the_list_of_pairs():
    frames = Frames.from_xysa(*np.ones((3, 4)), 0.0)
    f = caloric.Features(frames, np.eye(4, 128, dtype=np.float32), (9, 9), "mine", "")
    for first, second in (
        ([f, f], [f, f]),
        ((f,), f),
        (f, [f]),
        ([f.descriptors], [f.descriptors]),
    ):
        with pytest.raises(
            caloric.InputError, match=r"match\(\[\(a1, b1\), \(a2, b2\), \.\.\.\]\)"
        ):
            caloric.match(first, second)
    rows = f.descriptors.tolist()
    assert len(caloric.match(rows, rows)) == 4  # nested lists are arrays


def test_the_second_image_of_several_pairs_is_prepared_once(monkeypatch):
    """Pairs in any order give the matches of single pairs, in their order."""
    image = photographs.gray("camera")
    crops = (image[:200, :200], image[20:220, 10:210], image[100:300, 150:350])
    a, b, c = (caloric.extract(crop, max_features=150) for crop in crops)
    empty = a[:0]
    pairs = [(a, b), (c, a), (c, b), (a, empty), (empty, b), (a.descriptors, b), (b, a)]
    expected = [caloric.match(*pair) for pair in pairs]
    prepared = []
    reference = comparison.checked_reference
    monkeypatch.setattr(
        comparison, "checked_reference", lambda *args: prepared.append(1) or reference(*args)
    )
    for one, other in zip(caloric.match(pairs), expected, strict=True):
        np.testing.assert_array_equal(one.indices, other.indices)
        np.testing.assert_array_equal(one.distances, other.distances)
    assert len(prepared) == 3  # a, b and the empty one
    features = pairs[:5]
    for (x, y), other in zip(features, caloric.match(features, agreement=True), strict=True):
        one = caloric.match(x, y, agreement=True)
        np.testing.assert_array_equal(one.indices, other.indices)
