"""Tracks joined from matches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.collection import (
    store,
    tracks,
)

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def joined(a, b, matches, distances=None):
    matches = np.array(matches, np.uint32).reshape(-1, 2)
    if distances is None:
        distances = np.zeros(len(matches))
    return tracks.PairMatches(a, b, matches, np.asarray(distances, np.float32))


def members(result):
    """Return the sorted (image name, feature) pairs of each track."""
    rows = zip(result.track.tolist(), result.image.tolist(), result.feature.tolist(), strict=True)
    sets = {}
    for track, image, feature in rows:
        sets.setdefault(track, set()).add((result.names[image], feature))
    return sorted(map(sorted, sets.values()))


UNIT_SCALES = {name: np.ones(9, np.float32) for name in "abcd"}


def test_matches_are_joined_to_tracks():
    result = tracks.join(
        {"a": 3, "b": 3, "c": 4, "d": 2},
        [
            joined("a", "b", [[0, 1], [2, 2]]),
            joined("b", "c", [[1, 3]]),
            joined("a", "c", [[0, 3]]),
        ],
    )
    assert members(result) == [[("a", 0), ("b", 1), ("c", 3)], [("a", 2), ("b", 2)]]
    references = tracks.references(result, UNIT_SCALES)
    assert {pair: v.tolist() for pair, v in references.items()} == {
        ("a", "b"): [[0, 1], [2, 2]],
        ("a", "c"): [[0, 3]],
    }


def test_the_reference_has_the_most_matches():
    star = tracks.join(
        {"a": 1, "b": 1, "c": 1}, [joined("a", "b", [[0, 0]]), joined("b", "c", [[0, 0]])]
    )
    assert set(tracks.references(star, UNIT_SCALES)) == {("b", "a"), ("b", "c")}


def test_among_equal_numbers_of_matches_the_reference_has_the_mean_scale():
    ring = tracks.join(
        {"a": 1, "b": 1, "c": 1},
        [joined("a", "b", [[0, 0]]), joined("b", "c", [[0, 0]]), joined("a", "c", [[0, 0]])],
    )
    sizes = {name: np.array([s], np.float32) for name, s in (("a", 1.0), ("b", 4.0), ("c", 2.1))}
    assert set(tracks.references(ring, sizes)) == {("c", "a"), ("c", "b")}


def test_images_without_matches_have_no_tracks():
    assert tracks.references(tracks.join({"a": 5}, []), UNIT_SCALES) == {}


def test_an_inconsistent_track_is_split_at_its_weakest_match():
    pairs = [
        joined("a", "b", [[0, 0], [1, 1]], [0.1, 0.1]),
        joined("b", "c", [[0, 0], [1, 0]], [0.2, 0.9]),  # both to the same feature of c
    ]
    result = tracks.join({"a": 2, "b": 2, "c": 1}, pairs)
    assert members(result) == [[("a", 0), ("b", 0), ("c", 0)], [("a", 1), ("b", 1)]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 8), st.floats(0, 0.5))
def test_no_track_has_two_features_of_an_image(seed, images, features, outliers):
    rng = np.random.default_rng(seed)
    names = [f"{i}" for i in range(images)]
    pairs = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            first = np.flatnonzero(rng.random(features) < 0.6)
            second = np.where(
                rng.random(len(first)) < outliers, rng.permutation(features)[first], first
            )
            pairs.append(joined(a, b, np.stack([first, second], 1), rng.random(len(first))))
    result = tracks.join(dict.fromkeys(names, features), pairs)
    images_of_tracks = result.track * images + result.image
    assert len(np.unique(images_of_tracks)) == len(images_of_tracks)
    members_of_tracks = result.image * features + result.feature
    assert len(np.unique(members_of_tracks)) == len(members_of_tracks)
    assert (np.bincount(result.track) >= 2).all() if len(members_of_tracks) else True
    if outliers == 0:
        assert (result.feature[result.track.argsort()] >= 0).all()
        assert all(len({f for _, f in track}) == 1 for track in members(result))
    ones = {name: np.ones(features, np.float32) for name in names}
    moved = [(pair[1], f) for pair, v in tracks.references(result, ones).items() for f in v[:, 1]]
    assert len(set(moved)) == len(moved) == len(result.track) - len(np.unique(result.track))
