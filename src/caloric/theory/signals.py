"""Sums of Gaussian bumps, which can be diffused and squared in closed form."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from caloric.types import FloatArray


@dataclass(frozen=True)
class Bumps:
    """The signal f(x) = Σ_i a_i exp(−(x − m_i)² / 2s_i²) in one dimension."""

    heights: tuple[float, ...]
    centers: tuple[float, ...]
    widths: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check that there are as many heights as centers and widths."""
        if not len(self.heights) == len(self.centers) == len(self.widths):
            raise ValueError("heights, centers and widths must have the same length")

    def __call__(self, x: ArrayLike) -> FloatArray:
        """Return the signal at x, which may have any shape."""
        u = (np.asarray(x, np.float64)[..., None] - np.array(self.centers)) / np.array(self.widths)
        return np.asarray(np.exp(-0.5 * u * u) @ np.array(self.heights))

    def __add__(self, other: "Bumps") -> "Bumps":
        """Return the sum of two signals."""
        return Bumps(
            self.heights + other.heights,
            self.centers + other.centers,
            self.widths + other.widths,
        )

    def shifted(self, theta: float) -> "Bumps":
        """Return f(x − θ), shifted to the right for θ > 0 (the paper says left, erratum 14)."""
        return Bumps(self.heights, tuple(m + theta for m in self.centers), self.widths)

    def blurred(self, sigma: float) -> "Bumps":
        """Return f ⋆ k_σ: each bump keeps its area and widens to √(s² + σ²)."""
        wider = tuple(float(np.hypot(s, sigma)) for s in self.widths)
        heights = tuple(a * s / b for a, s, b in zip(self.heights, self.widths, wider, strict=True))
        return Bumps(heights, self.centers, wider)

    def squared(self) -> "Bumps":
        """Return f², a sum of bumps because the product of two bumps is a bump."""
        bumps = list(zip(self.heights, self.centers, self.widths, strict=True))
        products = []
        for a, m, s in bumps:
            for b, n, t in bumps:
                total = s * s + t * t
                products.append(
                    (
                        a * b * float(np.exp(-0.5 * (m - n) ** 2 / total)),
                        (m * t * t + n * s * s) / total,
                        s * t / float(np.sqrt(total)),
                    )
                )
        heights, centers, widths = zip(*products, strict=True)
        return Bumps(heights, centers, widths)
