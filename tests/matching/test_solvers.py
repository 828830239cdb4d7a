"""Samples of matches determine models."""

import numpy as np
import pytest

from caloric.matching.estimation import _FRAMES, POINTS
from caloric.matching.models import Units, residual
from caloric.matching.solvers import Solver
from two_view_scenes import MODELS, K, cameras, scene


def solver_of(frames, model):
    p, q = (maps[:, :, 2] for maps in frames)
    units = Units.of(p, q)
    known = cameras(model)
    in_units = None if known is None else [units.unit @ k for k in known]
    solver = Solver.of(units.of_points(p), units.of_points(q), model, in_units, frames, units)
    return solver, units


def largest_residual(solutions, frames, model, units):
    p, q = (maps[:, :, 2] for maps in frames)
    finished = [units.finish(model, matrix) for matrix in solutions]
    residuals = [residual(p, q, model, matrix, cameras(model)).max() for matrix in finished]
    return min(residuals, default=np.inf)


@pytest.mark.parametrize("by_frames", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_most_samples_of_exact_matches_give_the_true_model(model, by_frames):
    rng = np.random.default_rng(0)
    frames, _ = scene(model, rng, 40, noise=0, shapes=0)
    solver, units = solver_of(frames, model)
    size = (_FRAMES if by_frames else POINTS)[model]
    errors = [
        largest_residual(
            solver.models(rng.permutation(40)[:size], by_frames, None), frames, model, units
        )
        for _ in range(40)
    ]
    # A few samples are degenerate, and steps to an essential matrix may end elsewhere.
    assert (np.array(errors) < 1e-3).mean() > (0.5 if model == "essential" else 0.9)


@pytest.mark.parametrize("model", ["fundamental", "essential"])
def test_a_plane_and_two_other_matches_determine_an_epipolar_geometry(model):
    rng = np.random.default_rng(1)
    frames, _ = scene(model, rng, 40, noise=0, shapes=0)
    solver, units = solver_of(frames, model)
    # Any homography that agrees with the epipolar geometry: that of a plane of the scene.
    truth = scene(model, np.random.default_rng(1), 3, noise=0)[1]
    u, _, vt = np.linalg.svd(truth if model == "essential" else K.T @ truth @ K)
    quarter_turn = np.array([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    rotation = max((u @ w @ vt for w in (quarter_turn, quarter_turn.T)), key=np.trace)
    plane = units.normalized("homography", K @ rotation @ np.linalg.inv(K))
    errors = [
        largest_residual(solver.parallax(rng.permutation(40)[:2], plane), frames, model, units)
        for _ in range(10)
    ]
    assert np.median(errors) < 1e-6


def test_dependent_equations_give_no_model():
    frames, _ = scene("fundamental", np.random.default_rng(0), 9, noise=0)
    same = tuple(np.repeat(maps[:1], 9, 0) for maps in frames)
    for model in ("homography", "fundamental"):
        solver, _ = solver_of(same, model)
        with np.errstate(all="ignore"):
            solved = solver.models(np.arange(POINTS[model]), False, None)
        assert all(not np.isfinite(m).all() or model == "homography" for m in solved)
