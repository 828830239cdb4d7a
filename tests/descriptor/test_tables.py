"""Tables: truncation error, averaging over directions, symmetries and the cache."""

import numpy as np
import pytest

import caloric
from caloric.descriptor import density, pooling, recipes, tables
from caloric.descriptor.sampling import SquarePatch
from caloric.theory.gaussians import periodic_gaussian
from random_patches import direct, relative, smooth_patches


def test_the_truncation_error_is_bounded_by_the_tail():
    recipe = recipes.descriptor("heat")
    table = tables.tabulate(recipe.kernel, recipe.layout, SquarePatch(24), "float64")
    assert 0 < table.tail <= tables.TOLERANCE
    patches = smooth_patches(3, 24)
    part = density.measure(patches, recipe.kernel)
    whole = direct(patches, recipe)
    (coefficients,) = table.factors
    for order in (6, 12, 20):
        rows = (2 * order + 1) * 24**2
        cut = tables.Table((coefficients[:rows].copy(),), None, order, 0)
        power = coefficients**2
        power[24**2 :] /= 2
        tail = np.sqrt(power[rows:].sum() / power.sum())
        loss = relative(pooling.pool(part, cut), whole)
        assert loss.max() < 2 * tail
        assert loss.max() > 1e-3 * tail


def coverage(layout, sigma_a):
    """The ratio of the smallest to the largest weight of a gradient over all angles."""
    angles = np.linspace(0, 2 * np.pi / 8, 9)
    line = SquarePatch(8).points().reshape(8, 8, 2)
    ramps = np.array([0.5 + 0.2 * (line @ [np.cos(t), np.sin(t)]) for t in angles])
    raw = caloric.describe_patches(
        ramps, "heat", layout=layout, normalisation="none", sigma_d=0.2, sigma_a=sigma_a
    )
    total = raw.sum(1)
    return total.min() / total.max()


def test_narrow_kernels_are_averaged_over_beta():
    """Without averaging, eight directions miss gradients between them."""
    assert coverage(caloric.Grid(average=False), 0.1) < 0.05
    for sigma_a in (0.003, 0.2, 0.29, 0.3):
        assert coverage(caloric.Grid(), sigma_a) > 0.65
        assert coverage(caloric.Grid(average=True), sigma_a) > 0.9
    assert coverage(caloric.Grid(directions=32), 0.1) > 0.9


def test_averaging_is_continuous_in_the_bandwidth():
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
def test_averaging_is_a_blur_over_beta(name, parameters):
    recipe = caloric.Descriptor(
        recipes.descriptor(name, **parameters).kernel, caloric.Grid(average=True, cells=2)
    )
    patches = smooth_patches(1, 16)
    got = caloric.describe_patches(patches, recipe, normalisation="none")
    fine = 2 * np.pi * np.arange(4096) / 4096
    part = density.measure(patches, recipe.kernel)
    maps = pooling.direct_sum(
        recipe.kernel, fine, recipe.layout.positions(), part, SquarePatch(16).points()
    )
    bins, blur = recipe.layout.bins(recipe.kernel), recipe.layout.blur(recipe.kernel)
    window = periodic_gaussian(fine[:, None] - bins, blur) * (2 * np.pi / 4096)
    assert relative(got, (maps @ window).reshape(1, -1)).max() < 1e-4


def test_the_cache_is_limited_in_bytes(monkeypatch):
    monkeypatch.setattr(tables, "CACHE_BYTES", 3_000_000)
    patches = smooth_patches(1, 8)
    for sigma_d in (0.3, 0.31, 0.32, 0.33):
        caloric.describe_patches(patches, "heat", sigma_d=sigma_d)
    cached = list(tables._cache.values())
    assert sum(t.nbytes for t in cached) <= 3_000_000 or len(cached) == 1


def test_tables_with_and_without_symmetries_equal_the_direct_sum():
    patches = smooth_patches(2, 16)
    for layout in (caloric.Grid(cells=3, directions=12), caloric.Grid(cells=3, directions=6)):
        recipe = caloric.Descriptor(caloric.kernel("heat", sigma_d=0.3, sigma_a=0.6), layout)
        got = caloric.describe_patches(patches, recipe, normalisation="none")
        assert relative(got, direct(patches, recipe)).max() < 1e-4
