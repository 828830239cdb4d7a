"""The noise of residuals is the most likely one."""

import numpy as np
import pytest

from caloric.matching.likelihood import Likelihood, Limits, Noise, NoiseTable

SIZE = (800, 1000)


def residuals(planar, sigma, share, rng, count=4000, tail=0.0):
    """Return squared Sampson distances (m,) of correct and of unrelated matches."""
    limits = Limits.of("homography" if planar else "fundamental", SIZE)
    deviations = np.where(rng.random(count) < tail, limits.width, 1.0) * sigma
    squares = (rng.normal(0, 1, (count, limits.dimensions)) ** 2).sum(1) * deviations**2
    unrelated = rng.random(count) >= share
    if planar:  # positions in the image; Sampson's distance is divided by the square root of 2
        positions = rng.uniform(0, SIZE[::-1], (count, 2))
        other = ((positions - [500, 400]) ** 2).sum(1) / 2
    else:
        other = rng.uniform(0, 200, count) ** 2
    return np.where(unrelated, other, squares), limits


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize(("sigma", "share"), [(0.1, 0.9), (0.2, 0.5), (0.4, 0.2)])
def test_the_noise_is_found_from_any_start(planar, sigma, share):
    # Noise with the tail that is assumed.
    tail = Limits.of("homography" if planar else "fundamental", SIZE).tail
    squares, limits = residuals(planar, sigma, share, np.random.default_rng(0), tail=tail)
    likelihood = Likelihood(limits)
    highest, noise = NoiseTable.of(limits).find(squares.astype(np.float32))
    assert highest > 0
    assert sigma / 1.6 < noise.sigma < 1.6 * sigma
    for start in (0.5 * sigma, 2 * sigma):
        noise = Noise(start, 0.5)
        for _ in range(60):
            _, noise, weights = likelihood.maximize(squares, np.zeros(len(squares)), noise)
        assert noise.sigma == pytest.approx(sigma, rel=0.2)
        assert noise.share == pytest.approx(share, abs=0.06)
        assert weights[squares > 2500].max() < 1e-6


@pytest.mark.parametrize("planar", [False, True])
def test_each_step_of_maximization_raises_the_likelihood(planar):
    squares, limits = residuals(planar, 0.2, 0.6, np.random.default_rng(1), tail=0.3)
    likelihood, noise = Likelihood(limits), Noise(1.0, 0.3)
    values = []
    for _ in range(20):
        value, noise, _ = likelihood.maximize(squares, np.zeros(len(squares)), noise)
        values.append(value)
    assert (np.diff(values) > -1e-6 * np.abs(values[-1])).all()


def test_the_table_has_the_likelihood_of_its_noise():
    squares, limits = residuals(False, 0.3, 0.7, np.random.default_rng(2))
    likelihood = Likelihood(limits)
    highest, noise = NoiseTable.of(limits).find(squares.astype(np.float32))
    exact, _, _ = likelihood.maximize(squares, np.zeros(len(squares)), noise)
    assert highest == pytest.approx(exact, rel=0.02)  # squares are in bins


@pytest.mark.parametrize("planar", [False, True])
def test_inliers_are_99_percent_of_the_correct_matches(planar):
    rng = np.random.default_rng(3)
    squares, limits = residuals(planar, 0.2, 0.7, rng, 20_000)
    likelihood, noise = Likelihood(limits), Noise(0.2, 0.5)
    for _ in range(50):
        _, noise, _ = likelihood.maximize(squares, np.zeros(len(squares)), noise)
    sigma, limit = likelihood.spread(squares, noise)
    assert sigma == pytest.approx(0.2, rel=0.1)
    assert (np.sqrt(squares) <= limit).mean() == pytest.approx(0.7, abs=0.03)
    # An incorrect match is as likely at the limit, if few matches are correct.
    assert likelihood.spread(squares, Noise(0.2, 0.005))[1] < limit
    # The limit is bounded, relative to the size of the image.
    wide = likelihood.spread(squares * 100, Noise(limits.max_sigma, 0.9))
    assert wide[1] <= 1.001 * limits.max_distance


def test_unrelated_residuals_have_no_noise():
    squares = np.random.default_rng(4).uniform(0, 300, 500).astype(np.float32) ** 2
    table = NoiseTable.of(Limits.of("fundamental", SIZE))
    highest, _ = table.find(squares)
    assert highest < 10
    invalid = np.full(50, np.nan, np.float32)
    assert table.find(invalid) == (0.0, None)
