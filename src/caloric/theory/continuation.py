"""Algorithm 1: optimization by diffusion and continuation.

Blur the cost until it has a single minimum, find it, and track it while the blur decreases to 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from caloric.types import FloatArray

Cost = Callable[[FloatArray, float], float]
Gradient = Callable[[FloatArray, float], FloatArray]
_SEEDS = 3  # seeds from which the first minimum is searched for


@dataclass(frozen=True, eq=False)
class Step:
    """The minimizer at one σ."""

    sigma: float
    point: FloatArray
    cost: float
    converged: bool


@dataclass(frozen=True, eq=False)
class Path:
    """The minimizers of Algorithm 1, from the largest σ to the smallest."""

    steps: tuple[Step, ...]

    @property
    def point(self) -> FloatArray:
        """x_n (dim,), the output of the algorithm."""
        return self.steps[-1].point

    @property
    def cost(self) -> float:
        """g(x_n; σ_n), the undiffused cost if the sequence ends at 0."""
        return self.steps[-1].cost


def descend(
    cost: Cost,
    start: ArrayLike,
    sigma: float = 0.0,
    *,
    gradient: Gradient | None = None,
    bounds: Sequence[tuple[float, float]] | None = None,
    method: str = "L-BFGS-B",
) -> Step:
    """Return the local minimizer of g(·; σ) reached from ``start`` (dim,) by SciPy's ``method``."""
    from scipy.optimize import minimize

    result = minimize(
        lambda x: cost(x, sigma),
        np.asarray(start, np.float64),
        jac=None if gradient is None else lambda x: gradient(x, sigma),
        method=method,
        bounds=bounds,
    )
    return Step(sigma, np.asarray(result.x), float(result.fun), bool(result.success))


def global_minimum(
    cost: Cost,
    seeds: ArrayLike,
    sigma: float,
    *,
    gradient: Gradient | None = None,
    bounds: Sequence[tuple[float, float]] | None = None,
    method: str = "L-BFGS-B",
) -> Step:
    """Return the lowest minimum of g(·; σ) reached from the three best of ``seeds`` (n, dim).

    If g is convex, one seed is enough.
    """
    points = np.atleast_2d(np.asarray(seeds, np.float64))
    best = sorted(range(len(points)), key=lambda i: cost(points[i], sigma))[:_SEEDS]
    steps = [
        descend(cost, points[i], sigma, gradient=gradient, bounds=bounds, method=method)
        for i in best
    ]
    return min(steps, key=lambda step: step.cost)


def follow(
    sigmas: Sequence[float], start: FloatArray, minimize: Callable[[FloatArray, float], Step]
) -> Path:
    """Return the path of step 3 of Algorithm 1: each search starts at the previous minimum.

    ``minimize(point, sigma)`` returns the local minimum of g(·; σ) near a point.
    """
    if len(sigmas) == 0 or any(b >= a for a, b in pairwise(sigmas)):
        raise ValueError("sigmas must be a decreasing sequence, for example (1, 0.5, 0.2, 0)")
    steps = []
    for sigma in sigmas:
        steps.append(minimize(start, sigma))
        start = steps[-1].point
    return Path(tuple(steps))


def continuation(
    cost: Cost,
    sigmas: Sequence[float],
    seeds: ArrayLike,
    *,
    gradient: Gradient | None = None,
    bounds: Sequence[tuple[float, float]] | None = None,
    method: str = "L-BFGS-B",
) -> Path:
    """Return the path of Algorithm 1 for any diffused cost g(x; σ).

    1. σ₀ > σ₁ > … > σ_n, usually ending at 0, where g is the cost itself
       (the paper prints lim σ→∞; it is σ→0, erratum 14).
    2. x₀ = the global minimizer of g(·; σ₀), searched for from ``seeds`` (n, dim).
    3. x_k = the local minimizer of g(·; σ_k) reached from x_{k−1}.
    """
    if len(sigmas) == 0:
        raise ValueError("sigmas must be a decreasing sequence, for example (1, 0.5, 0.2, 0)")
    first = global_minimum(cost, seeds, sigmas[0], gradient=gradient, bounds=bounds, method=method)

    def local(point: FloatArray, sigma: float) -> Step:
        if sigma == sigmas[0]:
            return first
        return descend(cost, point, sigma, gradient=gradient, bounds=bounds, method=method)

    return follow(sigmas, first.point, local)
