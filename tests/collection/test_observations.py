"""Features and matches of a store with propagated observations."""

import numpy as np

from caloric.collection import observations
from caloric.collection.observations import Edges
from caloric.collection.tracks import Tracks
from caloric.matching.two_views import TwoViews


def all_tracks(images, tracks):
    """Return tracks with one feature per observation."""
    image, track = np.array(images), np.array(tracks)
    order = np.lexsort((track, image))
    names = [f"{i}.png" for i in range(image.max() + 1)]
    ones = np.ones(len(image), np.int64)
    return Tracks(names, image[order], track[order], track[order], ones)


def edges(tracks, bad=()):
    """Return the edges of all pairs of observations, with a large residual for ``bad`` rows."""
    rows = [
        (i, j)
        for i in range(len(tracks.track))
        for j in range(i + 1, len(tracks.track))
        if tracks.track[i] == tracks.track[j]
    ]
    residuals = [5.0 if set(pair) & set(bad) else 0.1 for pair in rows]
    return [Edges(np.array(rows), np.float32(residuals))]


def test_an_observation_that_disagrees_with_the_others_is_removed():
    tracks = all_tracks([0, 1, 2, 3, 4], [0] * 5)
    keep = observations.consistent(tracks, edges(tracks, bad=[2]), np.zeros(5, bool))
    assert keep.tolist() == [True, True, False, True, True]
    # Without the removed observation, the track is too short for propagated observations.
    tracks = all_tracks([0, 1, 2, 3], [0] * 4)
    matched = np.array([True, True, False, False])
    keep = observations.consistent(tracks, edges(tracks, bad=[2]), matched)
    assert keep.tolist() == [True, True, False, False]


def test_short_tracks_keep_matched_observations_only():
    images, numbers = [0, 1, 2, 0, 1, 2, 3], [0, 0, 0, 1, 1, 1, 1]
    tracks = all_tracks(images, numbers)
    matched = (tracks.track == 0) & (tracks.image < 2)
    keep = observations.consistent(tracks, edges(tracks), matched)
    assert keep[tracks.track == 1].all()
    assert keep[tracks.track == 0].tolist() == [True, True, False]
    # In three images, a point cannot have four observations.
    tracks = all_tracks([0, 1, 2], [0, 0, 0])
    assert observations.consistent(tracks, edges(tracks), np.zeros(3, bool)).all()


def test_new_inliers_are_added_to_the_matches_once():
    matches = np.array([[5, 1], [2, 2], [9, 4]], np.uint32)
    pair = TwoViews(
        "a", "b", matches, np.float32([1, 2, 3]), np.array([1], np.uint32), np.eye(3), "fundamental"
    )
    inliers = np.array([[9, 4], [7, 7], [2, 2]], np.uint32)
    result = observations._with_inliers(pair, inliers)
    assert result.matches.tolist() == [[5, 1], [2, 2], [9, 4], [7, 7]]
    assert sorted(map(tuple, result.inlier_matches.tolist())) == [(2, 2), (7, 7), (9, 4)]
    assert result.distances.tolist() == [1, 2, 3, 3]
    empty = observations._with_inliers(pair, np.zeros((0, 2), np.uint32))
    assert len(empty.inliers) == 0
    assert empty.matches.tolist() == matches.tolist()
