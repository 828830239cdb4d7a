"""The exact diffused energies compared with random transformations."""

from functools import partial

import numpy as np
import pytest
from scipy.integrate import quad

from caloric.theory import alignment, diffusion, energy
from caloric.theory.energy import OrientationDensity
from caloric.theory.gaussians import decayed_mean
from caloric.theory.oracle import Blobs

POINTS = {
    "similarity": np.array([1.1, 0.2, 0.1, -0.2]),
    "affine": np.array([1.1, 0.2, -0.1, 0.9, 0.1, -0.2]),
}


def density(count, seed):
    rng = np.random.default_rng(seed)
    return OrientationDensity(
        rng.uniform(-1, 1, (count, 2)), rng.uniform(0, 2 * np.pi, count), rng.uniform(0.2, 1, count)
    )


@pytest.mark.parametrize("u", [-6.0, -1.6, -1.4, -0.3, 0.0, 0.4, 3.0, 9.0])
def test_decayed_mean_is_its_integral(u):
    # The interval is limited so that the quadrature does not miss the peak.
    expected = quad(lambda r: r * np.exp(-(r**2) + 2 * r * u - u * u), 0, max(u, 0) + 8)[0]
    if u < -5:
        expected = np.exp(-u * u) * quad(lambda r: r * np.exp(-(r**2) + 2 * r * u), 0, 3)[0]
    assert decayed_mean(u, 0.0) == pytest.approx(expected, rel=1e-9)
    assert decayed_mean(u, 2.0) == pytest.approx(expected * np.exp(-2), rel=1e-9)


@pytest.mark.parametrize("model", POINTS)
@pytest.mark.parametrize("sigma", [0.05, 0.2, 0.7])
def test_the_energy_is_the_sum_of_the_kernel_and_has_the_correct_gradient(model, sigma):
    image, template, point = density(30, 0), density(20, 1), POINTS[model]
    result = alignment.ENERGIES[model](image, template, point, sigma)
    widths = {"sigma_d": sigma, "sigma_a": sigma}
    if model == "similarity":
        kernel = partial(diffusion.linear_similarity, **widths, z=point[:2], b=point[2:])
    else:
        A = point[:4].reshape(2, 2)
        kernel = partial(diffusion.affine, **widths, A=A, b=point[4:])
    expected = energy.dissimilarity(energy.diffused_density(kernel, image), template)
    assert result.energy == pytest.approx(expected, rel=1e-12)
    h = 1e-5 * sigma
    slopes = [
        np.diff([alignment.ENERGIES[model](image, template, point + s * h * e, sigma).energy
                 for s in (-1, 1)])[0] / (2 * h)
        for e in np.eye(len(point))
    ]  # fmt: skip
    np.testing.assert_allclose(result.gradient, slopes, rtol=1e-6, atol=1e-7 * np.abs(slopes).max())


@pytest.mark.parametrize("model", POINTS)
def test_diffused_energy_is_the_mean_energy_of_random_transformations(model):
    """The undiffused energy of an image moved at random, with angles in bins."""
    image = Blobs((1.0, -0.8, 0.6), ((0.2, 0.1), (-0.4, 0.3), (0.1, -0.5)), (0.35, 0.3, 0.4))
    x = np.array([[0.3, 0.1], [-0.2, 0.4], [0.1, -0.3], [-0.4, -0.2]])
    angles, weights = np.array([0.4, 2.0, 4.0, 5.5]), np.array([1.0, 0.7, 0.9, 0.5])
    point, sigma, bin_width = POINTS[model], 0.25, 0.5
    rng = np.random.default_rng(3)
    draws = point + sigma * rng.standard_normal((400_000, len(point)))
    if model == "similarity":
        a, c = draws[:, 0], draws[:, 1]
        A = np.stack([np.stack([a, -c], -1), np.stack([c, a], -1)], -2)
    else:
        A = draws[:, :4].reshape(-1, 2, 2)
    b = draws[:, -2:]
    energies = np.zeros(len(draws))
    for position, angle, weight in zip(x, angles, weights, strict=True):
        g = np.einsum("nij,ni->nj", A, image.gradient(A @ position + b))
        difference = (np.arctan2(g[:, 1], g[:, 0]) - angle + np.pi) % (2 * np.pi) - np.pi
        in_bin = np.abs(difference) < bin_width / 2
        energies -= weight * np.hypot(g[:, 0], g[:, 1]) * in_bin / bin_width
    line = np.linspace(-3, 3, 121)
    y = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    g = image.gradient(y)
    measured = OrientationDensity(y, np.arctan2(g[:, 1], g[:, 0]), np.hypot(*g.T) * 0.05**2)
    nodes, shares = np.polynomial.legendre.leggauss(6)
    exact = sum(
        share / 2 * alignment.ENERGIES[model](
            measured, OrientationDensity(x, angles + node * bin_width / 2, weights), point, sigma
        ).energy
        for node, share in zip(nodes, shares, strict=True)
    )  # fmt: skip
    error = energies.std() / np.sqrt(len(energies))
    assert abs(exact - energies.mean()) < 4 * error
    assert error < 0.01 * abs(exact)


def test_the_translation_energy_its_gradient_and_its_minimum_at_large_sigma():
    image, template, point = density(30, 0), density(20, 1), np.array([0.1, -0.2])
    smooth = partial(diffusion.similarity, sigma_d=0.3, sigma_r=0.3, b=point)
    result = alignment.translation(image, template, point, 0.3)
    # At x = 0 positions are not rotated, and the exact kernel is the same.
    at_origin = OrientationDensity(
        np.zeros_like(template.points), template.angles, template.weights
    )
    at_zero = alignment.translation(image, at_origin, point, 0.3).energy
    expected = energy.dissimilarity(energy.diffused_density(smooth, image), at_origin)
    assert at_zero == pytest.approx(expected, rel=1e-12)
    h = 1e-6
    slopes = [
        (alignment.translation(image, template, point + h * e, 0.3).energy
         - alignment.translation(image, template, point - h * e, 0.3).energy) / (2 * h)
        for e in np.eye(2)
    ]  # fmt: skip
    np.testing.assert_allclose(result.gradient, slopes, rtol=1e-6)
    path = alignment.align(image, template, (30.0,), np.zeros(2), model="translation")
    widest = alignment.widest_shift(image, template)
    minimum = alignment.translation(image, template, widest, 30.0)
    assert minimum.energy <= path.cost + 1e-12 * abs(path.cost)
    np.testing.assert_allclose(minimum.gradient, 0, atol=1e-4 * abs(minimum.energy) / 30)


def test_algorithm_1_on_the_exact_energy_finds_the_similarity():
    template = density(25, 5)
    z, b = np.array([1.1, 0.35]), np.array([0.15, -0.1])
    A = np.array([[z[0], -z[1]], [z[1], z[0]]])
    angle = np.arctan2(z[1], z[0])
    image = OrientationDensity(template.points @ A.T + b, template.angles + angle, template.weights)
    path = alignment.align(
        image, template, (0.6, 0.4, 0.25, 0.15, 0.1, 0.06), np.array([1.0, 0, 0, 0]),
        bounds=((0.5, 1.6), (-1, 1), (-0.8, 0.8), (-0.8, 0.8)),
    )  # fmt: skip
    # Neighboring points cause a small bias, because the kernels have a finite width.
    np.testing.assert_allclose(path.point, [*z, *b], atol=0.03)
