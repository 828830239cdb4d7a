"""Alignment by intensity: the energy and its results."""

import numpy as np
import pytest

import photographs
from caloric.theory import intensity, toy


def test_intensity_solves_the_sampled_toy_problem():
    samples, support = np.linspace(-2, 2, 401), np.linspace(*toy.SUPPORT, 241)
    result = intensity.match(
        toy.IMAGE(samples), [p(support) for p in toy.TEMPLATES], start=[80.0],
        sigmas=(1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.03, 0.0),
    )  # fmt: skip
    assert result.template == 0
    # f(x + θ) here, but f(x − θ) in the toy problem: 0.25 corresponds to −25 samples.
    assert result.offset[0] == pytest.approx(80 - 25, abs=0.1)
    np.testing.assert_allclose(result.choice, [1, 0], atol=1e-3)


def camera():
    return photographs.gray("camera")[::4, ::4] / 255


def test_intensity_finds_a_patch_of_a_photograph():
    image = camera()
    patches = [image[40:72, 50:82], image[70:102, 20:52], image[30:62, 80:112]]
    rng = np.random.default_rng(0)
    noisy = image + 0.02 * rng.standard_normal(image.shape)
    result = intensity.match(noisy, patches, start=[42.0, 48.5])
    assert result.template == 0
    np.testing.assert_allclose(result.offset, [40, 50], atol=0.2)
    assert [s.sigma for s in result.path.steps] == list(intensity.SIGMAS)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_intensity_energy_is_smoothed_and_has_the_correct_gradient(dimensions):
    image = camera() if dimensions == 2 else camera()[40]
    cut = np.s_[40:72] if dimensions == 1 else np.s_[40:72, 50:82]
    problem = intensity.Problem(image, np.stack([image[cut], image[cut][::-1]]), 0.3)
    point = np.array([0.3, 0.6, *(2.3, 3.1)[:dimensions]])
    for sigma in (0.0, 0.1, 0.3):
        cost = problem.diffused(sigma)
        h = 1e-5
        slopes = [(cost(point + h * e)[0] - cost(point - h * e)[0]) / (2 * h)
                  for e in np.eye(len(point))]  # fmt: skip
        np.testing.assert_allclose(cost(point)[1], slopes, rtol=1e-6, atol=1e-7)
    plain, sigma, count = problem.diffused(0.0), 0.1, 6000 if dimensions == 1 else 1500
    draws = point + sigma * np.random.default_rng(1).standard_normal((count, len(point)))
    values = np.array([plain(draw)[0] for draw in draws])
    assert abs(problem.diffused(sigma)(point)[0] - values.mean()) < 4 * values.std() / count**0.5


@pytest.mark.parametrize(
    ("image", "templates", "match"),
    [
        (np.zeros((9, 9, 9)), [np.zeros((5, 5))], "1 or 2 dimensions"),
        (np.zeros((9, 9)), [np.zeros(5)], "as many dimensions"),
        (np.zeros(9), [np.full(5, np.nan)], "NaN"),
        (np.zeros(9), [np.zeros(3)], "at least 4"),
        (np.zeros(9), [np.zeros(12)], "larger"),
    ],
)
def test_invalid_arguments_are_reported(image, templates, match):
    with pytest.raises(ValueError, match=match):
        intensity.match(image, templates)
