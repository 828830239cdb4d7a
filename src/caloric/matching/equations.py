"""Weighted normal equations of a fit, and the mixture that weights residuals.

Residuals of correct matches are normally distributed, with two parts: the error of the match, known
from its covariance, and the error of the model. The deviation of the latter is estimated together
with the share of correct matches, by expectation maximization. Weights are Tukey's biweight of the
residual relative to both.
"""

from dataclasses import dataclass, replace
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.matching import models
from caloric.matching.models import LineFit, PlaneFit, Units
from caloric.runtime import native
from caloric.runtime.indexing import select
from caloric.types import FloatArray, GeometryModel

_CELLS = 10  # across the longer side of an image, to count the matches around a match


@dataclass(frozen=True)
class Loss:
    """How residuals are weighted; lengths are in pixels.

    Residuals up to ``window`` determine the error of the model, which is between ``min_error`` and
    ``max_error``, and the share of correct matches. Weights become 0 at ``limit`` standard
    deviations. Residuals have ``dimensions`` coordinates. ``mixture_steps`` of expectation
    maximization are made each time.
    """

    window: float
    max_error: float
    limit: float
    dimensions: int
    min_error: float = 0.05
    min_share: float = 0.02
    max_share: float = 0.98
    mixture_steps: int = 2

    def times(self, threshold: float) -> "Loss":
        """Return the loss whose window and largest error are multiplied by a threshold."""
        return replace(self, window=self.window * threshold, max_error=self.max_error * threshold)


PLANAR_WINDOW = 7.0  # times the threshold of inliers
PLANAR_LOSS = Loss(PLANAR_WINDOW, 2.0, 8.0, 2)
EPIPOLAR_LOSS = Loss(2.0, 0.5, 4.685, 1)


@dataclass(frozen=True)
class Mixture:
    """Residuals of correct matches are normal with this deviation, others uniform in a window."""

    deviation: float
    share: float = 0.5

    def updated(self, squares: FloatArray, loss: Loss) -> "Mixture":
        """Return the mixture after some steps of expectation maximization, at squares (m,)."""
        deviation, share, k = self.deviation, self.share, loss.dimensions
        squares = squares[squares < loss.window**2]
        for _ in range(loss.mixture_steps):
            relative, odds = loss.window / deviation, share / (1 - share)
            peak = odds * (0.5 * relative**2 if k == 2 else sqrt(2 / pi) * relative)
            ratio = peak * np.exp(-squares / (2 * deviation**2))
            correct = ratio / (1 + ratio)
            count = float(correct.sum())
            variance = float(correct @ squares) / (k * count + 1e-300)
            deviation = min(max(sqrt(variance), loss.min_error), loss.max_error)
            share = min(max(count / max(len(squares), 1), loss.min_share), loss.max_share)
        return Mixture(deviation, share)


@dataclass(frozen=True, eq=False)
class Equations:
    """The Hessian (9, 9) and the gradient (9,) by the entries of a matrix, and the mixture."""

    hessian: FloatArray
    gradient: FloatArray
    mixture: Mixture


@dataclass(frozen=True, eq=False)
class Problem:
    """Matches x and y (m, 2) close to a model, in normalized coordinates, with variances (m,)."""

    x: FloatArray
    y: FloatArray
    variances: FloatArray
    units: Units
    loss: Loss
    planar: bool

    @classmethod
    def of(
        cls, p: FloatArray, q: FloatArray, variances: FloatArray | None, model: GeometryModel,
        residuals: FloatArray, threshold: float,
    ) -> "Problem | None":  # fmt: skip
        """Return the problem of the matches with small residuals, or None if there are none."""
        planar = models.is_planar(model)
        loss = (PLANAR_LOSS if planar else EPIPOLAR_LOSS).times(threshold)
        near = residuals < 2 * loss.window
        if not near.any():
            return None
        p, q = select(p, near), select(q, near)
        variances = np.zeros(len(p)) if variances is None else variances[near]
        units = Units.of(p, q)
        x, y = units.of_points(p), units.of_points(q)
        return cls(x, y, variances, units, loss, planar)

    def with_steps(self, steps: int) -> "Problem":
        """Return the problem with another number of steps of expectation maximization."""
        return replace(self, loss=replace(self.loss, mixture_steps=steps))

    def equations(self, matrix: FloatArray, mixture: Mixture, by_density: bool) -> Equations:
        """Return the normal equations at a matrix (3, 3), in which matches of a cell share weight.

        The mixture is updated before the residuals are weighted.
        """
        core = native.core()
        if core is None:
            return self._by_numpy(matrix, mixture, by_density)
        hessian, gradient = np.empty((9, 9)), np.empty(9)
        deviation, share = core.normal_equations(
            matrix=np.ascontiguousarray(matrix), hessian=hessian, gradient=gradient,
            **self.arguments(mixture, by_density),
        )  # fmt: skip
        return Equations(hessian, gradient, Mixture(deviation, share))

    def arguments(self, mixture: Mixture, by_density: bool) -> dict[str, Any]:
        """Return the arguments of the compiled core that describe the problem."""
        return {
            "x": self.x, "y": self.y, "planar": self.planar, "variances": self.variances,
            "cells": _CELLS, "scale": self.units.scale, "by_density": by_density,
            "mixture": (mixture.deviation, mixture.share), "constants": vars(self.loss),
        }  # fmt: skip

    def _by_numpy(self, matrix: FloatArray, mixture: Mixture, by_density: bool) -> Equations:
        fit = (PlaneFit if self.planar else LineFit).of(matrix, self.x, self.y)
        squares = self.units.scale**2 * fit.squares
        mixture = mixture.updated(squares, self.loss)
        total = mixture.deviation**2 + self.variances
        weights = np.clip(1 - squares / (self.loss.limit**2 * total), 0, None) ** 2 / total
        if by_density:
            weights = weights / _densities(self.x, self.y, weights > 0)
        return Equations(*fit.equations(weights), mixture)


def _densities(x: FloatArray, y: FloatArray, used: NDArray[np.bool_]) -> FloatArray:
    """Return the number of used matches around each match (m,), at least 1.

    It is the mean of the counts in the cells of two grids per image, offset by half a cell.
    """
    counts = np.zeros(len(x))
    for points in (x, y):
        low = points.min(0)
        steps = (points - low) * (_CELLS / max(float((points.max(0) - low).max()), 1e-12))
        for offset in (0.0, 0.5):
            column, row = (steps + offset).astype(np.int64).T
            cells = column + (_CELLS + 2) * row
            counts += np.bincount(cells, used)[cells]
    return np.maximum(counts / 4, 1.0)
