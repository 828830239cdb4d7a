"""Correlated residuals of neighboring matches count less."""

import numpy as np
import pytest

from caloric.matching import models
from caloric.matching.adjustment import Adjustment
from caloric.matching.likelihood import Likelihood, Limits, Noise
from caloric.matching.models import Model


def adjustment(p, q):
    units = models.Units.of(p, q)
    likelihood = Likelihood(Limits.of("homography", (800, 1000)))
    task = Adjustment(
        units.of_points(p), units.of_points(q), np.zeros(len(p)), units.scale, likelihood
    )
    return task, Model.of("homography", units.normalized("homography", np.eye(3)), None)


def test_independent_residuals_are_not_correlated():
    rng = np.random.default_rng(0)
    p = rng.uniform(0, [1000, 800], (2000, 2))
    task, model = adjustment(p, p + rng.normal(0, 0.4, p.shape))
    result = task.decorrelated(model, Noise(0.3, 0.9))
    assert result.correlation < 0.03
    assert result.factors.min() > 0.5


def test_residuals_of_a_bent_surface_are_correlated():
    rng = np.random.default_rng(0)
    dense = rng.uniform(0, 200, (1500, 2))
    p = np.concatenate([dense, rng.uniform(0, [1000, 800], (500, 2))])
    task, model = adjustment(p, p + 0.8 * np.sin(p / 150))
    result = task.decorrelated(model, Noise(0.5, 0.9))
    assert result.correlation > 0.3
    # A match of the dense region counts much less.
    assert np.median(result.factors[:1500]) < 0.2 * np.median(result.factors[1500:])


@pytest.mark.parametrize("count", [4, 40])
def test_steps_reduce_residuals(count):
    rng = np.random.default_rng(1)
    p = rng.uniform(0, [1000, 800], (count, 2))
    truth = np.array([[1.02, 0.01, 3], [-0.01, 0.99, -2], [1e-6, 2e-6, 1]])
    task, model = adjustment(p, models.mapped(p, truth))
    noise = Noise(2.0, 0.9)
    for _ in range(30):
        model, noise, goes_on = task.moved(model, noise)
        if not goes_on:
            break
    units = models.Units.of(p, models.mapped(p, truth))
    fitted = units.finish("homography", model.matrix)
    assert np.abs(models.mapped(p, fitted) - models.mapped(p, truth)).max() < 0.05
