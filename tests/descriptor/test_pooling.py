"""Pooling by tables equals the direct sum over pixels."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import caloric
from caloric.descriptor import normalize, recipes
from caloric.kernels import KERNELS, Kernel
from caloric.theory.gaussians import gaussian, periodic_gaussian
from random_patches import direct, relative, smooth_patches


@pytest.mark.parametrize("normalisation", ["none", "l2", "clip", "root"])
@pytest.mark.parametrize("name", KERNELS)
def test_describe_patches_equals_the_direct_sum(name, normalisation):
    patches = smooth_patches()
    got = caloric.describe_patches(patches, name, normalisation=normalisation)
    assert got.dtype == np.float32
    assert got.shape == (4, 128)
    expected = normalize.normalize(direct(patches, recipes.descriptor(name)), normalisation)
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
def test_other_parameters_and_layouts_equal_the_direct_sum(name, parameters, layout):
    patches = smooth_patches(2, 20)
    got = caloric.describe_patches(patches, name, layout=layout, normalisation="none", **parameters)
    recipe = caloric.Descriptor(recipes.descriptor(name, **parameters).kernel, layout)
    assert relative(got, direct(patches, recipe)).max() < 1e-4


def test_response_maps_agree_with_the_descriptor():
    patch = smooth_patches(1, 16)[0]
    beta = 2 * np.pi * np.arange(8) / 8
    maps = caloric.response_map(patch, "heat", beta=beta, size=4)
    assert maps.shape == (8, 4, 4)
    raw = caloric.describe_patches(patch[None], "heat", normalisation="none", dtype="float64")
    np.testing.assert_allclose(maps.reshape(8, 16).T.ravel(), raw[0], rtol=1e-4)
    assert caloric.response_map(patch, "sift", beta=[0.3]).shape == (1, 16, 16)


def test_custom_kernels_need_no_registration():
    @dataclass(frozen=True, kw_only=True)
    class Ring(Kernel):
        """A SIFT kernel on a ring around x, without reflection symmetry."""

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
