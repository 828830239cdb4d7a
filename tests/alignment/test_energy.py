"""The energy: its gradient, normal equations and gain, for arrays and tensors."""

import numpy as np
import pytest

from caloric.alignment import energy, scenes, transforms
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from template_problems import problem, unit


@pytest.mark.parametrize("fine", [False, True])
def test_the_gradient_agrees_with_finite_differences(fine):
    """Approximately: the derivatives of the template replace those of the warped image."""
    template, image, truth = problem(degrees=3)
    scene = scenes.scene(unit(template), unit(image), fields.feature("orientation"))
    level = scene.level(1.4 if fine else 8.0, "similarity", fine=fine)
    for start in ((0.03, 0.02, 0.01, -0.02), (-0.02, 0.03, -0.02, 0.02)):
        transform = transforms.composed(template.shape, "similarity", truth, np.array(start))
        _, gradient = scene.evaluate(level, transform).normal_equations()
        gradient *= 2 / (level.values.shape[1] * SCHEDULE.robust_scale * level.power)
        h = 2e-3

        def moved(step, start=transform):
            to = transforms.composed(template.shape, "similarity", start, step)
            return scene.evaluate(level, to).energy

        slopes = [(moved(-h * e) - moved(h * e)) / (2 * h) for e in np.eye(4)]
        cosine = gradient @ slopes / np.linalg.norm(gradient) / np.linalg.norm(slopes)
        assert cosine > 0.95
        assert np.linalg.norm(gradient) == pytest.approx(np.linalg.norm(slopes), rel=0.3)


def random_level(model, to=np.asarray):
    rng = np.random.default_rng(0)
    grid = energy.Grid(1.4, model, (12, 15), 1, fine=True)
    values, dx, dy = rng.standard_normal((3, 5, 12, 15)).astype(np.float32)
    x, y = np.linspace(-1, 1, 15, dtype="f4"), np.linspace(-1, 1, 12, dtype="f4")
    xy = to(x[None, None, :]), to(y[None, :, None])
    return energy.level(grid, to(values), (to(dx), to(dy)), xy, (0, 1, 2))


@pytest.mark.parametrize("model", ["translation", "similarity", "affine"])
def test_tensors_and_arrays_have_the_same_energy(model):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(1)
    level, tensor_level = random_level(model), random_level(model, torch.from_numpy)
    warped = level.values + rng.standard_normal(level.values.shape).astype(np.float32)
    outside = rng.random(warped.shape[1]) < 0.2
    for mask in (None, outside):
        a = energy.evaluate(level, warped.copy(), mask)
        tensor_mask = None if mask is None else torch.from_numpy(mask)
        b = energy.evaluate(tensor_level, torch.from_numpy(warped.copy()), tensor_mask)
        assert a.energy == pytest.approx(b.energy, rel=1e-5)
        assert a.noise() == pytest.approx(b.noise(), rel=1e-5)
        np.testing.assert_allclose(a.weights, b.weights, rtol=1e-4)
        for one, other in zip(a.normal_equations(), b.normal_equations(), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
        assert a.cosines(2.0, lambda plane, _: plane) == pytest.approx(
            b.cosines(2.0, lambda plane, _: plane), rel=1e-4
        )


@pytest.mark.parametrize("model", ["translation", "similarity", "affine"])
def test_normal_equations_are_weighted_sums_of_slopes(model):
    level = random_level(model)
    evaluation = energy.evaluate(level, level.values + np.float32(0.1))
    hessian, gradient = evaluation.normal_equations()
    slopes = level.slopes.reshape(len(gradient), *level.values.shape).astype(np.float64)
    weighted = slopes * evaluation.weights
    np.testing.assert_allclose(hessian, np.einsum("icn,jcn->ij", weighted, slopes), rtol=1e-4)
    expected = np.einsum("icn,cn->i", weighted, evaluation.residual)
    np.testing.assert_allclose(gradient, expected, rtol=1e-3, atol=1e-3)


def test_the_gain_of_a_scaled_template_is_recovered():
    level = random_level("affine")
    for factor in (0.7, 1.5):
        evaluation = energy.evaluate(level, factor * level.values)
        assert float(evaluation.gain) == pytest.approx(1 / factor, rel=1e-4)
        assert evaluation.energy == pytest.approx(0, abs=1e-6)
