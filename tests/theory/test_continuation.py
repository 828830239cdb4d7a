"""Algorithm 1 and the toy problem."""

import numpy as np
import pytest

from caloric.theory import toy
from caloric.theory.continuation import continuation, descend
from caloric.theory.signals import Bumps
from gauss_hermite import smoothed


def test_bumps_are_blurred_squared_and_shifted_exactly():
    f = Bumps((0.5, -0.3), (0.1, 0.6), (0.2, 0.4))
    t, weights = np.polynomial.hermite_e.hermegauss(60)
    for x in (-0.4, 0.0, 0.9):
        blurred = f(x - 0.3 * t) @ weights / weights.sum()
        assert f.blurred(0.3)(x) == pytest.approx(blurred, rel=1e-9)
        assert f.squared()(x) == pytest.approx(f(x) ** 2, rel=1e-12)
        assert f.shifted(0.25)(x) == pytest.approx(f(x - 0.25), rel=1e-12)


def test_bumps_need_as_many_heights_as_centers():
    with pytest.raises(ValueError, match="same length"):
        Bumps((1.0,), (0.0, 1.0), (1.0,))


@pytest.mark.parametrize("point", [(0.0, 0.0), (0.3, 0.1), (1.0, 0.25), (-0.4, -0.6)])
def test_the_diffused_toy_cost_is_the_smoothed_cost(point):
    assert toy.cost(np.array(point)) == pytest.approx(toy.undiffused_cost(np.array(point)))
    for sigma in (0.1, 0.3):
        expected = smoothed(toy.undiffused_cost, point, sigma)
        assert toy.cost(np.array(point), sigma) == pytest.approx(expected, rel=1e-6)


def test_algorithm_1_reaches_the_global_minimum_of_the_toy():
    path = toy.solve()
    np.testing.assert_allclose(path.point, (1, 0.25), atol=1e-3)
    assert path.cost == pytest.approx(0, abs=1e-6)
    assert path.steps[-1].sigma == 0
    np.testing.assert_allclose(path.steps[0].point, (0.503, 0.442), atol=2e-3)


def test_plain_descent_ends_in_a_local_minimum():
    for start in ((0.0, 0.0), (0.5, 0.0), (0.5, -0.5)):
        local = toy.plain_descent(start)
        assert abs(local.point[0] - 1) > 0.5
        np.testing.assert_allclose(local.point, (0.045, 0.020), atol=2e-3)
        assert local.cost == pytest.approx(0.0469, abs=2e-4)


def test_the_cost_is_convex_at_the_largest_sigma():
    """The sampled Hessians in the window are positive definite."""
    h = 1e-3
    for c in np.linspace(-0.4, 1.4, 7):
        for theta in np.linspace(-0.7, 0.7, 7):
            f = {
                (i, j): toy.cost(np.array([c + i * h, theta + j * h]), toy.SIGMAS[0])
                for i in (-1, 0, 1)
                for j in (-1, 0, 1)
            }
            cc = (f[1, 0] - 2 * f[0, 0] + f[-1, 0]) / h**2
            tt = (f[0, 1] - 2 * f[0, 0] + f[0, -1]) / h**2
            ct = (f[1, 1] - f[1, -1] - f[-1, 1] + f[-1, -1]) / (4 * h**2)
            assert np.linalg.eigvalsh([[cc, ct], [ct, tt]]).min() > 0


@pytest.mark.parametrize("sigmas", [(0.6, 0.3, 0.15, 0.0), tuple(np.linspace(1.5, 0, 16))])
def test_other_sequences_of_sigma_reach_the_global_minimum_too(sigmas):
    np.testing.assert_allclose(toy.solve(sigmas).point, (1, 0.25), atol=1e-3)


def test_continuation_with_another_cost_gradient_and_method():
    """A parabola with ripples, x² + 1 − cos 8x, diffused in closed form."""

    def cost(x, sigma):
        return float(x[0] ** 2 + sigma**2 + 1 - np.exp(-32 * sigma**2) * np.cos(8 * x[0]))

    def gradient(x, sigma):
        return np.array([2 * x[0] + 8 * np.exp(-32 * sigma**2) * np.sin(8 * x[0])])

    for method in ("L-BFGS-B", "Nelder-Mead"):
        use = gradient if method == "L-BFGS-B" else None
        path = continuation(cost, (1.0, 0.5, 0.2, 0.1, 0.0), [[3.0]], gradient=use, method=method)
        assert path.point[0] == pytest.approx(0, abs=1e-4)
        assert all(step.converged for step in path.steps)
    assert abs(descend(cost, [3.0], gradient=gradient).point[0]) > 0.5


@pytest.mark.parametrize("sigmas", [(), (0.5, 1.0), (1.0, 1.0, 0.0)])
def test_sigmas_must_decrease(sigmas):
    with pytest.raises(ValueError, match="decreasing"):
        toy.solve(sigmas)
