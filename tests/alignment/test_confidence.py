"""Covariances, and templates that must not be found."""

import numpy as np

import caloric
from caloric.alignment.schedule import SCHEDULE
from template_problems import photograph, problem


def test_covariance_is_one_of_six_numbers_and_small_where_it_fits():
    template, image, _ = problem(degrees=5)
    for model, rank in (("translation", 2), ("similarity", 4), ("affine", 6)):
        found = caloric.align(template, image, model=model)
        C = found.covariance
        np.testing.assert_allclose(C, C.T, atol=1e-9 * np.abs(C).max())
        values = np.linalg.eigvalsh(C)
        assert values.min() > -1e-9 * values.max()
        assert np.sqrt(np.trace(C[[2, 5]][:, [2, 5]])) < 1
        assert (values > 1e-12 * values.max()).sum() <= rank


def test_what_is_not_determined_is_not_known():
    """A straight edge fixes no place along itself."""
    edge = np.where(np.arange(160) < 80, 60, 180).astype(np.uint8) * np.ones((160, 1), np.uint8)
    found = caloric.align(
        edge[40:104, 48:112], edge, model="translation", initial=[[1, 0, 48], [0, 1, 40]]
    )
    assert np.sqrt(found.covariance[5, 5]) > 10 * np.sqrt(found.covariance[2, 2])


def test_what_is_not_there_is_not_found():
    found = caloric.align(photograph("coffee")[80:176, 150:246], photograph())
    assert not found.converged
    assert found.confidence < SCHEDULE.believed
    assert "no agreement" in found.reason


def test_small_and_smooth_templates_are_not_found_elsewhere():
    """They agree with some place in any image; what they do not do is fix it."""
    rng = np.random.default_rng(0)
    elsewhere, image = photograph("coffee"), photograph()
    believed = []
    for size in (24, 32, 48, 64):
        for _ in range(6):
            y, x = rng.integers(0, 360 - size, 2)
            believed.append(caloric.align(elsewhere[y : y + size, x : x + size], image).converged)
    assert sum(believed) <= 1


def test_covariance_is_that_of_repeated_noise():
    template, image, truth = problem(shift=(0.3, -0.4))
    rng = np.random.default_rng(0)
    places, told = [], []
    for _ in range(30):
        noisy = np.clip(image + 6 * rng.standard_normal(image.shape), 0, 255).astype(np.uint8)
        found = caloric.align(template, noisy, model="translation", initial=truth)
        places.append(found.transform[:, 2])
        told.append(found.covariance[[2, 5], [2, 5]])
    scatter = np.std(places, 0)
    predicted = np.sqrt(np.mean(told, 0))
    assert (predicted / scatter > 0.5).all()
    assert (predicted / scatter < 2.5).all()
