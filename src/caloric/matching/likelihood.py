"""The likelihood of residuals, and the noise that it determines.

Residuals of correct matches are normally distributed with the deviation σ. A share of them, the
tail, has a deviation larger by a factor: refinement failed, or the texture was poor. Residuals of
other matches are uniform. The logarithm of the likelihood, relative to that of unrelated matches,
is

    Σ log(1 − γ + γ p ((1 − τ) exp(−r² / 2σ²) + τ exp(−r² / 2w²σ²) / wᵏ) / σᵏ)

with the share γ of correct matches, the share τ of the tail, the factor w of its deviation, and the
ratio p of the densities of both kinds. k is 1 for distances from epipolar lines and 2 for those of
points. Of many models, the most likely noise of each is looked up in a table
(:class:`NoiseTable`). The noise of the best is improved by expectation maximization.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, hypot, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.matching import models
from caloric.types import FloatArray, GeometryModel

# Square roots of quantiles of χ² with one and two degrees of freedom.
QUANTILES, _QUANTILES_90 = {1: 2.576, 2: 3.035}, {1: 1.645, 2: 2.146}
_PARAMETERS = {"homography": 8, "affine": 6, "fundamental": 7, "essential": 5}
_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 0.95)
_SIGMA_STEP = 1.5  # ratio of deviations in a table
_LANES = 16  # of the compiled core
MIN_SIGMA = 0.05  # pixels: images and refinement are not more precise
# Shares of the diagonal of an image: the largest deviation from epipolar lines and from planes,
# which may have relief, and the largest distance of an inlier. Matches that were not refined are
# less precise.
_MAX_SIGMA = {False: 0.00025, True: 0.003}
_UNREFINED = 2.0  # ratio of deviations from epipolar lines
_MAX_DISTANCE = {False: 0.0015, True: 0.003}
_BAND = 2 * 2**0.5  # ratio of the width of the band of small residuals to the largest residual


@dataclass(frozen=True)
class Noise:
    """The deviation σ in pixels, and the share γ of correct matches."""

    sigma: float
    share: float


@dataclass(frozen=True)
class Limits:
    """The range of the noise, and constants of the likelihood.

    ``peak`` is the ratio of densities p, ``width`` the factor w of the deviation of the tail,
    ``tail`` its share, and ``max_distance`` the largest Sampson distance of an inlier. The
    ``parameters`` of the model reduce the degrees of freedom of residuals.
    """

    min_sigma: float
    max_sigma: float
    peak: float
    dimensions: int
    parameters: int
    width: float
    tail: float
    max_distance: float
    min_share: float = 0.005
    max_share: float = 0.995

    @classmethod
    def of(
        cls, model: GeometryModel, size: tuple[float, float], max_sigma: float | None = None,
        is_refined: bool = True,
    ) -> "Limits":  # fmt: skip
        """Return the limits for models of images of a size (h, w); they depend on its diagonal."""
        (h, w), planar = size, models.is_planar(model)
        highest = max(_MAX_SIGMA[planar] * hypot(h, w), 2 * MIN_SIGMA)
        highest *= 1.0 if planar or is_refined else _UNREFINED
        highest = highest if max_sigma is None else max_sigma
        lowest, farthest = min(MIN_SIGMA, highest / 2), _MAX_DISTANCE[planar] * hypot(h, w)
        if planar:  # Sampson's distance is that of points, divided by the square root of 2
            return cls(lowest, highest, h * w / (4 * pi), 2, _PARAMETERS[model], 4.0, 0.3, farthest)
        band = _BAND * hypot(h, w)
        return cls(
            lowest, highest, sqrt(2 / pi) * h * w / band, 1, _PARAMETERS[model], 8.0, 0.3, farthest
        )


@dataclass(frozen=True, eq=False)
class NoiseTable:
    """Logarithms (bins, k) of the likelihood of squared residuals, for ``noises`` (k, 2).

    The noises are values of σ and γ. Bins are half octaves from the bin ``first`` on; the last one
    contains infinite and undefined squares.
    """

    noises: FloatArray
    logarithms: NDArray[np.float32]
    first: int

    @classmethod
    @lru_cache(64)
    def of(cls, limits: Limits) -> "NoiseTable":
        """Return the table for the limits of the noise."""
        c = limits
        first = int(_bin_of((c.min_sigma / 4) ** 2))
        bins = int(_bin_of((6 * c.max_sigma) ** 2)) - first + 2
        edges = (np.arange(first, first + bins + 1, dtype=np.int32) << 22).view(np.float32)
        middles = (edges[:-1].astype(np.float64) + edges[1:]) / 2
        middles[0] = 0.0
        number = max(ceil(log(c.max_sigma / c.min_sigma) / log(_SIGMA_STEP) - 1e-9), 0) + 1
        sigmas = np.minimum(c.min_sigma * _SIGMA_STEP ** np.arange(number), c.max_sigma)
        ratios = Likelihood(c).ratios(middles[:, None], sigmas**2)[:, :, None]
        ratios[-1] = 0.0
        shares = np.array(_SHARES)
        logarithms = np.log(1 - shares + shares * ratios).reshape(bins, -1)
        noises = np.stack(np.broadcast_arrays(sigmas[:, None], shares), -1).reshape(-1, 2)
        padding = ((0, -len(noises) % _LANES), (0, 0))  # of the compiled core, by the last noise
        logarithms = np.pad(logarithms.T, padding, "edge").T.astype(np.float32)
        return cls(np.pad(noises, padding, "edge"), np.ascontiguousarray(logarithms), first)

    def find(self, squares: NDArray[np.float32]) -> tuple[float, Noise | None]:
        """Return the highest likelihood of squared residuals (m,), and its noise if it is > 0."""
        last = len(self.logarithms) - 1
        valid = squares >= 0  # not infinite or undefined
        bins = np.where(valid, _bin_of(np.where(valid, squares, 0)) - self.first, last)
        counts = np.bincount(bins.clip(0, last), minlength=last + 1).astype(np.float32)
        likelihoods = counts @ self.logarithms
        best = int(np.argmax(likelihoods))
        if not likelihoods[best] > 0:
            return 0.0, None
        return float(likelihoods[best]), Noise(*self.noises[best].tolist())


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of squared residuals (m,) in square pixels."""

    limits: Limits

    def ratios(self, squares: FloatArray, variances: FloatArray | float) -> FloatArray:
        """Return the densities of correct residuals with variances, relative to unrelated ones."""
        c, k = self.limits, self.limits.dimensions
        relative = squares / variances
        wide = c.tail / c.width**k * np.exp(relative * (-0.5 / c.width**2))
        shape = (1 - c.tail) * np.exp(relative * -0.5) + wide
        return np.asarray(c.peak / variances ** (k / 2) * shape)

    def maximize(
        self,
        squares: FloatArray,
        variances: FloatArray,
        noise: Noise,
        factors: FloatArray | float = 1.0,
        mixed: float = 0.0,
    ) -> tuple[float, Noise, FloatArray]:
        """Take a step of expectation maximization; return the likelihood before it and weights.

        Matches have ``variances`` (m,) in addition to the noise, and ``factors`` (m,) by which they
        count less. The weights (m,) of a fit are inverse variances; for the share ``mixed`` they
        are those of one normal distribution with the same variance.
        """
        c, k = self.limits, self.limits.dimensions
        total = noise.sigma**2 + variances
        relative = np.where(squares < 1e100, squares, 1e100) / total
        peak = c.peak / total ** (k / 2)
        narrow = noise.share * (1 - c.tail) * peak * np.exp(-relative / 2)
        wide = noise.share * c.tail / c.width**k * peak * np.exp(-relative / (2 * c.width**2))
        density = 1 - noise.share + narrow + wide
        probability, weight = (narrow + wide) / density, (narrow + wide / c.width**2) / density
        whole = 1 + c.tail * (c.width**2 - 1)
        weights = factors * ((1 - mixed) * weight + mixed * probability / whole) / total
        correct = float((factors * probability).sum())
        squared = float((factors * np.where(weight > 0, weight * relative, 0)).sum())
        # At least a quarter of the coordinates remain, so that few matches have a finite variance.
        free = max(k * correct - c.parameters, k * correct / 4)
        sigma = noise.sigma * sqrt(squared / (free + 1e-300))
        share = correct / (float(np.sum(factors * np.ones(len(squares)))) + 1e-300)
        updated = Noise(
            min(max(sigma, c.min_sigma), c.max_sigma), min(max(share, c.min_share), c.max_share),
        )  # fmt: skip
        return float((factors * np.log(density)).sum()), updated, weights

    def probabilities(
        self, squares: FloatArray, variances: FloatArray | float, noise: Noise
    ) -> FloatArray:
        """Return the probability (m,) that each match is correct."""
        squares = np.where(np.isfinite(squares), squares, 1e100)
        odds = noise.share * self.ratios(squares, noise.sigma**2 + variances)
        return np.asarray(odds / (1 - noise.share + odds))

    def spread(self, squares: FloatArray, noise: Noise) -> tuple[float, float]:
        """Return the deviation of the residuals of correct matches, and the limit of inliers.

        The deviation is that of a normal distribution with the same 90 % quantile. The limit is the
        99 % quantile of this distribution, but not so large that an incorrect match is more likely
        at it.
        """
        c = self.limits
        squares = np.sort(squares)
        below = np.cumsum(self.probabilities(squares, 0.0, noise))
        quantile = squares[np.searchsorted(below, 0.9 * below[-1])]
        sigma = sqrt(float(quantile)) / _QUANTILES_90[c.dimensions]
        sigma = min(max(sigma, c.min_sigma), c.max_distance / QUANTILES[c.dimensions])
        distances = np.linspace(0, QUANTILES[c.dimensions] * sigma, 100)
        likely = self.probabilities(distances**2, 0.0, noise) >= 0.5
        return sigma, float(distances[likely].max(initial=distances[1]))

    def arguments(self) -> tuple[dict[str, Any], int, FloatArray, NDArray[np.float32]]:
        """Return the constants and the table for the compiled core."""
        constants = {k: v for k, v in vars(self.limits).items() if k != "max_distance"}
        table = NoiseTable.of(self.limits)
        return constants, table.first, table.noises, table.logarithms


def _bin_of(squares: Any) -> Any:
    """Return half octaves: the exponent and the first bit of the mantissa."""
    return np.asarray(squares, np.float32).view(np.int32) >> 22
