"""The compiled core and NumPy give the same residuals and normal equations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.bench.speed import setting
from caloric.matching import models
from caloric.matching.equations import Mixture, Problem
from caloric.runtime import native

needs_core = pytest.mark.skipif(native.core() is None, reason="needs the compiled core")
H = np.array([[1.1, 0.1, -30], [-0.05, 0.95, 20], [1e-4, -5e-5, 1]])
F = np.array([[0, -1e-6, 2e-3], [2e-6, 0, -0.01], [-3e-3, 0.011, 0.2]])


def problem(model, seed, count):
    """Return matches close to a model and far from it, and the matrix in their units."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0, [1000, 800], (count, 2))
    q = models.mapped(p, H) + rng.normal(0, 1, p.shape) * rng.choice([0.3, 5], (count, 1))
    variances = rng.uniform(0, 0.5, count)
    result = Problem.of(p, q, variances, model, np.zeros(count), 2.0)
    matrix = H if model == "homography" else F
    return result, result.units.start(model, matrix, None).matrix


@needs_core
@settings(max_examples=30, deadline=None)
@given(
    model=st.sampled_from(["homography", "fundamental"]), seed=st.integers(0, 10_000),
    count=st.integers(1, 300), by_density=st.booleans(),
)  # fmt: skip
def test_normal_equations_agree_with_numpy(model, seed, count, by_density):
    matches, matrix = problem(model, seed, count)
    compiled = matches.equations(matrix, Mixture(4.0), by_density)
    plain = matches._by_numpy(matrix, Mixture(4.0), by_density)
    for name in ("hessian", "gradient"):
        expected = getattr(plain, name)
        close = 1e-9 * max(np.abs(expected).max(), 1e-30)
        np.testing.assert_allclose(getattr(compiled, name), expected, rtol=0, atol=close)
    assert compiled.mixture.deviation == pytest.approx(plain.mixture.deviation, rel=1e-9)
    assert compiled.mixture.share == pytest.approx(plain.mixture.share, rel=1e-9)


@needs_core
@pytest.mark.parametrize("model", ["homography", "affine", "fundamental"])
def test_residuals_agree_with_numpy(model):
    rng = np.random.default_rng(0)
    p, q = rng.uniform(0, 1000, (2, 500, 2))
    matrix = {"homography": H, "affine": H[:2], "fundamental": F}[model]
    compiled = models.residual(p, q, model, matrix)
    with setting(**{native.SETTING: "0"}):
        plain = models.residual(p, q, model, matrix)
    np.testing.assert_allclose(compiled, plain, rtol=1e-9)


def test_the_mixture_finds_the_deviation_and_the_share_of_correct_matches():
    rng = np.random.default_rng(0)
    loss = problem("homography", 0, 10)[0].loss
    correct = (rng.normal(0, 0.8, (700, 2)) ** 2).sum(1)
    radius = loss.window * np.sqrt(rng.uniform(0, 1, 300))
    mixture = Mixture(4.0)
    for _ in range(20):
        mixture = mixture.updated(np.concatenate([correct, radius**2]), loss)
    assert mixture.deviation == pytest.approx(0.8, rel=0.05)
    assert mixture.share == pytest.approx(0.7, abs=0.03)


def test_matches_in_a_crowd_share_their_weight():
    rng = np.random.default_rng(0)
    crowd, others = rng.uniform(0, 20, (200, 2)), rng.uniform(200, 1000, (10, 2))
    p = np.concatenate([crowd, others])
    matches = Problem.of(p, p, None, "homography", np.zeros(len(p)), 2.0)
    traces = [
        np.trace(matches.equations(np.eye(3), Mixture(1.0), d).hessian) for d in (False, True)
    ]
    assert traces[1] < 0.2 * traces[0]


@needs_core
def test_invalid_arguments_of_the_core_are_rejected():
    core, points, eye = native.core(), np.zeros((3, 2)), np.eye(3)
    loss = vars(problem("homography", 0, 10)[0].loss)

    def equations(**changes):
        arguments = {
            "x": points, "y": points, "matrix": eye, "planar": True, "variances": np.zeros(3),
            "cells": 10, "scale": 1.0, "by_density": True, "mixture": (1.0, 0.5),
            "constants": loss, "hessian": np.zeros((9, 9)), "gradient": np.zeros(9),
        }  # fmt: skip
        return core.normal_equations(**(arguments | changes))

    equations()
    for changes in (
        {"y": points[:2]}, {"variances": np.zeros(2)}, {"cells": 0}, {"x": points * np.nan},
        {"constants": loss | {"unknown": 1.0}}, {"x": points[:0], "y": points[:0]},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r".+"):
            equations(**changes)
    with pytest.raises(ValueError, match="as many points"):
        core.square_residuals(points, points[:2], eye, True)
