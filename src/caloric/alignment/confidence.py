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

import numpy as np

from caloric.alignment import transforms
from caloric.alignment.scenes import FineScene
from caloric.alignment.schedule import SCHEDULE
from caloric.types import FloatArray, TransformModel


def confidence(scene: FineScene, transform: FloatArray) -> float:
    """Return the probability that a transform is correct, 0 to 1."""
    c, s = evidence(scene, transform)
    log_odds = SCHEDULE.agreement * c + SCHEDULE.sharpness * np.log(s) + SCHEDULE.offset
    return float(1 / (1 + np.exp(-log_odds)))


def evidence(scene: FineScene, transform: FloatArray) -> tuple[float, float]:
    """Return c and s, defined above, of a transform."""
    level = scene.level(SCHEDULE.compared_at, "translation", fine=True)
    evaluation = scene.evaluate(level, transform)
    around = transforms.radius(scene.shapes[0]) * SCHEDULE.compared_around
    width = max(around / level.grid.stride, 1.0)
    hessian, _ = evaluation.normal_equations()
    lowest = float(np.linalg.eigvalsh(hessian)[0])
    count = max(int(evaluation.inside.sum()), 1)
    sharpness = max(lowest / (count * level.power), SCHEDULE.least_sharpness)
    return scene.cosines(evaluation, width), sharpness


def covariance(scene: FineScene, model: TransformModel, transform: FloatArray) -> FloatArray:
    """Return the covariance (6, 6) of the transform: the noise times the inverse curvature."""
    level = scene.level(0.0, model, fine=True)
    evaluation = scene.evaluate(level, transform)
    hessian, _ = evaluation.normal_equations()
    area = max(1.0, SCHEDULE.correlated / level.grid.stride**2)
    values, vectors = np.linalg.eigh(hessian)
    # Directions without curvature are undetermined: their variance is large but finite.
    known = np.maximum(values, SCHEDULE.undetermined * max(float(values[-1]), 1e-30))
    parameters = scene.noise(evaluation) * area * (vectors / known) @ vectors.T
    template, h = scene.shapes[0], 1e-4
    moves = np.stack(
        [
            (transforms.composed(template, model, transform, h * unit) - transform).ravel() / h
            for unit in np.eye(len(hessian))
        ],
        1,
    )
    return np.asarray(moves @ parameters @ moves.T)
