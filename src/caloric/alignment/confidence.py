"""The confidence and the covariance of an alignment.

Two densities may agree by chance, and the smoother and smaller they are, the more likely it is: a
patch of sky resembles some part of any large image. The agreement is therefore combined with the
sharpness of the energy minimum::

    confidence = 1 / (1 + exp(−(a c + b log s + d)))

c is the median, over the template, of the cosine between the two densities around each point, with
their means removed. The median ignores occlusions and changes of less than half of the template. s
is the smallest curvature of the energy under a translation, per sample, in units of R: (R/ℓ)² for
the length ℓ over which the density of the template stays similar to itself. The coefficients are
those of a logistic regression on whether the mean error is below one pixel
(``python -m tools align --only confidence``).
"""

import numpy as np

from caloric.alignment import transforms
from caloric.alignment.scenes import FineScene
from caloric.alignment.schedule import SCHEDULE
from caloric.types import FloatArray, TransformModel


def confidence(scene: FineScene, transform: FloatArray) -> float:
    """Return the probability that the mean error of a transform is below one pixel."""
    c, s = evidence(scene, transform)
    log_odds = SCHEDULE.agreement * c + SCHEDULE.sharpness * np.log(s) + SCHEDULE.offset
    return float(1 / (1 + np.exp(-log_odds)))


def evidence(scene: FineScene, transform: FloatArray) -> tuple[float, float]:
    """Return the agreement c and the sharpness s of a transform (see the module docstring)."""
    level = scene.level(SCHEDULE.comparison_sigma, "translation", fine=True)
    evaluation = scene.evaluate(level, transform)
    pixels = transforms.radius(scene.shapes[0]) * SCHEDULE.comparison_width
    width = max(pixels / level.grid.stride, 1.0)
    hessian, _ = evaluation.normal_equations()
    lowest = float(np.linalg.eigvalsh(hessian)[0])
    count = max(int(evaluation.inside.sum()), 1)
    sharpness = max(lowest / (count * level.power), SCHEDULE.min_sharpness)
    return scene.cosines(evaluation, width), sharpness


def covariance(scene: FineScene, model: TransformModel, transform: FloatArray) -> FloatArray:
    """Return the covariance (6, 6) of the transform: the noise times the inverse curvature."""
    level = scene.level(0.0, model, fine=True)
    evaluation = scene.evaluate(level, transform)
    hessian, _ = evaluation.normal_equations()
    area = max(1.0, SCHEDULE.noise_area / level.grid.stride**2)
    values, vectors = np.linalg.eigh(hessian)
    # The variance along directions without curvature is large but finite.
    curvatures = np.maximum(values, SCHEDULE.min_curvature * max(float(values[-1]), 1e-30))
    parameters = scene.noise(evaluation) * area * (vectors / curvatures) @ vectors.T
    template, h = scene.shapes[0], 1e-4
    moves = np.stack(
        [
            (transforms.composed(template, model, transform, h * unit) - transform).ravel() / h
            for unit in np.eye(len(hessian))
        ],
        1,
    )
    return np.asarray(moves @ parameters @ moves.T)
