"""Registration: minimize the energy of a scene locally by Levenberg-Marquardt."""

import numpy as np

from caloric.alignment import transforms
from caloric.alignment.energy import Level
from caloric.alignment.scenes import FineScene
from caloric.alignment.schedule import SCHEDULE
from caloric.runtime import progress
from caloric.theory.continuation import Step
from caloric.types import FloatArray


def minimize(scene: FineScene, level: Level, transform: FloatArray) -> Step:
    """Return the local minimum of E(·; σ) reached from a transform."""
    constants, template, grid = SCHEDULE.damping, scene.shapes[0], level.grid
    damping, trials, finished = constants.start, 0, False
    unit = max(grid.sigma, SCHEDULE.min_step_unit)
    current = scene.evaluate(level, transform)
    while trials < SCHEDULE.max_steps and not finished:
        progress.check()
        hessian, gradient = current.normal_equations()
        diagonal = np.diag(
            hessian.diagonal() + constants.relative * np.trace(hessian) + constants.absolute
        )
        improved = False
        while trials < SCHEDULE.max_steps and not improved:
            trials += 1
            step = np.asarray(np.linalg.solve(hessian + damping * diagonal, gradient), np.float64)
            shift = float(np.abs(step).max()) * transforms.radius(template)
            candidate = transforms.composed(template, grid.model, transform, step)
            if transforms.plausible(candidate):
                trial = scene.evaluate(level, candidate)
                improved = trial.energy < current.energy
            if improved:
                transform, current = candidate, trial
                damping = max(damping / constants.decrease, constants.minimum)
            else:
                damping = max(constants.increase * damping, constants.min_increased)
                if shift < SCHEDULE.stalled_step * unit:
                    break
        finished = not improved or shift < SCHEDULE.step_tolerance * unit
    converged = finished or shift < SCHEDULE.converged_step * unit
    return Step(grid.sigma, transform, current.energy, converged)
