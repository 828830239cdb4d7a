"""The confidence and the covariance of an alignment.

Two densities may agree by chance, more easily the smoother and smaller they are: some place in a
large image always looks like a piece of sky. The agreement is therefore combined with the sharpness
of the energy minimum::

    confidence = 1 / (1 + exp(−(a c + b log s + d)))

c is the median, over the template, of the cosine between the two densities around each place, with
their means removed; a median, because occlusions and changes of less than half of the template
should not matter. s is the smallest curvature of the energy along a translation, per sample, in
units of R: (R/ℓ)² for the length ℓ over which the density of the template stays similar to itself.
The coefficients are those of a logistic regression of "the mean error is below a pixel"
(``python -m tools align --only confidence``).
"""

import cv2
import numpy as np

from caloric.alignment import registration
from caloric.alignment.registration import Evaluation, Level, Model, Scene
from caloric.alignment.schedule import SCHEDULE
from caloric.theory.gaussians import FloatArray


def confidence(scene: Scene, transform: FloatArray) -> float:
    """Return the probability that a transform is correct, 0 to 1."""
    c, s = evidence(scene, transform)
    return float(
        1
        / (1 + np.exp(-(SCHEDULE.agreement * c + SCHEDULE.sharpness * np.log(s) + SCHEDULE.offset)))
    )


def evidence(scene: Scene, transform: FloatArray) -> tuple[float, float]:
    """Return c and s, defined above, of a transform."""
    level = scene.level(SCHEDULE.compared_at, "translation", fine=True)
    evaluation = registration.evaluate(scene, level, transform)
    return _agreement(scene, level, evaluation), _sharpness(level, evaluation)


def _agreement(scene: Scene, level: Level, evaluation: Evaluation) -> float:
    inside = evaluation.weights > 0
    if not inside.any():
        return 0.0
    size = tuple(-(-n // level.stride) for n in level.size)
    width = max(scene.radius / 8 / level.stride, 1.0)
    both = [
        np.where(inside, v - v[:, inside].mean(1, keepdims=True), 0)
        for v in (evaluation.values, level.values)
    ]
    across, of_image, of_template = (
        cv2.GaussianBlur(np.einsum("cn,cn->n", u, v).reshape(size), (0, 0), width).ravel()
        for u, v in (both, (both[0], both[0]), (both[1], both[1]))
    )
    cosines = across / np.sqrt(of_image * of_template + 1e-9)
    return float(np.median(cosines[inside]))


def _sharpness(level: Level, evaluation: Evaluation) -> float:
    hessian, _ = registration.normal_equations(level, evaluation)
    count = max(int((evaluation.weights > 0).sum()), 1)
    return max(float(np.linalg.eigvalsh(hessian)[0]) / (count * level.power), 1e-6)


def covariance(scene: Scene, model: Model, transform: FloatArray) -> FloatArray:
    """Return the covariance (6, 6) of the transform: the noise times the inverse curvature."""
    level = scene.level(0.0, model, fine=True)
    evaluation = registration.evaluate(scene, level, transform)
    hessian, _ = registration.normal_equations(level, evaluation)
    residual = np.float32(evaluation.gain) * evaluation.values - level.values
    total = max(float(evaluation.weights.sum()), 1e-12)
    noise = float((evaluation.weights * (residual**2).mean(0)).sum() / total)
    area = max(1.0, SCHEDULE.correlated / level.stride**2)
    values, vectors = np.linalg.eigh(hessian)
    # Directions without curvature are undetermined: their variance is large but finite.
    known = np.maximum(values, SCHEDULE.undetermined * max(float(values[-1]), 1e-30))
    parameters = noise * area * (vectors / known) @ vectors.T
    moves = np.stack(
        [
            (registration.composed(scene, model, transform, 1e-4 * unit) - transform).ravel() / 1e-4
            for unit in np.eye(len(hessian))
        ],
        1,
    )
    return np.asarray(moves @ parameters @ moves.T)
