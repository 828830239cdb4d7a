"""The fit of a model to matches: Gauss-Newton steps that alternate with those of the noise.

No scene is exactly planar and no lens exactly a pinhole, so that residuals consist of the errors of
matches, which are independent, and the error of the model, which is the same for neighboring
matches. The correlation ρ of the residuals of two matches of a region is estimated. n matches of a
region are then worth as much as n / (1 + (n − 1) ρ) independent ones, and each gets a factor of
1 / (1 + (n − 1) ρ): with ρ = 0 all matches count the same, with ρ = 1 all regions, so that the
model is fitted to the whole overlap of the images and not to the region with the most texture.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from caloric.matching.likelihood import Likelihood, Noise
from caloric.matching.models import Fit, Model
from caloric.types import FloatArray

_CELLS = 10  # across the longer side of the matches, to count those around a match
_MIN_VARIANCE = 1e-6  # square pixels, of matches that are exact
_RIDGE = 1e-12  # share of the trace that is added to the Hessian
_TOLERANCE = 3e-5  # length of the last step
_MAX_STEP = 0.2  # largest length
# A share of ρ: with all of it, planes with little relief are more precise, and others less.
_CORRELATION = 0.5


@dataclass(frozen=True, eq=False)
class Adjustment:
    """Matches x and y (m, 2) in normalized coordinates, to which a model is fitted.

    Residuals times ``scale`` are in pixels; ``variances`` (m,) of positions are in square pixels.
    ``factors`` (m,) follow from the ``correlation`` of residuals: see the module.
    """

    x: FloatArray
    y: FloatArray
    variances: FloatArray
    scale: float
    likelihood: Likelihood
    correlation: float = 0.0
    factors: FloatArray = field(default_factory=lambda: np.ones(1))

    def _fit(self, model: Model) -> tuple[Fit, FloatArray]:
        """Return the residuals of a model, and their squares (m,) in square pixels."""
        fit = model.fit(self.x, self.y)
        return fit, self.scale**2 * fit.squares

    def moved(self, model: Model, noise: Noise) -> tuple[Model, Noise, bool]:
        """Return the model and the noise after a step, and whether another one is useful."""
        fit, squares = self._fit(model)
        _, noise, weights = self.likelihood.maximize(
            squares, self.variances, noise, self.factors, self.correlation
        )
        hessian, gradient = _equations(model, fit, weights)
        try:
            step = np.asarray(-np.linalg.solve(hessian, gradient), np.float64)
        except np.linalg.LinAlgError:
            return model, noise, False
        if not np.isfinite(step).all():
            return model, noise, False
        length = float(np.linalg.norm(step))
        step *= min(1.0, _MAX_STEP / max(length, 1e-300))
        return model.moved(step), noise, length >= _TOLERANCE

    def evaluated(self, model: Model, noise: Noise, steps: int) -> tuple[float, Noise]:
        """Return the likelihood of a model and the noise after some steps of maximization."""
        _, squares = self._fit(model)
        for _ in range(steps):
            _, noise, _ = self.likelihood.maximize(squares, self.variances, noise)
        return self.likelihood.maximize(squares, self.variances, noise)[0], noise

    def decorrelated(self, model: Model, noise: Noise) -> "Adjustment":
        """Return the same with the factors at the residuals of a model."""
        fit, squares = self._fit(model)
        _, _, weights = self.likelihood.maximize(squares, self.variances, noise)
        weighted = self.scale * fit.residuals * np.sqrt(weights[:, None] * fit.precisions)
        numbers = np.minimum(weights * (noise.sigma**2 + self.variances), 1.0)
        weighted = np.where(weights[:, None] > 0, weighted, 0)
        around, correlation = _neighborhoods((self.x, self.y), numbers, weighted)
        correlation = _CORRELATION * min(max(correlation, 0.0), 1.0)
        factors = 1 / (1 + correlation * np.maximum(around - 1, 0.0))
        return replace(self, correlation=correlation, factors=factors)

    def covariance(self, model: Model, noise: Noise) -> FloatArray | None:
        """Return the covariance (9, 9) of the entries of the matrix, None if not determined.

        Each correct match has the variance of all: weights that depend on its residual would
        promise too much.
        """
        fit, squares = self._fit(model)
        limits = self.likelihood.limits
        weights = self.factors * self.likelihood.probabilities(squares, self.variances, noise)
        free = max(1 - limits.parameters / (limits.dimensions * len(squares)), 0.25)
        total = float(weights @ np.where(weights > 0, squares, 0))
        mean = total / (limits.dimensions * float(weights.sum()) * free + 1e-300)
        hessian, _ = _equations(model, fit, weights)
        if model.kind == "homography":  # defined up to scale
            flat = model.matrix.ravel()
            hessian += np.trace(hessian) * np.outer(flat, flat)
        hessian *= self.scale**2 / max(mean, _MIN_VARIANCE)
        changes = model.changes.reshape(-1, 9)
        try:
            covariance = np.asarray(changes.T @ np.linalg.solve(hessian, changes))
        except np.linalg.LinAlgError:
            return None
        return covariance if np.isfinite(covariance).all() else None


def _equations(model: Model, fit: Fit, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the Hessian (n, n) and the gradient (n,) by the parameters of a model.

    Parameters that the matches do not determine get a small second derivative.
    """
    with np.errstate(all="ignore"):
        entries, slopes = fit.equations(weights)
    changes = model.of_residuals(model.changes).reshape(-1, 9)
    hessian = changes @ entries @ changes.T
    hessian += _RIDGE * np.trace(hessian) * np.eye(len(changes))
    return hessian, changes @ slopes


def _neighborhoods(
    points: tuple[FloatArray, FloatArray], numbers: FloatArray, z: FloatArray
) -> tuple[FloatArray, float]:
    """Return the number of matches around each match (m,), and the correlation of residuals.

    Both are means over the cells of two grids per image, offset by half a cell. Matches count as
    ``numbers`` (m,) up to 1; the correlation is that of the weighted residuals ``z`` (m, d) of two
    matches of a cell.
    """
    around, pairs, products, side = np.zeros(len(z)), 0.0, 0.0, _CELLS + 2
    norms = (z**2).sum(1)
    for xy in points:
        low = xy.min(0)
        steps = (xy - low) * (_CELLS / max(float((xy.max(0) - low).max()), 1e-12))
        for offset in (0.0, 0.5):
            column, row = (steps + offset).astype(np.int64).T
            index = column + side * row
            number, squares = (np.bincount(index, v, side**2) for v in (numbers, norms))
            sums = sum(np.bincount(index, v, side**2) ** 2 for v in z.T)
            full = number >= 2
            # Pairs are divided by the number of matches of their cell.
            pairs += float((number[full] - 1).sum())
            products += float(((sums - squares)[full] / number[full]).sum())
            around += number[index] / 4
    total = float(norms.sum())
    if not (pairs > 0 and total > 0):
        return around, 0.0
    return around, products / pairs / (total / float(numbers.sum()))


def constants() -> dict[str, float]:
    """Return the constants for the compiled core."""
    return {
        "cells": _CELLS, "ridge": _RIDGE, "tolerance": _TOLERANCE, "max_step": _MAX_STEP,
        "correlation": _CORRELATION
    }  # fmt: skip
