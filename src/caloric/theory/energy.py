"""Matching as energy minimization over the template and its transformation.

Both energies have the same form (eqs. 11 and 17): the mismatch between each template p_k and the
image f moved by τ_θ, weighted by a choice c and summed over k, plus a penalty that makes c select a
single template.

* intensity:    Σ_k c_k² ∫ (f(τ_θ x) − p_k(x))² dx
* orientation:  Σ_k c_k d(f ∘ τ_θ, p_k),  d = −∫∫ h(β, x; f ∘ τ_θ) h(β, x; p_k) dβ dx
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from caloric.types import FloatArray

Signal = Callable[[FloatArray], FloatArray]
Density = Callable[[FloatArray, FloatArray], FloatArray]


@lru_cache
def _legendre(nodes: int) -> tuple[FloatArray, FloatArray]:
    return np.polynomial.legendre.leggauss(nodes)


def integrate(function: Signal, interval: tuple[float, float], nodes: int = 200) -> float:
    """Return the integral over the interval by Gauss-Legendre quadrature, for smooth functions."""
    x, weights = _legendre(nodes)
    low, high = interval
    half = (high - low) / 2
    return float(half * (weights @ function(low + half * (x + 1))))


def intensity_mismatch(
    image: Signal, template: Signal, theta: float, support: tuple[float, float]
) -> float:
    """Return E(θ) = ∫ (f(x − θ) − p(x))² dx over the template's support (eq. 12)."""
    return integrate(lambda x: (image(x - theta) - template(x)) ** 2, support)


def binary_penalty(c: ArrayLike) -> float:
    """Return Σ_k c_k² (1 − c_k)², which is 0 only if every c_k is 0 or 1 (constraint of eq. 11)."""
    c = np.asarray(c, np.float64)
    return float(np.sum((c * (1 - c)) ** 2))


def choice_penalty(c: ArrayLike) -> float:
    """Return (Σ_k c_k − 1)² + Σ_k c_k² (1 − c_k)², which is 0 only for a single winner (eq. 11)."""
    return (float(np.sum(c)) - 1) ** 2 + binary_penalty(c)


def cost(weights: ArrayLike, terms: ArrayLike, penalty: float) -> float:
    """Return Σ_k w_k E_k + q.

    This is eq. 11 with w = c² and mismatches E, and eq. 17 with w = c and dissimilarities E.
    """
    return float(np.asarray(weights, np.float64) @ np.asarray(terms, np.float64)) + penalty


@dataclass(frozen=True, eq=False)
class OrientationDensity:
    """The gradient-orientation density h(β, x; f) = Ш(∠∇f(x) − β) |∇f(x)| as a measure (eq. 14).

    It is a sum of point masses at ``points`` (n, 2) with directions ``angles`` (n,). Their masses
    ``weights`` (n,) are |∇f| times the area that each point represents.
    """

    points: FloatArray
    angles: FloatArray
    weights: FloatArray

    def heaviest(self, count: int) -> "OrientationDensity":
        """Return the ``count`` points of largest weight, in their original order."""
        keep = np.sort(np.argsort(-self.weights, kind="stable")[:count])
        return OrientationDensity(self.points[keep], self.angles[keep], self.weights[keep])


def diffused_density(
    kernel: Callable[[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray],
    image: OrientationDensity,
) -> Density:
    """Return the image's density smoothed by a kernel: h(β, x) = ∫ K(β, x; φ, y) dh(φ, y).

    The result is a function that maps β (n,) and x (n, 2) to values (n,).
    """

    def density(beta: FloatArray, x: FloatArray) -> FloatArray:
        values = kernel(beta[:, None], x[:, None, :], image.angles, image.points)
        return np.asarray(values @ image.weights)

    return density


def dissimilarity(diffused: Density, template: OrientationDensity) -> float:
    """Return d = −∫∫ h_f(β, x) h_p(β, x) dβ dx (eq. 15), with h_f diffused and h_p the raw measure.

    The product of two raw densities is a product of Dirac combs, which is undefined; one of them
    must be smooth. The paper's boxed solutions have this form: h_SIFT or h_heat times h(p_k).
    """
    return -float(template.weights @ diffused(template.angles, template.points))


def winner(scores: Sequence[Sequence[float]]) -> tuple[int, int]:
    """Return (j*, k*), the candidate and the template of the highest score (eqs. 18 to 21, boxed).

    ``scores[j][k]`` is ⟨h_diffused(f_j), h(p_k)⟩. With a penalty that enforces a single winner,
    minimizing over c is equivalent to this choice.
    """
    table = np.asarray(scores, np.float64)
    j, k = np.unravel_index(int(np.argmax(table)), table.shape)
    return int(j), int(k)
