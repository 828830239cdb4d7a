"""The last fit of a geometry: robust nonlinear least squares over all matches.

Gauss-Newton steps minimize Tukey's biweight of Sampson's distances, which are symmetric in the two
images.

No scene is exactly planar and no lens exactly a pinhole, so the residuals of correct matches have
two parts: the error of the match, known from its covariance, and the error of the model, whose
standard deviation is estimated from the residuals together with the share of correct matches. The
error of the model is systematic: it is the same for neighboring matches. Therefore each match of a
planar model is weighted by the inverse of the density of matches around it, so that the model is
fitted to the whole overlap of the images and not to the region with the most texture. (Weighting
only matches with correlated residuals was slower, better on exact planes and worse on others.)
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caloric.matching import models
from caloric.matching.equations import Mixture, Problem
from caloric.matching.models import Model
from caloric.runtime import native
from caloric.types import FloatArray, GeometryModel

_STEPS = 15
_TOLERANCE = 3e-5  # largest change of a parameter in the last step
_RIDGE = 1e-12  # share of the trace that is added to the Hessian
_MIN_TRUSTED = 20  # inliers that suffice for a fit
_UNREFINED_ERROR = 0.3  # pixels: error of a match that was not refined


def variances(covariances: FloatArray) -> FloatArray:
    """Return the mean variances (m,) of matches with covariances (m, 2, 2), in square pixels."""
    variance = (covariances[:, 0, 0] + covariances[:, 1, 1]) / 2
    return np.where(np.isfinite(variance), variance, _UNREFINED_ERROR**2)


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matched points p and q (m, 2), and the kind of model to estimate from them.

    ``cameras`` are the calibration matrices (3, 3) of both images, for an essential matrix;
    ``variances`` (m,) of the matched positions are in square pixels; ``frames`` are the frames
    (m, 2, 3) in both images, if known. Only ``trusted`` matches (m,) are fitted if they suffice.
    """

    p: FloatArray
    q: FloatArray
    model: GeometryModel
    cameras: list[FloatArray] | None = None
    variances: FloatArray | None = None
    frames: tuple[FloatArray, FloatArray] | None = None
    trusted: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.p)

    @property
    def planar(self) -> bool:
        """Whether the model maps points to points."""
        return models.is_planar(self.model)

    def residuals(self, matrix: FloatArray) -> FloatArray:
        """Return the residual (m,) of each match: see :func:`caloric.matching.models.residual`."""
        return models.residual(self.p, self.q, self.model, matrix, self.cameras)


def fit(
    matches: Correspondences,
    matrix: FloatArray,
    threshold: float,
    residuals: FloatArray | None = None,
) -> FloatArray:
    """Return the matrix of the model at the local minimum reached from ``matrix``.

    ``threshold`` is the largest residual of an inlier, in pixels; ``residuals`` (m,) are those of
    ``matrix``, if they are known. The iteration stops if a step is not finite.
    """
    problem = _problem(matches, matrix, threshold, residuals)
    if problem is None:
        return matrix
    current = problem.units.start(matches.model, matrix, matches.cameras)
    descend = _by_numpy if native.core() is None or current.state is None else _by_core
    fitted = descend(problem, current, Mixture(problem.loss.max_error))
    return _scaled(matches.model, problem.units.finish(matches.model, fitted))


def _by_core(problem: Problem, current: Model, mixture: Mixture) -> FloatArray:
    """Return the fitted matrix (3, 3), in normalized coordinates."""
    matrix = np.empty((3, 3))
    native.core().fit(
        matrix=matrix, state=current.state, parameters=len(current.changes),
        fit_constants={"steps": _STEPS, "tolerance": _TOLERANCE, "ridge": _RIDGE},
        **problem.arguments(mixture, by_density=problem.planar),
    )  # fmt: skip
    return matrix


def _by_numpy(problem: Problem, current: Model, mixture: Mixture) -> FloatArray:
    for _ in range(_STEPS):
        hessian, gradient, mixture = _equations(problem, current, mixture, problem.planar)
        try:
            step = np.asarray(-np.linalg.solve(hessian, gradient), np.float64)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        current = current.moved(step)
        if np.abs(step).max() < _TOLERANCE:
            break
    return current.matrix


def _scaled(model: GeometryModel, matrix: FloatArray) -> FloatArray:
    """Return a homography divided by its last entry, as OpenCV's are, unless that is almost 0."""
    if model != "homography" or abs(matrix[2, 2]) < 1e-9 * np.abs(matrix).max():
        return matrix
    return np.asarray(matrix / matrix[2, 2])


def covariance(
    matches: Correspondences,
    matrix: FloatArray,
    threshold: float,
    residuals: FloatArray | None = None,
) -> FloatArray | None:
    """Return the covariance of the entries of a fitted matrix: (9, 9), or (6, 6) for "affine".

    The arguments are those of :func:`fit`. Errors of the model are the same for neighboring
    matches, so that many matches in one region count as one.
    """
    problem = _problem(matches, matrix, threshold, residuals)
    if problem is None:
        return None
    current = problem.units.start(matches.model, matrix, matches.cameras)
    mixture = Mixture(problem.loss.max_error)
    hessian, _, _ = _equations(problem.with_steps(4), current, mixture, by_density=True)
    hessian = problem.units.scale**2 * hessian
    if not np.isfinite(hessian).all():
        return None
    if matches.model == "homography":  # it is defined up to scale
        hessian = hessian + np.trace(hessian) * np.outer(current.matrix, current.matrix)
    try:
        inverse = np.linalg.inv(hessian)
    except np.linalg.LinAlgError:
        return None
    changes = problem.units.finish(matches.model, current.changes).reshape(len(hessian), -1)
    finished = problem.units.finish(matches.model, current.matrix)
    scale = float((matrix * finished).sum() / (finished**2).sum())
    return np.asarray(scale**2 * changes.T @ inverse @ changes)


def _problem(
    matches: Correspondences, matrix: FloatArray, threshold: float, residuals: FloatArray | None
) -> Problem | None:
    if residuals is None:
        residuals = matches.residuals(matrix)
    trusted = matches.trusted
    if trusted is not None and (trusted & (residuals <= threshold)).sum() >= _MIN_TRUSTED:
        residuals = np.where(trusted, residuals, np.inf)
    return Problem.of(matches.p, matches.q, matches.variances, matches.model, residuals, threshold)


def _equations(
    problem: Problem, current: Model, mixture: Mixture, by_density: bool
) -> tuple[FloatArray, FloatArray, Mixture]:
    """Return the Hessian (d, d) and the gradient (d,) by the parameters, and the mixture.

    Parameters that the matches do not determine get a small second derivative, and thus a large
    variance.
    """
    entries = problem.equations(current.in_units(current.matrix), mixture, by_density)
    slopes = current.in_units(current.changes).reshape(-1, 9)
    hessian = slopes @ entries.hessian @ slopes.T
    hessian += _RIDGE * np.trace(hessian) * np.eye(len(slopes))
    return hessian, slopes @ entries.gradient, entries.mixture


def score(residuals: FloatArray, threshold: float) -> float:
    """Return the number of inliers, weighted by 1 − (residual / threshold)²."""
    return float(np.clip(1 - (residuals / threshold) ** 2, 0, None).sum())
