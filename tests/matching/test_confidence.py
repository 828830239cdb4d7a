"""The confidence of geometries, and the evidence for them."""

from dataclasses import replace

import numpy as np
import pytest

from caloric import Frames
from caloric.matching import confidence, estimation, models
from caloric.matching.geometry import estimate

SHIFT = np.array([7.0, -3])
BOX = models.Box(np.zeros(2), np.array([499.0, 499]))


def test_random_matches_are_not_reliable():
    rng = np.random.default_rng(0)
    reliable = 0
    for count in (10, 30, 100, 300):
        for _ in range(5):
            p, q = rng.uniform(0, 500, (2, count, 2))
            reliable += bool(estimate(p, q, size=(500, 500)))
    assert reliable == 0
    p = rng.uniform(0, 500, (100, 2))
    q = p + rng.normal(0, 0.5, p.shape)
    q[25:] = rng.uniform(0, 500, (75, 2))
    assert estimate(p, q, size=(500, 500))
    assert estimate(p[:40], q[:40], size=(500, 500)).confidence > 0.75
    # Five features at one position count as one.
    same = np.repeat(p[:4], 5, 0)
    assert not estimate(same, same, size=(500, 500))


@pytest.fixture
def shifted():
    """An estimate of a shift by (7, −3): 40 correct matches with frames, 10 incorrect ones."""
    rng = np.random.default_rng(0)
    matrix = np.eye(3)
    matrix[:2, 2] = SHIFT
    a = Frames.from_xysa(*rng.uniform(20, 480, (2, 50)), np.full(50, 3.0)).maps
    b = a.copy()
    b[:, :, 2] += SHIFT
    b[40:, :, 2] = rng.uniform(20, 480, (10, 2))
    p, q = a[:, :, 2], b[:, :, 2]
    residuals = np.linalg.norm(p + SHIFT - q, axis=1)
    return confidence.Estimate("homography", matrix, p, q, residuals, 2.0, (BOX, BOX), (a, b))


def covariance_of(estimate):
    near = estimate.residuals < 5
    matches = estimation.Correspondences(
        estimate.p[near], estimate.q[near], "homography", (500, 500)
    )
    return estimation.estimate(matches, start=estimate.matrix).covariance


def evidence_for(estimate, find_rival):
    return confidence.evidence(estimate, find_rival, covariance_of(estimate))


def predicted_error(estimate):
    return confidence.predicted_error(estimate, covariance_of(estimate))


def test_correct_matches_are_evidence(shifted):
    evidence = evidence_for(shifted, lambda others: 0)
    assert evidence.inliers == 40
    assert evidence.power < -40
    assert evidence.error < 1
    assert evidence.confidence > 0.99


def test_the_rival_is_sought_among_the_other_matches(shifted):
    masks = []
    evidence = evidence_for(shifted, lambda others: masks.append(others) or 30)
    np.testing.assert_array_equal(np.flatnonzero(masks[0]), np.arange(40, 50))
    assert evidence.confidence < 0.9
    assert "second geometry" in evidence.weakness


def test_rotated_frames_do_not_agree(shifted):
    a, b = shifted.frames
    rotated = b.copy()
    rotated[:20, :, :2] = b[:20, :, :2] @ [[0, -1], [1, 0]]
    agreeing = confidence.agreeing_frames(replace(shifted, frames=(a, rotated)))
    assert agreeing[20:40].all()
    assert not agreeing[:20].any()


def test_fewer_inliers_and_wider_thresholds_are_more_likely_by_chance(shifted):
    inliers = shifted.residuals <= shifted.threshold

    def alarms(estimate=shifted, chosen=inliers):
        return confidence.false_alarms(estimate, chosen, 4, 1.0)

    few = inliers & (np.arange(50) < 8)
    assert alarms() < alarms(chosen=few) < alarms(chosen=inliers & (np.arange(50) < 6))
    assert alarms() < alarms(replace(shifted, threshold=6.0))
    assert alarms(chosen=inliers & (np.arange(50) < 4)) == np.inf


def test_the_error_is_larger_where_matches_cover_less(shifted):
    p = 0.1 * shifted.p
    small = replace(shifted, p=p, q=p + SHIFT, residuals=np.zeros(50), frames=None)
    assert predicted_error(small) > 3 * predicted_error(shifted)
    # No position of the first image is mapped into the second.
    far = shifted.matrix.copy()
    far[0, 2] += 900
    known = covariance_of(shifted)
    assert confidence.predicted_error(replace(shifted, matrix=far), known) == np.inf


def test_more_evidence_raises_the_confidence():
    def of(power, error, inliers, rival, planar=True):
        return confidence.Evidence(power, error, inliers, rival, 100, planar).confidence

    assert of(-20, 1.0, 30, 0) > of(-2, 1.0, 30, 0)
    assert of(-20, 1.0, 30, 0) > of(-20, 9.0, 30, 0)
    assert of(-20, 1.0, 30, 0) > of(-20, 1.0, 30, 20)
    assert of(np.inf, 0.1, 4, 0) == 0
    assert of(-40, 60.0, 1000, 0) < 0.05  # the inliers do not determine the homography
    assert of(-30, 1.0, 30, 5, False) > 0.85 > 0.1 > of(3, 1.0, 30, 0, False)
    assert of(-30, 1.0, 30, 29, False) < 0.6


@pytest.mark.parametrize(
    ("evidence", "text"),
    [
        (confidence.Evidence(3.0, 1.0, 6, 5, 9, True), "6 inliers may agree by chance"),
        (confidence.Evidence(-30.0, 40.0, 30, 0, 40, True), "expected error 40 pixels"),
        (confidence.Evidence(-30.0, 1.0, 30, 20, 60, True), "20 inliers: several planes"),
        (confidence.Evidence(-30.0, 1.0, 30, 20, 60, False), "20 inliers: several motions"),
        (confidence.Evidence(-30.0, 1.0, 30, 2, 99, True), "only 30 of 99 matches agree"),
        (confidence.Evidence(-30.0, 1.0, 30, 2, 99, True, "the inliers are on one line"), "line"),
    ],
)
def test_a_weakness_is_named(evidence, text):
    assert text in evidence.weakness


def test_inliers_at_more_distinct_positions_than_all_matches(shifted):
    """Of two matches at one position the first is counted, which may be at a taken one."""
    p, q = (np.repeat(v[:40], 2, 0) for v in (shifted.p, shifted.q))
    q[::2] = q[1]  # every other match is incorrect, comes first, and ends at the same position
    residuals = np.linalg.norm(p + SHIFT - q, axis=1)
    estimate = replace(shifted, p=p, q=q, residuals=residuals, frames=None)
    assert estimate.count_distinct(estimate.inliers) > estimate.distinct
    assert evidence_for(estimate, lambda others: 0).confidence > 0.9
