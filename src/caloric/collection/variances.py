"""Estimate the variances of observations from the reprojection errors of their model.

The alignment of two patches estimates a covariance Σ from their remaining difference. Errors that
leave no difference are missing: the relief of the surface shifts a patch by an amount that depends
on the viewing direction, and errors of the camera model shift it as a whole. Both depend on the
images. They are estimated from the reprojection errors, with an angle θ between the viewing
direction and the mean of its point::

    a Σ + (b sin²θ + c) I
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from caloric.collection import scenes
from caloric.collection.aligning import OUTLIER, Aligned
from caloric.collection.scenes import Scene
from caloric.types import FloatArray

_MIN_LENGTH = 3  # observations of a point; two observations hardly have a residual
_MIN_OBSERVATIONS = 100
_MAX_OBSERVATIONS = 100_000  # of which the variances are estimated
_ROUNDS = 3  # of points and variances in turns
_STEPS = 5  # of triangulation
_FREEDOM = 3.0  # degrees of Student's t-distribution of the errors
_DAMPING = 1e-9  # share of the trace added to the diagonal
_MIN_VARIANCE = 1e-12  # square pixels
_MIN_SHARE = 1e-3  # of the alignment, below which a component is 0
_TO_GAUSSIAN = 1.4826  # standard deviation by the median of the absolute value


@dataclass(frozen=True)
class Components:
    """The variances of a model: ``alignment`` is a, ``relief`` and ``common`` are b and c.

    a is a factor; b and c are in square pixels.
    """

    alignment: float = 1.0
    relief: float = 0.0
    common: float = 0.0


def covariances(scene: Scene, aligned: Aligned, components: Components) -> FloatArray:
    """Return the covariances (m, 2, 2) of the observations, infinite if not refined."""
    parts = _parts(scene, aligned.covariances, aligned.refined)
    result = np.diag([np.inf, np.inf]) + np.zeros_like(parts[0])
    values = components.alignment, components.relief, components.common
    result[aligned.refined] = sum(
        value * part[aligned.refined] for value, part in zip(values, parts, strict=True)
    )
    return result


def _parts(
    scene: Scene, alignment: FloatArray, used: NDArray[np.bool_]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the matrices (m, 2, 2) that a, b and c are factors of."""
    centers = np.stack([image.center for image in scene.images])
    directions = centers[scene.image] - scene.points.xyz[scene.point]
    directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-30)
    means = np.zeros((len(scene.points.ids), 3))
    np.add.at(means, scene.point[used], directions[used])
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-30)
    square = 1 - np.clip((directions * means[scene.point]).sum(1), -1, 1) ** 2
    unit = np.broadcast_to(np.eye(2), alignment.shape)
    return alignment, square[:, None, None] * unit, unit


def residuals(scene: Scene, expected: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the residuals (m, 2) of points that are fitted again, and their covariances (m, 2, 2).

    ``expected`` (m, 2, 2) are those of the observations. A residual is smaller than the error,
    because the point is fitted to the observations: with the weights W = Σ⁻¹ and the derivatives J
    by the point, its covariance is Σ − J (Σ Jᵀ W J)⁻¹ Jᵀ.
    """
    count = len(scene.points.ids)
    weights = np.linalg.inv(expected)
    xyz = scene.points.xyz.copy()
    for _ in range(_STEPS):
        at = scenes.project(scene, xyz)
        errors, slopes = scene.xy - at.xy, at.slopes
        weighted = slopes.transpose(0, 2, 1) @ weights
        normal, right = np.zeros((count, 3, 3)), np.zeros((count, 3))
        np.add.at(normal, scene.point, weighted @ slopes)
        np.add.at(right, scene.point, np.einsum("mij,mj->mi", weighted, errors))
        trace = np.trace(normal, axis1=1, axis2=2)
        normal += np.where(trace > 0, _DAMPING * trace, 1)[:, None, None] * np.eye(3)
        inverse = np.linalg.inv(normal)
        xyz = xyz + np.einsum("pij,pj->pi", inverse, right)
    return errors, expected - slopes @ inverse[scene.point] @ slopes.transpose(0, 2, 1)


def deviations(errors: FloatArray, expected: FloatArray) -> FloatArray:
    """Return errors (m, 2) by their standard deviations, given covariances (m, 2, 2)."""
    variances = np.diagonal(expected, axis1=1, axis2=2)
    return np.asarray(np.abs(errors) / np.sqrt(np.maximum(variances, _MIN_VARIANCE)))


def measured(values: FloatArray) -> FloatArray:
    """Return the standard deviation (2,) of absolute values (m, 2), estimated from the median."""
    return np.asarray(_TO_GAUSSIAN * np.median(values, 0))


def redundant(scene: Scene, used: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the used observations of points with at least three of them."""
    length = np.bincount(scene.point, used, minlength=len(scene.points.ids))
    return np.asarray(used & (length >= _MIN_LENGTH)[scene.point])


def _sample(scene: Scene, aligned: Aligned) -> NDArray[np.int64]:
    """Return the refined observations that are no outliers, at most 100,000."""
    errors = scenes.residuals(scene, aligned.xy, scene.points.xyz)
    limit = OUTLIER * np.median(errors[aligned.refined]) if aligned.refined.any() else 0.0
    used = redundant(scene, aligned.refined & (errors <= limit))
    step = 1 + int(used.sum()) // _MAX_OBSERVATIONS
    return np.flatnonzero(used & (scene.point % step == 0))


def estimate(scene: Scene, aligned: Aligned) -> Components:
    """Return the components of a scene with refined observations, after bundle adjustment.

    Maximizes the likelihood of the residuals with Student's t-distribution, and scales the result
    so that the median residual is that of a Gaussian. Without enough points with three refined
    observations, the covariances of the alignment are not changed.
    """
    rows = _sample(scene, aligned)
    if len(rows) < _MIN_OBSERVATIONS:
        return Components()
    part = scenes.part(replace(scene, xy=aligned.xy), rows)
    parts = _parts(part, aligned.covariances[rows], np.ones(len(rows), bool))
    scale = float(np.median(np.diagonal(parts[0], axis1=1, axis2=2)))
    values = np.array([1.0, scale, scale])
    smallest = _MIN_SHARE * values
    for _ in range(_ROUNDS):
        values = np.maximum(values, smallest)
        total = np.einsum("k,kmij->mij", values, np.stack(parts))
        errors, expected = residuals(part, total)
        share = np.diagonal(expected / total, axis1=1, axis2=2).clip(_MIN_VARIANCE, None)
        terms = np.stack([np.diagonal(v, axis1=1, axis2=2) * share for v in parts])

        def variances(logarithms: FloatArray, terms: FloatArray = terms) -> FloatArray:
            return np.asarray(np.tensordot(np.exp(logarithms), terms, 1) + _MIN_VARIANCE)

        def cost(logarithms: FloatArray, squares: FloatArray = errors**2) -> float:
            variance = variances(logarithms)
            tail = (_FREEDOM + 1) * np.log1p(squares / (_FREEDOM * variance))
            return float((np.log(variance) + tail).mean())

        best = minimize(cost, np.log(values), method="Nelder-Mead", options={"xatol": 1e-2}).x
        deviation = measured((np.abs(errors) / np.sqrt(variances(best))).reshape(-1, 1))
        values = np.exp(best) * float(deviation[0]) ** 2
    return Components(*map(float, np.where(values > smallest, values, 0)))
