"""Registration: the local minimum of the energy of a scene by Levenberg-Marquardt."""

import numpy as np

from caloric.alignment import transforms
from caloric.alignment.energy import Level
from caloric.alignment.scenes import FineScene
from caloric.alignment.schedule import SCHEDULE
from caloric.theory.continuation import Step
from caloric.types import FloatArray


def minimize(scene: FineScene, level: Level, transform: FloatArray) -> Step:
    """Return a local minimum of E(·; σ) near a transform."""
    how, template, grid = SCHEDULE.damping, scene.shapes[0], level.grid
    damping, trials, resting = how.start, 0, False
    unit = max(grid.sigma, SCHEDULE.finest)
    current = scene.evaluate(level, transform)
    while trials < SCHEDULE.steps and not resting:
        hessian, gradient = current.normal_equations()
        diagonal = np.diag(hessian.diagonal() + how.relative * np.trace(hessian) + how.absolute)
        improved = False
        while trials < SCHEDULE.steps and not improved:
            trials += 1
            step = np.asarray(np.linalg.solve(hessian + damping * diagonal, gradient), np.float64)
            shift = float(np.abs(step).max()) * transforms.radius(template)
            candidate = transforms.composed(template, grid.model, transform, step)
            if transforms.plausible(candidate):
                trial = scene.evaluate(level, candidate)
                improved = trial.energy < current.energy
            if improved:
                transform, current = candidate, trial
                damping = max(damping / how.fall, how.lowest)
            else:
                damping = max(how.rise * damping, how.raised)
                if shift < SCHEDULE.stuck * unit:
                    break
        resting = not improved or shift < SCHEDULE.at_rest * unit
    converged = resting or shift < SCHEDULE.nearly_at_rest * unit
    return Step(grid.sigma, transform, current.energy, converged)
