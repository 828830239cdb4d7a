"""The steps of refinement compared with their definitions, for arrays and tensors."""

import numpy as np
import pytest

import photographs
from caloric.matching import refinement, refinement_steps
from caloric.matching.refinement_steps import GRID, LAGS, SIDE

N = SIDE * SIDE
RNG = np.random.default_rng(0)
TABLES = refinement._tables()


def unit(image):
    return image.astype(np.float32) / 255


def frames(count=40, sigma=3.0):
    maps = np.zeros((count, 2, 3))
    maps[:, :, :2] = sigma * (np.eye(2) + 0.1 * RNG.normal(size=(count, 2, 2)))
    maps[:, :, 2] = RNG.uniform(60, 140, (count, 2))
    return maps


def both_images():
    whole = unit(photographs.gray("camera", (200, 200)))
    return whole, unit(photographs.warp(photographs.gray("camera", (200, 200)), np.eye(2, 3)))


def test_fields_have_unit_power_in_the_window():
    patches = RNG.random((5, N)).astype(np.float32)
    patches[3] = 0.5
    for gradient in TABLES.gradients:
        values, power = refinement_steps.fields(patches, gradient, TABLES)
        np.testing.assert_allclose((values**2).sum(1)[[0, 1, 2, 4]], 1, rtol=1e-5)
        assert power[3] < 1e-12
        assert power.dtype == np.float64


@pytest.mark.parametrize("number", [0, 1])
def test_gradients_of_a_ramp_and_their_adjoint(number):
    gradient = TABLES.gradients[number]
    ramp = (GRID @ [0.3, -0.2]).astype(np.float32)[None]
    planes = gradient.apply(ramp).reshape(2, SIDE, SIDE)[:, 5:-5, 5:-5]
    np.testing.assert_allclose(planes[0], 0.3, atol=1e-5)
    np.testing.assert_allclose(planes[1], -0.2, atol=1e-5)
    patches, weights = RNG.random((4, N)), RNG.random((4, 3, 2 * N))
    forward = np.einsum("mn,mkn->mk", gradient.apply(patches.astype(np.float32)), weights)
    backward = np.einsum("mn,mkn->mk", patches, gradient.adjoint(weights.astype(np.float32)))
    np.testing.assert_allclose(forward, backward, rtol=1e-3, atol=1e-3)


def test_slopes_agree_with_finite_differences():
    """Differences of the fields of a smooth image in moved frames."""
    x, y = np.meshgrid(np.arange(200.0), np.arange(200.0))
    image = 0.5 + 0.2 * np.sin(x / 9 + 0.5) * np.cos(y / 11) + 0.1 * np.sin((x + y) / 13)
    octaves = refinement.prepared(image.astype(np.float32))
    gradient, maps = TABLES.gradients[0], frames(6, 4.0)

    def moved(h):
        patches = octaves.patches(refinement_steps.moved(maps, h))
        return refinement_steps.fields(patches, gradient, TABLES)[0]

    slopes = refinement_steps.slopes(moved(np.zeros((6, 6))), TABLES)
    for i, e in enumerate(np.eye(6)):
        h = np.tile(0.02 * e, (6, 1))
        difference = (moved(-h) - moved(h)) / 0.04
        cosine = (difference * slopes[:, i]).sum(1) / np.linalg.norm(difference, axis=1)
        assert (
            cosine / np.linalg.norm(slopes[:, i], axis=1)
        ).min() > 0.92  # below 1 because of the borders


def test_moved_frames_are_compositions_with_the_inverse():
    maps, steps = frames(), RNG.uniform(-0.3, 0.3, (40, 6))
    delta = np.zeros((40, 3, 3))
    delta[:, 0], delta[:, 1] = steps[:, [0, 1, 4]], steps[:, [2, 3, 5]]
    delta += np.eye(3)
    expected = maps @ np.linalg.inv(delta)
    np.testing.assert_allclose(refinement_steps.moved(maps, steps), expected, rtol=1e-10, atol=1e-9)


def test_systems_are_solved():
    factors = RNG.normal(size=(30, 6, 9))
    matrix, right = factors @ factors.swapaxes(1, 2), RNG.normal(size=(30, 6, 2))
    solution = refinement_steps.solve(matrix, right)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, right), rtol=1e-6, atol=1e-9)
    nothing = refinement_steps.solve(1e-9 * np.eye(6)[None], np.zeros((1, 6, 1)))
    assert not nothing.any()


def test_noise_is_distinguished_from_texture():
    for name in ("camera", "astronaut", "coffee"):
        image = unit(photographs.gray(name))
        rng = np.random.default_rng(0)
        for noise in (0.01, 0.03):
            noisy = image + rng.normal(0, noise, image.shape).astype(np.float32)
            assert noise <= refinement_steps.noise_level(noisy) * 1.05 < 1.3 * noise
    for shape in ((1, 1), (5, 300), (300, 5), (12, 12), (33, 9)):
        black = np.zeros(shape, np.float32)
        assert refinement_steps.noise_level(black) == refinement_steps.ROUNDING


def test_the_noise_of_halved_images_is_predicted():
    noise = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    spacings, variances, correlations = refinement_steps.level_noise(3)
    np.testing.assert_array_equal(spacings, [1, 2, 4])
    levels = refinement.prepared(noise).levels
    for level, variance, correlation in zip(levels, variances, correlations, strict=False):
        inner = level[8:-8, 8:-8]
        assert inner.var() == pytest.approx(variance, rel=0.1)
        for lag, expected in enumerate(correlation):
            shifted = inner[:, lag:] * inner[:, : inner.shape[1] - lag]
            assert shifted.mean() / inner.var() == pytest.approx(expected, abs=0.05)


def test_the_spline_sums_to_one():
    x = np.linspace(0, 1, 11)
    np.testing.assert_allclose(sum(refinement_steps.spline(x - k) for k in range(-2, 4)), 1)
    assert not refinement_steps.spline(np.array([2.0, -3.0, 1e9])).any()
    assert LAGS * refinement_steps.MIN_NOISE_SPACING > 2  # noise is uncorrelated after the last lag


def test_tensors_and_arrays_give_the_same_result():
    torch = pytest.importorskip("torch")
    from caloric.gpu import descent
    from caloric.gpu import refinement as on_device

    first, second = (image.astype(np.float32) for image in both_images())
    a = frames()
    b = a.copy()
    b[:, :, 2] += RNG.uniform(-1, 1, (40, 2))
    b[::10, :, 2] += 500  # outside the image
    arrays = refinement.prepared(first), refinement.prepared(second)
    tensors = tuple(descent.prepared(v, torch.device("cpu")) for v in (first, second))
    maps = torch.from_numpy(a)
    for array, tensor in zip(arrays, tensors, strict=True):
        assert float(tensor.noise) == pytest.approx(array.noise, rel=1e-5)
        np.testing.assert_allclose(tensor.patches(maps).numpy(), array.patches(a), atol=1e-5)
    expected = refinement_steps.descend(arrays, a, b, TABLES)
    single = on_device.tables(torch.device("cpu"))
    double = refinement_steps.tables(single.gradients, "float64", torch.tensor)
    cost = expected[3][:, 1]
    good = (cost > 0) & (cost < 0.1)
    assert good.sum() > 20
    for tables in (single, double):
        results = refinement_steps.descend(tensors, maps, torch.from_numpy(b), tables)
        for one, other, tolerance in zip(expected, results, (1e-3, 1e-2, 1e-2, 1e-2), strict=True):
            difference, size = (
                np.abs(v).reshape(40, -1).max(1)[good] for v in (one - other.numpy(), one)
            )
            assert (difference < tolerance * size).all()
