"""Whether to believe an alignment, and how exact it is.

Two densities agree by chance, the more easily the smoother they are and the smaller: some place in
a large image always looks like a piece of sky. So the agreement is weighed by how sharply it fixes
the place::

    confidence = 1 / (1 + exp(−(a c + b log s + d)))

c is the median, over the template, of the cosine of both densities around each place, less their
means: a median, because what is covered or changed in less than half of it should not matter. s is
the energy's least curvature along a translation, per place, in units of R: (R/ℓ)² of the length ℓ
over which the template's density stays like itself. The coefficients are those of a logistic
regression of "the mean error is below a pixel" (``caloric bench align --only confidence``).
"""

import cv2
import numpy as np

from caloric.alignment import registration
from caloric.alignment.registration import Evaluation, Level, Model, Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.theory.gaussians import FloatArray


def confidence(of: Scene, transform: FloatArray) -> float:
    """The probability that a transform is right, 0 to 1."""
    c, s = evidence(of, transform)
    return float(
        1
        / (1 + np.exp(-(SCHEDULE.agreement * c + SCHEDULE.sharpness * np.log(s) + SCHEDULE.offset)))
    )


def evidence(of: Scene, transform: FloatArray) -> tuple[float, float]:
    """c and s of the module, by which a transform is believed."""
    at = of.level(SCHEDULE.compared_at, "translation", fine=True)
    here = registration.evaluate(of, at, transform)
    return _agreement(of, at, here), _sharpness(at, here)


def _agreement(of: Scene, at: Level, here: Evaluation) -> float:
    inside = here.weights > 0
    if not inside.any():
        return 0.0
    size = tuple(-(-n // at.stride) for n in at.size)
    width = max(of.radius / 8 / at.stride, 1.0)
    both = [
        np.where(inside, v - v[:, inside].mean(1, keepdims=True), 0)
        for v in (here.values, at.values)
    ]
    across, theirs, own = (
        cv2.GaussianBlur(np.einsum("cn,cn->n", u, v).reshape(size), (0, 0), width).ravel()
        for u, v in (both, (both[0], both[0]), (both[1], both[1]))
    )
    cosines = across / np.sqrt(theirs * own + 1e-9)
    return float(np.median(cosines[inside]))


def _sharpness(at: Level, here: Evaluation) -> float:
    hessian, _ = registration.normal_equations(at, here)
    count = max(int((here.weights > 0).sum()), 1)
    return max(float(np.linalg.eigvalsh(hessian)[0]) / (count * at.power), 1e-6)


def covariance(of: Scene, model: Model, transform: FloatArray) -> FloatArray:
    """Of the transform's six entries: the inverse of the energy's curvature, times the noise."""
    at = of.level(0.0, model, fine=True)
    here = registration.evaluate(of, at, transform)
    hessian, _ = registration.normal_equations(at, here)
    residual = np.float32(here.gain) * here.values - at.values
    total = max(float(here.weights.sum()), 1e-12)
    noise = float((here.weights * (residual**2).mean(0)).sum() / total)
    area = max(1.0, SCHEDULE.correlated / at.stride**2)
    values, vectors = np.linalg.eigh(hessian)
    # What the energy does not change with is not known at all, rather than perfectly.
    known = np.maximum(values, SCHEDULE.undetermined * max(float(values[-1]), 1e-30))
    parameters = noise * area * (vectors / known) @ vectors.T
    moves = np.stack(
        [
            (registration.composed(of, model, transform, 1e-4 * unit) - transform).ravel() / 1e-4
            for unit in np.eye(len(hessian))
        ],
        1,
    )
    return np.asarray(moves @ parameters @ moves.T)
