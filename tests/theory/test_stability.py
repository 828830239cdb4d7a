"""Kernels are finite, without warnings, for all parameters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
from caloric.kernels import KERNELS
from caloric.theory import diffusion


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sigma_a", [0.003, 0.01, 0.03, 0.1, 0.3, 1.0])
def test_heat_is_finite_everywhere(sigma_a, dtype):
    rng = np.random.default_rng(0)
    n = 4000
    for sigma_d in (0.02, 0.2, 1.0):
        x = rng.uniform(-1, 1, (n, 2))
        y = sigma_d * rng.uniform(0, 50, (n, 1)) * diffusion.direction(rng.uniform(0, 7, n))
        beta, phi = rng.uniform(0, 7, (2, n))
        beta[::2] = phi[::2]
        values = caloric.kernel("heat", sigma_d=sigma_d, sigma_a=sigma_a)(beta, x, phi, y)
        assert values.dtype == np.float64
        table = values.astype(dtype)
        assert np.isfinite(table).all()
        assert (table >= 0).all()
        assert table.max() > 0


@given(
    st.sampled_from(list(KERNELS)),
    st.floats(0.003, 1),
    st.floats(0.003, 1),
    st.floats(0.003, 1),
    st.tuples(*[st.floats(-1, 1)] * 2),
    st.tuples(*[st.floats(-50, 50)] * 2),
    st.tuples(*[st.floats(-10, 10)] * 2),
)
@settings(max_examples=300, deadline=None)
def test_every_kernel_is_finite(name, sigma_d, spread, sigma_s, x, y, angles):
    values = {
        "sigma_d": sigma_d, "sigma_r": spread, "sigma_a": spread, "sigma_l": spread,
        "sigma_s": sigma_s,
    }  # fmt: skip
    p = KERNELS[name].defaults | {k: v for k, v in values.items() if k in KERNELS[name].defaults}
    result = caloric.kernel(name, **p)(
        angles[0], np.array(x), angles[1], sigma_d * np.array(y) / np.sqrt(2)
    )
    assert np.isfinite(result)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "sigma_a", [0.003, 0.03, 0.1, pytest.param(0.2, marks=pytest.mark.slow), 1.0]
)
def test_tables_are_finite(sigma_a, dtype):
    rng = np.random.default_rng(1)
    patches = rng.random((3, 6, 6))
    for sigma_d in (0.02, 0.5):
        result = caloric.describe_patches(
            patches, "heat", sigma_d=sigma_d, sigma_a=sigma_a, dtype=dtype
        )
        assert np.isfinite(result).all()
        np.testing.assert_allclose(np.linalg.norm(result, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("normalisation", ["none", "l2", "clip", "root"])
@pytest.mark.parametrize("name", [n for n in KERNELS if KERNELS[n].feature == "orientation"])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_the_descriptor_of_a_flat_patch_is_zero(name, value, normalisation):
    patches = np.full((2, 16, 16), value, np.float32)
    result = caloric.describe_patches(patches, name, normalisation=normalisation)
    np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize("name", list(KERNELS))
def test_flat_response_maps_are_finite(name):
    maps = caloric.response_map(np.full((8, 8), 0.5), name)
    assert np.isfinite(maps).all()
    if KERNELS[name].feature == "orientation":
        assert not maps.any()
