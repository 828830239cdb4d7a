"""Covariance and confidence of alignments."""

import numpy as np

import caloric
from caloric.alignment.schedule import SCHEDULE
from template_problems import photograph, problem


def test_covariance_has_the_rank_of_the_model_and_is_small():
    template, image, _ = problem(degrees=5)
    for model, rank in (("translation", 2), ("similarity", 4), ("affine", 6)):
        result = caloric.align(template, image, model=model)
        C = result.covariance
        np.testing.assert_allclose(C, C.T, atol=1e-9 * np.abs(C).max())
        values = np.linalg.eigvalsh(C)
        assert values.min() > -1e-9 * values.max()
        assert np.sqrt(np.trace(C[[2, 5]][:, [2, 5]])) < 1
        assert (values > 1e-12 * values.max()).sum() <= rank


def test_undetermined_directions_have_a_large_variance():
    """A straight edge does not determine the position along itself."""
    edge = np.where(np.arange(160) < 80, 60, 180).astype(np.uint8) * np.ones((160, 1), np.uint8)
    noise = np.random.default_rng(0).integers(0, 5, 64, np.uint8)  # constant along the edge
    template, start = edge[40:104, 48:112] + noise, [[1, 0, 48], [0, 1, 40]]
    result = caloric.align(template, edge, model="translation", initial=start)
    assert np.sqrt(result.covariance[5, 5]) > 10 * np.sqrt(result.covariance[2, 2])


def test_a_template_from_another_image_is_not_found():
    result = caloric.align(photograph("coffee")[80:176, 150:246], photograph())
    assert not result.converged
    assert result.confidence < SCHEDULE.reliable_confidence
    assert "not found" in result.reason


def test_small_and_smooth_templates_are_not_found_in_another_image():
    """They resemble some part of any image, but do not determine a position."""
    rng = np.random.default_rng(0)
    other, image = photograph("coffee"), photograph()
    for size in (24, 32, 48):
        for _ in range(3):
            y, x = rng.integers(0, 360 - size, 2)
            assert not caloric.align(other[y : y + size, x : x + size], image).converged


def test_covariance_predicts_the_scatter_under_noise():
    template, image, truth = problem(shift=(0.3, -0.4))
    rng = np.random.default_rng(0)
    positions, variances = [], []
    for _ in range(30):
        noisy = np.clip(image + 6 * rng.standard_normal(image.shape), 0, 255).astype(np.uint8)
        result = caloric.align(template, noisy, model="translation", initial=truth)
        positions.append(result.transform[:, 2])
        variances.append(result.covariance[[2, 5], [2, 5]])
    scatter = np.std(positions, 0)
    predicted = np.sqrt(np.mean(variances, 0))
    assert (predicted / scatter > 0.5).all()
    assert (predicted / scatter < 2.5).all()
