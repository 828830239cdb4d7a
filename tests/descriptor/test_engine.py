"""Descriptors of patches: pixel types, rotations, ramps and layouts."""

import numpy as np
import pytest

import caloric
from caloric.descriptor.sampling import SquarePatch
from caloric.kernels import KERNELS
from caloric.theory.gaussians import periodic_gaussian
from random_patches import relative, smooth_patches


def test_the_descriptor_of_a_ramp_is_exact():
    """f = .3 x in patch coordinates: |∇f| = .3 and φ = 0, so h is .3 ∫K dy exactly."""
    size = 64
    ramp = 0.5 + 0.3 * SquarePatch(size).points()[:, 0].reshape(1, size, size)
    center = caloric.Rings(radii=(0.0,))
    got = caloric.describe_patches(
        ramp, "sift", layout=center, normalisation="none", sigma_d=0.1, sigma_r=0.5
    )
    np.testing.assert_allclose(
        got[0], 0.3 * periodic_gaussian(2 * np.pi * np.arange(8) / 8, 0.5), rtol=1e-4, atol=1e-6
    )


def test_descriptors_rotate_with_the_patch():
    patches = smooth_patches(3)
    for name in KERNELS:
        original = caloric.describe_patches(patches, name).reshape(3, 4, 4, 8)
        rotated = caloric.describe_patches(np.rot90(patches, -1, (1, 2)), name).reshape(3, 4, 4, 8)
        expected = np.rot90(original, -1, (1, 2))
        if KERNELS[name].feature == "orientation":
            expected = np.roll(expected, 2, -1)
        np.testing.assert_allclose(rotated, expected, atol=2e-5)


def test_the_strongest_direction_is_that_of_the_gradient():
    line = np.linspace(0, 1, 32)
    right, down = np.tile(line, (32, 1)), np.tile(line[:, None], (1, 32))
    got = caloric.describe_patches(np.array([right, down]), "sift").reshape(2, 16, 8).sum(1)
    assert got.argmax(1).tolist() == [0, 2]


def test_positions_of_layouts():
    grid = caloric.Grid().positions()
    np.testing.assert_allclose(np.unique(grid), [-0.75, -0.25, 0.25, 0.75])
    np.testing.assert_allclose(grid[1] - grid[0], [0.5, 0])
    rings = caloric.Rings()
    assert rings.dimension == 200
    radii = np.hypot(*rings.positions().T)
    np.testing.assert_allclose(np.unique(radii.round(12)), [0, 0.12, 0.28, 0.55])


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


def test_no_patches_give_an_empty_result():
    assert caloric.describe_patches(np.zeros((0, 16, 16), np.uint8), "sift").shape == (0, 128)
