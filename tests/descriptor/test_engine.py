"""The engine: tables against the direct sum, layouts and normalisation."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import caloric
from caloric.descriptor import density, normalise, pooling, recipes
from caloric.descriptor.sampling import SquarePatch
from caloric.kernels import KERNELS, Kernel
from caloric.theory.gaussians import gaussian, periodic_gaussian


def smooth_patches(count=4, size=32, seed=0):
    """Random patches with structure at all scales, values in [0, 1]."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size)))
    spectrum = np.fft.fft2(rng.standard_normal((count, size, size))) / (frequency + 0.03) ** 1.5
    patches = np.fft.ifft2(spectrum).real
    low, high = patches.min((1, 2), keepdims=True), patches.max((1, 2), keepdims=True)
    return (patches - low) / (high - low)


def direct(patches, recipe):
    """The sum over pixels with the pointwise kernel, no basis and no table."""
    bins, places = recipe.layout.bins(recipe.kernel), recipe.layout.places()
    points = SquarePatch(patches.shape[1]).points()
    return np.array(
        [
            pooling.direct_sum(
                recipe.kernel, bins, places, density.measure(p[None], recipe.kernel), points
            ).ravel()
            for p in patches
        ]
    )


def relative(got, expected):
    return np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)


@pytest.mark.parametrize("normalisation", ["none", "l2", "clip", "root"])
@pytest.mark.parametrize("name", KERNELS)
def test_describe_patches_is_the_direct_sum(name, normalisation):
    patches = smooth_patches()
    got = caloric.describe_patches(patches, name, normalisation=normalisation)
    assert got.dtype == np.float32
    assert got.shape == (4, 128)
    expected = normalise.normalise(direct(patches, recipes.descriptor(name)), normalisation)
    assert relative(got, expected).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("heat", {"sigma_d": 0.1, "sigma_a": 0.2}),
        ("heat", {"sigma_d": 0.3, "sigma_a": 0.5, "growth": 0.3}),
        ("similarity", {"sigma_d": 0.1, "sigma_r": 0.25}),
        ("sift", {"sigma_d": 0.05, "sigma_r": 0.2}),
        ("dsp-domain", {"sigma_d": 0.1, "sigma_s": 0.5}),
        ("distribution-field", {"sigma_l": 0.4}),
    ],
)
@pytest.mark.parametrize(
    "layout", [caloric.Grid(average=False), caloric.Rings(angles=6, average=False)]
)
def test_other_parameters_and_layouts(name, parameters, layout):
    patches = smooth_patches(2, 20)
    got = caloric.describe_patches(patches, name, layout=layout, normalisation="none", **parameters)
    recipe = caloric.Descriptor(recipes.descriptor(name, **parameters).kernel, layout)
    assert relative(got, direct(patches, recipe)).max() < 1e-4


def test_error_of_the_basis_is_as_stated():
    """A table says which share of the kernel it leaves out, and that is what it loses."""
    recipe = recipes.descriptor("heat")
    table = pooling.tabulate(recipe.kernel, recipe.layout, SquarePatch(24), "float64")
    assert 0 < table.tail <= pooling.TOLERANCE
    patches = smooth_patches(3, 24)
    part = density.measure(patches, recipe.kernel)
    whole = direct(patches, recipe)
    (coefficients,) = table.factors
    for order in (6, 12, 20):
        rows = (2 * order + 1) * 24**2
        cut = pooling.Table((coefficients[:rows].copy(),), None, order, 0)
        power = coefficients**2
        power[24**2 :] /= 2
        tail = np.sqrt(power[rows:].sum() / power.sum())
        loss = relative(pooling.pool(part, cut), whole)
        assert loss.max() < 2 * tail
        assert loss.max() > 1e-3 * tail


def coverage(layout, sigma_a):
    """What a gradient at the worst angle weighs of one at the best, summed over a descriptor."""
    turns = np.linspace(0, 2 * np.pi / 8, 9)
    line = SquarePatch(8).points().reshape(8, 8, 2)
    ramps = np.array([0.5 + 0.2 * (line @ [np.cos(t), np.sin(t)]) for t in turns])
    raw = caloric.describe_patches(
        ramps, "heat", layout=layout, normalisation="none", sigma_d=0.2, sigma_a=sigma_a
    )
    total = raw.sum(1)
    return total.min() / total.max()


def test_narrow_kernels_are_averaged_over_beta():
    """Eight pointwise directions miss a narrow kernel between them; the average does not."""
    assert coverage(caloric.Grid(average=False), 0.1) < 0.05
    for sigma_a in (0.003, 0.1, 0.2, 0.25, 0.29, 0.3, 0.35):
        assert coverage(caloric.Grid(), sigma_a) > 0.65
        assert coverage(caloric.Grid(average=True), sigma_a) > 0.9
    assert coverage(caloric.Grid(directions=32), 0.1) > 0.9


def test_averaging_sets_in_without_a_jump():
    patches = smooth_patches(1, 16)
    edge = 0.375 * 2 * np.pi / 8
    below, above = (
        caloric.describe_patches(patches, "heat", sigma_a=edge * f) for f in (0.9999, 1.0001)
    )
    assert relative(below, above).max() < 2e-3


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("heat", {"sigma_d": 0.25, "sigma_a": 0.15}),
        ("heat", {"sigma_d": 0.02, "sigma_a": 0.2}),
        ("similarity", {"sigma_d": 0.02, "sigma_r": 0.25, "sigma_s": 0}),
        ("sift", {"sigma_d": 0.1, "sigma_r": 0.05}),
    ],
)
def test_average_is_the_blur_it_claims(name, parameters):
    recipe = caloric.Descriptor(
        recipes.descriptor(name, **parameters).kernel, caloric.Grid(average=True, cells=2)
    )
    patches = smooth_patches(1, 16)
    got = caloric.describe_patches(patches, recipe, normalisation="none")
    fine = 2 * np.pi * np.arange(4096) / 4096
    part = density.measure(patches, recipe.kernel)
    maps = pooling.direct_sum(
        recipe.kernel, fine, recipe.layout.places(), part, SquarePatch(16).points()
    )
    bins, blur = recipe.layout.bins(recipe.kernel), recipe.layout.blur(recipe.kernel)
    window = periodic_gaussian(fine[:, None] - bins, blur) * (2 * np.pi / 4096)
    assert relative(got, (maps @ window).reshape(1, -1)).max() < 1e-4


def test_a_ramp_has_the_gradient_it_has():
    """f = .3 x in patch coordinates: |∇f| = .3 and φ = 0, so h is .3 ∫K dy exactly."""
    size = 64
    ramp = 0.5 + 0.3 * SquarePatch(size).points()[:, 0].reshape(1, size, size)
    centre = caloric.Rings(radii=(0.0,))
    got = caloric.describe_patches(
        ramp, "sift", layout=centre, normalisation="none", sigma_d=0.1, sigma_r=0.5
    )
    np.testing.assert_allclose(
        got[0], 0.3 * periodic_gaussian(2 * np.pi * np.arange(8) / 8, 0.5), rtol=1e-4, atol=1e-6
    )


def test_tables_of_the_cache_are_bounded_in_bytes(monkeypatch):
    monkeypatch.setattr(pooling, "CACHE_BYTES", 3_000_000)
    patches = smooth_patches(1, 8)
    for sigma_d in (0.3, 0.31, 0.32, 0.33):
        caloric.describe_patches(patches, "heat", sigma_d=sigma_d)
    held = list(pooling._cache.values())
    assert sum(t.nbytes for t in held) <= 3_000_000 or len(held) == 1


def test_contrast_of_any_size():
    patches = smooth_patches(2).astype(np.float64)
    plain = caloric.describe_patches(patches, "heat", dtype="float64")
    for factor in (1e-100, 1e100):
        scaled = caloric.describe_patches(patches * factor, "heat", dtype="float64")
        np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-9)


def test_symmetries_of_the_square_change_nothing():
    """Tables filled by symmetry equal the direct sum also where no symmetry can help."""
    patches = smooth_patches(2, 16)
    for layout in (caloric.Grid(cells=3, directions=12), caloric.Grid(cells=3, directions=6)):
        recipe = caloric.Descriptor(caloric.kernel("heat", sigma_d=0.3, sigma_a=0.6), layout)
        got = caloric.describe_patches(patches, recipe, normalisation="none")
        assert relative(got, direct(patches, recipe)).max() < 1e-4


def test_descriptor_turns_with_the_patch():
    patches = smooth_patches(3)
    for name in KERNELS:
        straight = caloric.describe_patches(patches, name).reshape(3, 4, 4, 8)
        turned = caloric.describe_patches(np.rot90(patches, -1, (1, 2)), name).reshape(3, 4, 4, 8)
        expected = np.rot90(straight, -1, (1, 2))
        if KERNELS[name].feature == "orientation":
            expected = np.roll(expected, 2, -1)
        np.testing.assert_allclose(turned, expected, atol=2e-5)


def test_a_ramp_points_where_it_rises():
    line = np.linspace(0, 1, 32)
    right, down = np.tile(line, (32, 1)), np.tile(line[:, None], (1, 32))
    got = caloric.describe_patches(np.array([right, down]), "sift").reshape(2, 16, 8).sum(1)
    assert got.argmax(1).tolist() == [0, 2]


def test_response_map_is_the_descriptor_everywhere():
    patch = smooth_patches(1, 16)[0]
    beta = 2 * np.pi * np.arange(8) / 8
    maps = caloric.response_map(patch, "heat", beta=beta, size=4)
    assert maps.shape == (8, 4, 4)
    raw = caloric.describe_patches(patch[None], "heat", normalisation="none", dtype="float64")
    np.testing.assert_allclose(maps.reshape(8, 16).T.ravel(), raw[0], rtol=1e-4)
    assert caloric.response_map(patch, "sift", beta=[0.3]).shape == (1, 16, 16)


def test_layouts():
    grid = caloric.Grid().places()
    np.testing.assert_allclose(np.unique(grid), [-0.75, -0.25, 0.25, 0.75])
    np.testing.assert_allclose(grid[1] - grid[0], [0.5, 0])
    rings = caloric.Rings()
    assert rings.dimension == 200
    radii = np.hypot(*rings.places().T)
    np.testing.assert_allclose(np.unique(radii.round(12)), [0, 0.12, 0.28, 0.55])


def test_normalisations():
    h = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [-1e-9, 1.0, 1.0]])
    np.testing.assert_allclose(normalise.l2(h)[0], [0.6, 0.8, 0])
    np.testing.assert_allclose(normalise.root(h)[0] ** 2, [3 / 7, 4 / 7, 0])
    clipped = normalise.clip(np.array([[1.0] + [0.1] * 50]))
    assert clipped[0, 0] == pytest.approx(0.2 / np.hypot(0.2, np.sqrt(50) * 0.1 / np.sqrt(1.5)))
    for how in ("l2", "clip", "root"):
        result = normalise.normalise(h, how)
        assert not result[1].any()
        np.testing.assert_allclose(np.linalg.norm(result[[0, 2]], axis=1), 1)


def test_uint8():
    patches = smooth_patches(3)
    stored = caloric.describe_patches(patches, "sift", dtype="uint8")
    assert stored.dtype == np.uint8
    exact = caloric.describe_patches(patches, "sift")
    np.testing.assert_allclose(stored / 512, np.minimum(exact, 255 / 512), atol=0.5 / 512 + 1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float16, np.float32, np.float64])
def test_pixel_types_agree(dtype):
    patches = smooth_patches(2)
    exact = caloric.describe_patches(patches, "heat")
    if np.issubdtype(dtype, np.integer):
        stored = np.rint(patches * np.iinfo(dtype).max).astype(dtype)
    else:
        stored = patches.astype(dtype)
    tolerance = 0.05 if dtype == np.uint8 else 0.02 if dtype == np.float16 else 1e-3
    assert relative(caloric.describe_patches(stored, "heat"), exact).max() < tolerance


def test_gain_and_offset_change_nothing():
    patches = smooth_patches(2)
    for name in KERNELS:
        if KERNELS[name].feature == "orientation":
            plain = caloric.describe_patches(patches, name)
            np.testing.assert_allclose(
                caloric.describe_patches(0.4 * patches + 0.3, name), plain, atol=1e-5
            )


def test_no_patches_is_an_empty_result():
    assert caloric.describe_patches(np.zeros((0, 16, 16), np.uint8), "sift").shape == (0, 128)


def test_a_kernel_of_ones_own_needs_no_registration():
    @dataclass(frozen=True, kw_only=True)
    class Ring(Kernel):
        """A SIFT that looks only at a ring around x, and more to the right than to the left."""

        name: ClassVar[str] = "ring"
        sigma_r: float
        radius: float = 0.2

        @property
        def bandwidth(self):
            return self.sigma_r

        def evaluate(self, beta, x, phi, y):
            offset = y - x
            distance = np.hypot(offset[..., 0], offset[..., 1]) - self.radius
            angular = periodic_gaussian(beta - phi, self.sigma_r)
            return angular * gaussian(distance, self.width(x)) * np.exp(offset[..., 0])

    recipe = caloric.Descriptor(Ring(sigma_d=0.1, sigma_r=0.5), normalisation="none")
    patches = smooth_patches(2, 16)
    got = caloric.describe_patches(patches, recipe)
    assert relative(got, direct(patches, recipe)).max() < 1e-4
    wider = caloric.describe_patches(patches, recipe, radius=0.4)
    assert relative(wider, got).min() > 0.05
