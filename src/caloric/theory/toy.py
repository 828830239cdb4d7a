"""The univariate toy problem (eq. 12): find which of two curves is f, and its shift.

The paper plots its curves without defining them. The curves here have the same property: the cost
has a local minimum near (c, θ) = (0, 0) and the global one at (1, 0.25).
"""

from collections.abc import Sequence

import numpy as np

from caloric.theory import diffusion, energy
from caloric.theory.continuation import Path, Step, continuation, descend
from caloric.theory.signals import Bumps
from caloric.types import FloatArray

SUPPORT = (-1.2, 1.2)
SHIFT = 0.25
PENALTY = 1.0
IMAGE = Bumps((0.55, 0.80), (-0.40, 0.55), (0.32, 0.16))
TEMPLATES = (IMAGE.shifted(SHIFT), IMAGE + Bumps((0.45,), (0.05,), (0.14,)))
SIGMAS = (1.5, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1, 0.05, 0.0)
WINDOW = ((-0.5, 1.5), (-0.8, 0.8))


def cost(point: FloatArray, sigma: float = 0.0) -> float:
    """Return the diffused cost g(c, θ; σ)::

        (c² + σ²) Ē₁(θ; σ) + ((1−c)² + σ²) Ē₂(θ; σ) + λ [c²(1−c)² + σ²(6c² − 6c + 1) + 3σ⁴]

    c₂ = 1 − c₁ is eliminated, and the constraint c₁(1 − c₁) = 0 is replaced by a quadratic penalty.
    """
    c, theta = point
    mismatches = [diffusion.intensity_mismatch(IMAGE, p, theta, SUPPORT, sigma) for p in TEMPLATES]
    choice = diffusion.squared_choice([c, 1 - c], sigma)
    return energy.cost(choice, mismatches, PENALTY * diffusion.binary_penalty(c, sigma))


def undiffused_cost(point: FloatArray) -> float:
    """Return eq. 12 computed directly from its energies, equal to :func:`cost` at σ = 0."""
    c, theta = point
    mismatches = [energy.intensity_mismatch(IMAGE, p, theta, SUPPORT) for p in TEMPLATES]
    return energy.cost([c * c, (1 - c) ** 2], mismatches, PENALTY * energy.binary_penalty(c))


def solve(sigmas: Sequence[float] = SIGMAS) -> Path:
    """Return the path of Algorithm 1 on the toy problem, from a coarse grid of seeds."""
    grid = np.stack(np.meshgrid(*(np.linspace(*w, 5) for w in WINDOW)), -1).reshape(-1, 2)
    return continuation(cost, sigmas, grid)


def plain_descent(start: Sequence[float] = (0.0, 0.0)) -> Step:
    """Return the local minimum reached by descent on the undiffused cost."""
    return descend(cost, start)
