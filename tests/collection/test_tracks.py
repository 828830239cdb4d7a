"""Tracks joined from matches."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.collection import (
    engines,
    matching,
    store,
    tracks,
)

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)

HERE = engines.InProcess()
HOW = matching.Matching(model="homography")


def joined(a, b, matches, distances=None):
    matches = np.array(matches, np.uint32).reshape(-1, 2)
    if distances is None:
        distances = np.zeros(len(matches))
    return tracks.Joined(a, b, matches, np.asarray(distances, np.float32))


def members(found):
    rows = zip(found.track.tolist(), found.image.tolist(), found.feature.tolist(), strict=True)
    sets = {}
    for track, image, feature in rows:
        sets.setdefault(track, set()).add((found.names[image], feature))
    return sorted(map(sorted, sets.values()))


def test_matches_are_joined():
    found = tracks.join(
        {"a": 3, "b": 3, "c": 4, "d": 2},
        [
            joined("a", "b", [[0, 1], [2, 2]]),
            joined("b", "c", [[1, 3]]),
            joined("a", "c", [[0, 3]]),
        ],
    )
    assert members(found) == [[("a", 0), ("b", 1), ("c", 3)], [("a", 2), ("b", 2)]]
    one = {name: np.ones(9, np.float32) for name in "abcd"}
    wanted = tracks.references(found, one)
    assert {pair: v.tolist() for pair, v in wanted.items()} == {
        ("a", "b"): [[0, 1], [2, 2]],
        ("a", "c"): [[0, 3]],
    }
    # The most matches come first, then the scale in the middle.
    star = tracks.join(
        {"a": 1, "b": 1, "c": 1}, [joined("a", "b", [[0, 0]]), joined("b", "c", [[0, 0]])]
    )
    assert set(tracks.references(star, one)) == {("b", "a"), ("b", "c")}
    ring = tracks.join(
        {"a": 1, "b": 1, "c": 1},
        [joined("a", "b", [[0, 0]]), joined("b", "c", [[0, 0]]), joined("a", "c", [[0, 0]])],
    )
    sizes = {name: np.array([s], np.float32) for name, s in (("a", 1.0), ("b", 4.0), ("c", 2.1))}
    assert set(tracks.references(ring, sizes)) == {("c", "a"), ("c", "b")}
    nothing = tracks.join({"a": 5}, [])
    assert tracks.references(nothing, one) == {}


def test_a_track_that_contradicts_itself_is_split_at_its_weakest_match():
    pairs = [
        joined("a", "b", [[0, 0], [1, 1]], [0.1, 0.1]),
        joined("b", "c", [[0, 0], [1, 0]], [0.2, 0.9]),  # both to one feature of c
    ]
    found = tracks.join({"a": 2, "b": 2, "c": 1}, pairs)
    assert members(found) == [[("a", 0), ("b", 0), ("c", 0)], [("a", 1), ("b", 1)]]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(1, 8), st.floats(0, 0.5))
def test_no_track_has_two_features_of_an_image(seed, images, features, wrong):
    rng = np.random.default_rng(seed)
    names = [f"{i}" for i in range(images)]
    pairs = []
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            right = np.flatnonzero(rng.random(features) < 0.6)
            other = np.where(
                rng.random(len(right)) < wrong, rng.permutation(features)[right], right
            )
            pairs.append(joined(a, b, np.stack([right, other], 1), rng.random(len(right))))
    found = tracks.join(dict.fromkeys(names, features), pairs)
    places = found.track * images + found.image
    assert len(np.unique(places)) == len(places)
    seen = found.image * features + found.feature
    assert len(np.unique(seen)) == len(seen)
    assert (np.bincount(found.track) >= 2).all() if len(seen) else True
    if wrong == 0:
        assert (found.feature[found.track.argsort()] >= 0).all()
        assert all(len({f for _, f in track}) == 1 for track in members(found))
    ones = {name: np.ones(features, np.float32) for name in names}
    moved = [(pair[1], f) for pair, v in tracks.references(found, ones).items() for f in v[:, 1]]
    assert len(set(moved)) == len(moved) == len(seen) - len(np.unique(found.track))
