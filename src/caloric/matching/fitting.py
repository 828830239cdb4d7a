"""The last fit of a geometry: robust nonlinear least squares over all matches.

Gauss-Newton steps minimize Tukey's biweight of Sampson's distances, which are symmetric in the two
images.

No scene is exactly planar and no lens exactly a pinhole, so the residuals of correct matches have
two parts: the error of the match, known from its covariance, and the error of the model, whose
standard deviation is estimated from the residuals together with the share of correct matches. The
error of the model is systematic: it is the same for neighboring matches. Therefore each match of a
planar model is weighted by the inverse of the density of matches around it, so that the model is
fitted to the whole overlap of the images and not to the region with the most texture. (Doing so
only as far as residuals of neighbors are equal was slower, better on exact planes and worse on
others.)
"""

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from numpy.typing import NDArray

from caloric.matching import models
from caloric.matching.models import Fit, PlaneFit, Units
from caloric.types import FloatArray, GeometryModel

_STEPS = 15
_TOLERANCE = 1e-5  # largest change of a parameter in the last step
_MIN_MODEL_ERROR = 0.05  # pixels: smallest standard deviation of the error of the model
_MIXTURE_STEPS = 2  # of the estimation of that deviation, per Gauss-Newton step
_CELLS = 10  # across the longer side of an image, to count the matches around a match
_RIDGE = 1e-12  # share of the trace that is added to the Hessian
_UNREFINED_ERROR = 0.3  # pixels: error of a match that was not refined


def variances(covariances: FloatArray) -> FloatArray:
    """Return the mean variances (m,) of matches with covariances (m, 2, 2), in square pixels."""
    variance = np.trace(covariances, axis1=1, axis2=2) / 2
    return np.where(np.isfinite(variance), variance, _UNREFINED_ERROR**2)


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matched points p and q (m, 2), and the kind of model to estimate from them.

    ``cameras`` are the calibration matrices (3, 3) of both images, for an essential matrix;
    ``variances`` (m,) of the matched positions are in square pixels; ``frames`` are the frames
    (m, 2, 3) in both images, if known.
    """

    p: FloatArray
    q: FloatArray
    model: GeometryModel
    cameras: list[FloatArray] | None = None
    variances: FloatArray | None = None
    frames: tuple[FloatArray, FloatArray] | None = None

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.p)

    @property
    def planar(self) -> bool:
        """Whether the model maps points to points."""
        return models.is_planar(self.model)


@dataclass(frozen=True)
class _Loss:
    """How residuals are weighted; lengths are multiples of the threshold of inliers.

    Residuals up to ``window`` determine the error of the model, which is at most ``max_error``.
    Weights become 0 at ``limit`` standard deviations. Residuals have ``dimensions`` coordinates.
    """

    window: float
    max_error: float
    limit: float
    dimensions: int


PLANAR_WINDOW = 7.0
_PLANAR_LOSS = _Loss(PLANAR_WINDOW, 2.0, 8.0, 2)
_EPIPOLAR_LOSS = _Loss(2.0, 0.5, 4.685, 1)


@dataclass(frozen=True)
class _Mixture:
    """Residuals of correct matches are normal with this deviation, others uniform in a window."""

    deviation: float
    share: float

    def updated(self, sizes: FloatArray, threshold: float, loss: _Loss) -> "_Mixture":
        """Return the mixture after some steps of expectation maximization."""
        deviation, share, k = self.deviation, self.share, loss.dimensions
        squares = sizes**2
        window, highest = loss.window * threshold, loss.max_error * threshold
        for _ in range(_MIXTURE_STEPS):
            peak = (
                share / (1 - share) * (0.5 if k == 2 else sqrt(2 / pi)) * (window / deviation) ** k
            )
            ratio = peak * np.exp(-squares / (2 * deviation**2))
            correct = ratio / (1 + ratio)
            count = float(correct.sum())
            variance = float(correct @ squares) / (k * count + 1e-300)
            deviation = min(max(sqrt(variance), _MIN_MODEL_ERROR), highest)
            share = min(max(count / max(len(sizes), 1), 0.02), 0.98)
        return _Mixture(deviation, share)


@dataclass(frozen=True, eq=False)
class _Problem:
    """The matches close to a model, in normalized coordinates, and how they are weighted."""

    x: FloatArray
    y: FloatArray
    variances: FloatArray
    cells: list[NDArray[np.intp]]
    units: Units
    threshold: float
    loss: _Loss

    @classmethod
    def of(
        cls, matches: Correspondences, matrix: FloatArray, threshold: float
    ) -> "_Problem | None":
        """Return the problem of the matches close to a model, or None if there are none."""
        loss = _PLANAR_LOSS if matches.planar else _EPIPOLAR_LOSS
        p, q, model = matches.p, matches.q, matches.model
        residuals = models.residual(p, q, model, matrix, matches.cameras)
        near = residuals < 2 * loss.window * threshold
        if not near.any():
            return None
        p, q = p[near], q[near]
        variances = np.zeros(len(p)) if matches.variances is None else matches.variances[near]
        units = Units.of(p, q)
        return cls(
            units.of_points(p), units.of_points(q), variances, _cells(p, q), units, threshold, loss
        )

    def density(self, weights: FloatArray) -> FloatArray:
        """Return the number of weighted matches (m,) around each match, at least 1."""
        used = (weights > 0).astype(np.float64)
        counts = sum(np.bincount(cell, used)[cell] for cell in self.cells)
        return np.maximum(counts / len(self.cells), 1.0)

    def weights(self, fit: Fit | PlaneFit, mixture: _Mixture) -> tuple[FloatArray, _Mixture]:
        """Return the weights (m,) of matches at the residuals of a fit, and the mixture there."""
        squares = self.units.scale**2 * fit.squares
        sizes = np.sqrt(squares[squares < (self.loss.window * self.threshold) ** 2])
        mixture = mixture.updated(sizes, self.threshold, self.loss)
        total = mixture.deviation**2 + self.variances
        weights = np.clip(1 - squares / (self.loss.limit**2 * total), 0, None) ** 2
        return weights / total, mixture


def fit(matches: Correspondences, matrix: FloatArray, threshold: float) -> FloatArray:
    """Return the matrix of the model at the local minimum reached from ``matrix``.

    ``threshold`` is the largest residual of an inlier, in pixels. The iteration stops if a step is
    not finite.
    """
    problem = _Problem.of(matches, matrix, threshold)
    if problem is None:
        return matrix
    current = problem.units.start(matches.model, matrix, matches.cameras)
    mixture = _Mixture(problem.loss.max_error * threshold, 0.5)
    for _ in range(_STEPS):
        fit = current.at(problem.x, problem.y)
        weights, mixture = problem.weights(fit, mixture)
        if matches.planar:
            weights = weights / problem.density(weights)
        hessian, gradient = fit.equations(weights)
        free = len(current.changes)
        hessian, gradient = hessian[:free, :free], gradient[:free]
        try:
            step = -np.linalg.solve(hessian + _RIDGE * np.trace(hessian) * np.eye(free), gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        current = current.moved(step)
        if np.abs(step).max() < _TOLERANCE:
            break
    return problem.units.finish(matches.model, current.matrix)


def covariance(matches: Correspondences, matrix: FloatArray, threshold: float) -> FloatArray | None:
    """Return the covariance of the entries of a fitted matrix: (9, 9), or (6, 6) for "affine".

    Errors of the model are the same for neighboring matches, so that many matches in one region
    count as one.
    """
    problem = _Problem.of(matches, matrix, threshold)
    if problem is None:
        return None
    current = problem.units.start(matches.model, matrix, matches.cameras)
    fit = current.at(problem.x, problem.y)
    mixture = _Mixture(problem.loss.max_error * threshold, 0.5)
    for _ in range(_MIXTURE_STEPS):
        weights, mixture = problem.weights(fit, mixture)
    weights = problem.units.scale**2 * weights / problem.density(weights)
    free = len(current.changes)
    hessian = fit.equations(weights)[0][:free, :free]
    if not np.isfinite(hessian).all():
        return None
    trace = float(np.trace(hessian))
    if matches.model == "homography":  # its norm does not matter
        hessian = hessian + trace * np.outer(current.matrix, current.matrix)
    try:
        # Parameters that the matches do not determine get a large variance.
        inverse = np.linalg.inv(hessian + _RIDGE * trace * np.eye(free))
    except np.linalg.LinAlgError:
        return None
    finish = problem.units.finish
    changes = np.stack([finish(matches.model, change).ravel() for change in current.changes])
    return np.asarray(changes.T @ inverse @ changes)


def _cells(p: FloatArray, q: FloatArray) -> list[NDArray[np.intp]]:
    """Return the cell (m,) of each match in two grids per image, offset by half a cell."""
    cells = []
    for points in (p, q):
        low = points.min(0)
        size = max(float((points.max(0) - low).max()), 1.0) / _CELLS
        for offset in (0.0, 0.5):
            x, y = np.floor((points - low) / size + offset).astype(np.intp).T
            cells.append(x + (_CELLS + 2) * y)
    return cells


def score(residuals: FloatArray, threshold: float) -> float:
    """Return the number of inliers, weighted by 1 − (residual / threshold)²."""
    return float(np.clip(1 - (residuals / threshold) ** 2, 0, None).sum())
