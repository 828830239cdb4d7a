"""Corresponding frames, given the homography between two images."""

import numpy as np
import pytest

from caloric import Frames
from caloric.bench import correspondence


def test_overlap_of_discs():
    """Two discs of radius r at distance d: the known area of their lens."""
    r = correspondence.REGION * 2.0
    a = Frames.from_xysa([0.0], [0.0], [2.0])
    for d in (0.0, 2.0, 4.0, 5.5):
        b = Frames.from_xysa([d], [0.0], [2.0])
        lens = 2 * r**2 * np.arccos(d / (2 * r)) - d / 2 * np.sqrt(4 * r**2 - d**2)
        expected = lens / (2 * np.pi * r**2 - lens)
        found = correspondence.corresponding(a, b, np.eye(3))
        assert len(found.overlap) == (expected > 0.5)
        if expected > 0.5:
            assert found.overlap[0] == pytest.approx(expected, abs=0.02)


def test_no_frames_have_no_correspondences():
    some = Frames.from_xysa([0.0, 9.0], [0.0, 3.0], [2.0, 1.0])
    for a, b in ((some, Frames.empty()), (Frames.empty(), some)):
        assert correspondence.one_to_one(correspondence.corresponding(a, b, np.eye(3))) == 0


def test_regions_follow_a_homography():
    H = np.array([[1.2, 0.3, 10], [-0.2, 0.9, 5], [2e-4, -1e-4, 1]])
    rng = np.random.default_rng(1)
    xy, h = rng.uniform(50, 300, (40, 2)), 1e-4
    numeric = np.stack(
        [
            (correspondence.project(H, xy + step) - correspondence.project(H, xy - step)) / (2 * h)
            for step in h * np.eye(2)
        ],
        -1,
    )
    np.testing.assert_allclose(correspondence.jacobians(H, xy), numeric, rtol=1e-6)
    a = Frames.from_xysa(xy[:, 0], xy[:, 1], 3.0)
    J = correspondence.jacobians(H, xy)
    moved = Frames(
        np.concatenate([J @ a.maps[:, :, :2], correspondence.project(H, xy)[..., None]], -1),
        a.scores,
    )
    found = correspondence.corresponding(a, moved, H, 0.9)
    assert correspondence.one_to_one(found) == 40
    same = found.indices[:, 0] == found.indices[:, 1]
    np.testing.assert_allclose(found.overlap[same], 1, atol=0.02)


def test_normalized_regions_tolerate_larger_errors_of_small_frames():
    a = Frames.from_xysa([0.0], [0.0], [1.0])
    b = Frames.from_xysa([4.0], [0.0], [1.0])
    assert len(correspondence.corresponding(a, b, np.eye(3)).overlap) == 0
    r, d = 30.0, 4.0
    lens = 2 * r**2 * np.arccos(d / (2 * r)) - d / 2 * np.sqrt(4 * r**2 - d**2)
    found = correspondence.corresponding(a, b, np.eye(3), normalized=r)
    assert found.overlap[0] == pytest.approx(lens / (2 * np.pi * r**2 - lens), abs=0.02)
