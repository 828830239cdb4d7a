"""Penalties, costs and the choice of the winner."""

import numpy as np
import pytest

from caloric.theory import diffusion, energy
from gauss_hermite import smoothed


def test_diffused_penalties_are_the_smoothed_penalties():
    c = np.array([0.2, 0.9, -0.1])
    for sigma in (0.0, 0.3):
        for plain, closed in (
            (energy.binary_penalty, diffusion.binary_penalty),
            (energy.choice_penalty, diffusion.choice_penalty),
        ):
            assert closed(c, sigma) == pytest.approx(smoothed(plain, c, sigma, 7), rel=1e-10)


def test_the_penalty_is_zero_only_for_a_single_winner():
    assert energy.choice_penalty([0, 1, 0]) == 0
    for c in ([0, 0, 0], [1, 1, 0], [0.5, 0.5, 0]):
        assert energy.choice_penalty(c) > 0


def test_the_cost_of_a_single_winner_is_its_term():
    c = np.array([0, 1])
    assert energy.cost(c**2, [3.0, 2.0], energy.choice_penalty(c)) == 2.0
    assert energy.cost(c, [-3.0, -2.0], energy.choice_penalty(c)) == -2.0


def test_dissimilarity_and_winner():
    template = energy.OrientationDensity(
        np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([0.0, 1.0]), np.array([2.0, 3.0])
    )
    assert energy.dissimilarity(lambda beta, x: beta + x[:, 0], template) == -6.0
    assert template.heaviest(1).weights.tolist() == [3.0]
    assert energy.winner([[0.1, 0.4], [0.9, 0.2]]) == (1, 0)
