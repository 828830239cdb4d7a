"""Proposals: new observations in one image."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from caloric.collection import proposals
from caloric.collection.proposals import Observed, Proposals, Source
from caloric.frames import Frames
from caloric.matching.refinement import Refined

NONE = np.zeros(0, np.int64)
SIZE = (200, 300)


def frames(xy, sigma=3.0):
    xy = np.asarray(xy, float)
    return Frames.from_xysa(*xy.T, np.full(len(xy), sigma)).maps


def observed(xy, descriptors, features=NONE, tracks=NONE):
    return Observed(frames(xy), np.float32(descriptors), SIZE, features, tracks)


def proposed(xy, descriptors, in_track=None, variances=None):
    number = len(xy)
    in_track = np.zeros(number, bool) if in_track is None else np.array(in_track)
    variances = np.zeros(number) if variances is None else np.array(variances)
    index = np.arange(number)
    return Proposals(0 * index, index, in_track, frames(xy), variances, np.float32(descriptors))


def test_similar_features_are_joined_and_positions_of_other_tracks_are_not_used_again():
    target = observed(
        [[10, 10], [50, 50], [90, 90]], [[1, 0], [1, 0], [1, 0]],
        np.array([1]), np.array([7]),
    )  # fmt: skip
    # Similar to the first, unlike the second (in a track), unlike the third (in none), far away.
    new = proposed(
        [[10.5, 10], [50.5, 50], [90.5, 90], [150, 90]], [[1, 0.1], [0, 1], [0, 1], [1, 0]]
    )
    links = proposals.link(target, new)
    assert links.proposals.feature.tolist() == [0, 2, 3]
    assert links.nodes.tolist() == [0, 3, 4]
    assert links.new.tolist() == [1, 2]


def test_proposals_at_one_position_are_one_feature_tracks_first():
    new = proposed(
        [[10, 10], [10.6, 10], [10.3, 10], [80, 80]], np.ones((4, 2)),
        [False, True, True, False], [0.01, 0.2, 0.1, 0.3],
    )  # fmt: skip
    links = proposals.link(observed(np.zeros((0, 2)), np.zeros((0, 2))), new)
    assert links.nodes.tolist() == [0, 0, 0, 1]
    assert links.new.tolist() == [2, 3]


@given(st.lists(st.tuples(st.floats(0, 8), st.floats(0, 8)), max_size=30))
def test_clusters(xy):
    xy = np.array(xy).reshape(-1, 2)
    cluster = proposals._clusters(xy)
    centers = np.unique(cluster)
    assert (cluster[centers] == centers).all()
    assert (np.linalg.norm(xy - xy[cluster], axis=1) <= 1 + 1e-9).all()
    distances = np.linalg.norm(xy[centers][:, None] - xy[centers], axis=2)
    assert (distances[~np.eye(len(centers), dtype=bool)] > 1 - 1e-9).all()


def grid(shift=0.0):
    y, x = np.mgrid[20:181:20, 20:261:20]
    return np.stack([x.ravel() + shift, y.ravel()], 1).astype(float)


NOISE, TOTAL = 1e-4, 2e-4  # variances of refined positions


def moving(shift, reach):
    """Return a function that refines frames to a translation if they start near enough."""

    def refine(maps_a, maps_b):
        goal = maps_a[:, :, 2] + [shift, 0]
        moved = np.linalg.norm(maps_b[:, :, 2] - goal, axis=1) <= reach
        maps = maps_b.copy()
        maps[moved, :, 2] = goal[moved]
        infinite = np.broadcast_to(np.diag([np.inf, np.inf]), (len(maps), 2, 2))
        noise, total = (
            np.where(moved[:, None, None], v * np.eye(2), infinite) for v in (NOISE, TOTAL)
        )
        return Refined(maps, moved, noise, total)

    return refine


# The epipolar lines of a translation along x are horizontal.
TRANSLATION = np.array([[0, 0, 0], [0, 0, -1], [0, 1, 0]], float)


def test_failed_frames_are_tried_again_along_their_epipolar_lines():
    maps = frames(grid())
    starts = maps.copy()
    starts[1::2, :, 2] += [5.0, 0.5]  # 1.7 σ along the line
    for model, share in (("fundamental", 1.0), ("homography", 0.5)):
        source = Source(
            0, observed(np.zeros((0, 2)), np.zeros((0, 2))), np.zeros((0, 2), np.int64),
            TRANSLATION, model, moving(0.0, 1.0),
        )  # fmt: skip
        refined = proposals._refined(source, maps, starts)
        moved = refined.moved
        assert abs(moved.mean() - share) < 0.02
        for covariances, variance in (
            (refined.covariances, NOISE),
            (refined.total_covariances, TOTAL),
        ):
            np.testing.assert_array_equal(covariances[moved, 0, 0], variance)
            assert np.isinf(covariances[~moved, 0, 0]).all()


def test_frames_are_refined_only_where_a_sample_of_them_or_an_inlier_shows_the_target():
    maps = frames(grid())
    hidden = maps[:, 0, 2] > np.median(maps[:, 0, 2])
    refined = []

    def refine(maps_a, maps_b):
        refined.extend(maps_a[:, :, 2].tolist())
        at_hidden = maps_a[:, 0, 2] > np.median(maps[:, 0, 2])
        return replace(moving(0.0, 1.0)(maps_a, maps_b), moved=~at_hidden)

    image = observed(maps[:, :, 2], np.zeros((len(maps), 2)))
    far = np.argmax(maps[:, :, 2].sum(1))
    for inliers in ([], [[far, far]]):
        refined.clear()
        source = Source(
            0, image, np.array(inliers, np.int64).reshape(-1, 2), np.eye(3), "homography", refine
        )
        moved = proposals._refined(source, maps, maps).moved
        assert np.array_equal(moved, ~hidden)
        assert len(refined) < 0.9 * len(maps)
        assert (maps[far, :, 2].tolist() in refined) == bool(inliers)


def test_each_track_is_proposed_by_the_first_source_and_not_where_it_is_observed():
    xy = grid()
    number = len(xy)
    ones, index = np.ones((number, 2)), np.arange(number)
    # Even features of the target are in tracks; sources have all tracks, the second a new one.
    shift = np.array([4.0, 0.0])
    target = observed(xy + shift, ones, index[::2], index[::2])
    inliers = np.stack([index[::2], index[::2]], 1)
    extra = np.concatenate([xy, [[33.0, 33.0]]])
    sources = [
        Source(0, observed(xy, ones, index, index), inliers, TRANSLATION, "fundamental",
               moving(4.0, 1.0)),
        Source(1, observed(extra, np.ones((number + 1, 2)), index, index), inliers, TRANSLATION,
               "fundamental", moving(4.0, 1.0)),
    ]  # fmt: skip
    result = proposals.propose(target, sources, lambda maps: np.ones((len(maps), 2), np.float32))
    first = result.source == 0
    assert set(result.feature[first].tolist()) <= set(index[1::2].tolist())
    assert first.sum() > 30  # those at the border have too few inliers around them
    assert result.in_track[first].all()
    assert result.feature[~first & ~result.in_track].tolist() == [number]
    again = result.feature[~first & result.in_track]
    assert not np.isin(again, result.feature[first]).any()
    np.testing.assert_allclose(result.maps[first][:, :, 2], xy[result.feature[first]] + shift)
    unlike = proposals.propose(
        target, sources, lambda maps: np.tile(np.float32([1, -1]), (len(maps), 1))
    )
    assert len(unlike) == 0
