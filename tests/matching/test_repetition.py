"""Matches between different instances of repeated structure."""

import cv2
import numpy as np
import pytest

import caloric
from caloric import Frames
from caloric.matching import repetition
from caloric.matching.repetition import Appearance, Described

COUNT, DIMENSION = 200, 64


def descriptors(rng, elements, noise):
    """Return unit descriptors of elements (n, d) with independent errors."""
    values = elements + noise / DIMENSION**0.5 * rng.normal(size=elements.shape)
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def appearance(repeated, zoom=1.0, turn=0.0, noise=0.3, seed=0):
    """Return the appearance of matches, of which a share shows repeated elements.

    They are on the left; other matches have elements that each image shows once.
    """
    rng = np.random.default_rng(seed)
    number = int(repeated * COUNT)
    elements = rng.normal(size=(COUNT, DIMENSION))
    elements[:number] = elements[np.arange(number) % 10]
    elements /= np.linalg.norm(elements, axis=1, keepdims=True)
    xy = rng.uniform([300, 0], [600, 400], (COUNT, 2))
    xy[:number, 0] -= 300
    angle = rng.uniform(0, 2 * np.pi, COUNT)
    a = Frames.from_xysa(*xy.T, np.full(COUNT, 3.0), angle)
    b = Frames.from_xysa(*(xy.T + 20), np.full(COUNT, 3.0 * zoom), angle + turn)
    sides = [Described(descriptors(rng, elements, noise), side.xy) for side in (a, b)]
    indices = np.stack([np.arange(COUNT)] * 2, 1)
    return Appearance(lambda: (sides[0], sides[1]), indices, (a.maps, b.maps))


def test_elements_seen_once_are_not_repeated():
    repeated, probability = repetition.examined(appearance(0), np.ones(COUNT, bool))
    assert not repeated.any()
    assert probability > 0.95


def test_repeated_elements_are_recognized():
    repeated, probability = repetition.examined(appearance(1), np.ones(COUNT, bool))
    assert not repeated.any()  # there is no other part
    assert probability < 0.05


@pytest.mark.parametrize(("zoom", "turn"), [(2.0, 0.0), (1.0, 0.3)])
def test_another_view_explains_similar_distances(zoom, turn):
    def probability(zoom, turn):
        few_distinct = appearance(0.9, zoom, turn)
        assert few_distinct.distinctness().scores.mean() < 0.3
        return few_distinct.distinctness().probability

    assert probability(zoom, turn) > 0.5 > probability(1.0, 0.0)
    assert probability(1.0, np.pi) < 0.5  # upside down


def test_a_repeated_part_is_found():
    repeated, probability = repetition.examined(appearance(0.4), np.ones(COUNT, bool))
    truth = np.arange(COUNT) < 0.4 * COUNT
    assert repeated[truth].mean() > 0.9
    assert repeated[~truth].mean() < 0.1
    assert probability > 0.95


def test_few_matches_and_a_single_feature():
    everything = appearance(0)
    for count in (0, 1, 5):
        inliers = np.arange(COUNT) < count
        repeated, probability = repetition.examined(everything, inliers)
        assert not repeated.any()
        assert 0 <= probability <= 1
    alone = [Described(np.ones((1, 4)), np.zeros((1, 2)))] * 2
    frames = np.eye(2, 3)[None]
    one = Appearance(lambda: (alone[0], alone[1]), np.zeros((1, 2), int), (frames, frames))
    assert one.distinctness().ratios == 0


def facade(rng, columns):
    """Return a wall with similar windows, whose texture differs everywhere."""
    wall = cv2.GaussianBlur(rng.normal(150, 90, (420, 90 * columns)), (0, 0), 3)
    frame = np.zeros((60, 44))
    for top, left in ((4, 4), (4, 24), (22, 4), (22, 24), (40, 4), (40, 24)):
        frame[top : top + 15, left : left + 16] = 90
    for top in range(20, 400, 80):
        for left in range(20, 90 * columns - 50, 90):
            curtains = cv2.GaussianBlur(rng.normal(0, 120, frame.shape), (0, 0), 4)
            wall[top : top + 60, left : left + 44] = 190 - frame + curtains * (frame > 0)
    return np.clip(cv2.GaussianBlur(wall, (0, 0), 1), 0, 255).astype(np.uint8)


def test_two_parts_of_a_facade_have_no_reliable_geometry():
    a, b = (facade(np.random.default_rng(seed), 6) for seed in (1, 2))
    b = b[:, 50:]
    for model in ("fundamental", "auto"):
        pair = caloric.match_images(a, b, model=model, views=None, propagate=False)
        assert len(pair.matches) > 30
        assert not pair
        assert "repeated structure" in pair.geometry.reason


def test_the_common_part_of_two_parts_of_a_facade_is_found():
    rng = np.random.default_rng(3)
    whole = facade(rng, 9)
    a, b = whole[:, :400], whole[:, 300:]
    pair = caloric.match_images(a, b, model="fundamental", views=None, propagate=False)
    assert pair
    error = np.abs(pair.points_b + np.array([300, 0]) - pair.points_a).max(1)
    assert (error < 3).mean() > 0.95
