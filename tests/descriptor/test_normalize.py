"""Normalization of arrays and tensors: unit length, clipping, roots and bytes."""

import numpy as np
import pytest

import caloric
from caloric.descriptor import normalize
from caloric.kernels import KERNELS
from random_patches import smooth_patches


def test_extreme_contrasts_give_the_same_descriptors():
    patches = smooth_patches(2).astype(np.float64)
    plain = caloric.describe_patches(patches, "heat", dtype="float64")
    for factor in (1e-100, 1e100):
        scaled = caloric.describe_patches(patches * factor, "heat", dtype="float64")
        np.testing.assert_allclose(scaled, plain, rtol=1e-6, atol=1e-9)


def test_normalization_methods():
    h = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [-1e-9, 1.0, 1.0]])
    np.testing.assert_allclose(normalize.l2(h)[0], [0.6, 0.8, 0])
    np.testing.assert_allclose(normalize.root(h)[0] ** 2, [3 / 7, 4 / 7, 0])
    clipped = normalize.clip(np.array([[1.0] + [0.1] * 50]))
    assert clipped[0, 0] == pytest.approx(0.2 / np.hypot(0.2, np.sqrt(50) * 0.1 / np.sqrt(1.5)))
    for how in ("l2", "clip", "root"):
        result = normalize.normalize(h, how)
        assert not result[1].any()
        np.testing.assert_allclose(np.linalg.norm(result[[0, 2]], axis=1), 1)


def test_uint8_descriptors_are_512_times_the_floats():
    patches = smooth_patches(3)
    stored = caloric.describe_patches(patches, "sift", dtype="uint8")
    assert stored.dtype == np.uint8
    exact = caloric.describe_patches(patches, "sift")
    np.testing.assert_allclose(stored / 512, np.minimum(exact, 255 / 512), atol=0.5 / 512 + 1e-6)


def test_gain_and_offset_do_not_change_descriptors():
    patches = smooth_patches(2)
    for name in KERNELS:
        if KERNELS[name].feature == "orientation":
            plain = caloric.describe_patches(patches, name)
            np.testing.assert_allclose(
                caloric.describe_patches(0.4 * patches + 0.3, name), plain, atol=1e-5
            )


def test_rows_are_normalized_independently():
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        rows = rng.random((5, 16)).astype(dtype)
        hard = np.stack([rows[0], 0 * rows[1], 1e-30 * rows[2], 1e30 * rows[3], rows[4]])
        for how in ("l2", "clip", "root"):
            together = normalize.normalize(hard, how)
            assert together.dtype == dtype
            for i in (0, 4):
                np.testing.assert_array_equal(together[i], normalize.normalize(rows[[i]], how)[0])
            np.testing.assert_allclose(together[2], normalize.normalize(rows, how)[2], rtol=1e-5)
            np.testing.assert_allclose(together[3], normalize.normalize(rows, how)[3], rtol=1e-5)


@pytest.mark.parametrize("how", ["none", "l2", "clip", "root"])
def test_tensors_and_arrays_are_normalized_alike(how):
    torch = pytest.importorskip("torch")
    h = np.random.default_rng(0).standard_normal((6, 128)).astype(np.float32)
    h[2] = 0
    rows = torch.from_numpy(h).requires_grad_(how != "none")
    result = normalize.normalize(rows, how)
    np.testing.assert_allclose(result.detach(), normalize.normalize(h, how), atol=1e-6)
    if how != "none":
        (result * torch.arange(128)).sum().backward()
        assert torch.isfinite(rows.grad).all()
        assert not rows.grad[2].any()
    for signed in (False, True):
        unit = normalize.l2(h)
        stored = normalize.to_uint8(torch.from_numpy(unit), signed)
        assert stored.dtype == torch.uint8
        np.testing.assert_array_equal(stored, normalize.to_uint8(unit, signed))
