"""Corresponding frames, given the homography between two images."""

import numpy as np
import pytest

from caloric import Frames
from caloric.bench import correspondence


def test_the_overlap_of_two_disks_agrees_with_its_formula():
    r = correspondence.REGION * 2.0
    a = Frames.from_xysa([0.0], [0.0], [2.0])
    for d in (0.0, 2.0, 4.0, 5.5):
        b = Frames.from_xysa([d], [0.0], [2.0])
        lens = 2 * r**2 * np.arccos(d / (2 * r)) - d / 2 * np.sqrt(4 * r**2 - d**2)
        expected = lens / (2 * np.pi * r**2 - lens)
        pairs = correspondence.corresponding(a, b, np.eye(3))
        assert len(pairs.overlap) == (expected > 0.5)
        if expected > 0.5:
            assert pairs.overlap[0] == pytest.approx(expected, abs=0.02)


def test_an_image_without_frames_has_no_correspondences():
    frames = Frames.from_xysa([0.0, 9.0], [0.0, 3.0], [2.0, 1.0])
    for a, b in ((frames, Frames.empty()), (Frames.empty(), frames)):
        assert correspondence.one_to_one(correspondence.corresponding(a, b, np.eye(3))) == 0


def test_regions_are_mapped_by_the_jacobian_of_the_homography():
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
    mapped = Frames(
        np.concatenate([J @ a.maps[:, :, :2], correspondence.project(H, xy)[..., None]], -1),
        a.scores,
    )
    pairs = correspondence.corresponding(a, mapped, H, 0.9)
    assert correspondence.one_to_one(pairs) == 40
    same = pairs.indices[:, 0] == pairs.indices[:, 1]
    np.testing.assert_allclose(pairs.overlap[same], 1, atol=0.02)


def test_normalized_regions_tolerate_larger_position_errors_of_small_frames():
    a = Frames.from_xysa([0.0], [0.0], [1.0])
    b = Frames.from_xysa([4.0], [0.0], [1.0])
    assert len(correspondence.corresponding(a, b, np.eye(3)).overlap) == 0
    r, d = 30.0, 4.0
    lens = 2 * r**2 * np.arccos(d / (2 * r)) - d / 2 * np.sqrt(4 * r**2 - d**2)
    pairs = correspondence.corresponding(a, b, np.eye(3), normalized=r)
    assert pairs.overlap[0] == pytest.approx(lens / (2 * np.pi * r**2 - lens), abs=0.02)
