"""Functions for arrays and tensors return the same values for both."""

import numpy as np
import pytest

from caloric.runtime import arrays

RNG = np.random.default_rng(0)


def test_the_namespace_of_arrays_and_tensors():
    torch = pytest.importorskip("torch")
    assert arrays.namespace(np.zeros(3)) is np
    assert arrays.namespace(torch.zeros(3)) is torch
    assert arrays.namespace(torch.nn.Parameter(torch.zeros(3))) is torch


@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_percentiles(count):
    torch = pytest.importorskip("torch")
    values = RNG.random((count, 3))
    for percent in (0, 10, 37.5, 100):
        expected = np.percentile(values, percent)
        assert arrays.percentile(values, percent) == expected
        assert float(arrays.percentile(torch.from_numpy(values), percent)) == pytest.approx(
            expected
        )


def test_inner_products_and_roots():
    torch = pytest.importorskip("torch")
    a, b = RNG.standard_normal((2, 5, 4))
    for axis in (0, 1):
        expected = (a * b).sum(axis)
        np.testing.assert_allclose(arrays.inner(a, b, axis), expected)
        np.testing.assert_allclose(
            arrays.inner(torch.from_numpy(a), torch.from_numpy(b), axis), expected
        )
    roots = arrays.positive_root(a)
    np.testing.assert_allclose(roots**2, np.maximum(a, 0))
    tensor = torch.from_numpy(a).requires_grad_()
    arrays.positive_root(tensor).sum().backward()
    np.testing.assert_allclose(tensor.grad[a <= 0], 0)
    np.testing.assert_allclose(tensor.grad[a > 0], 0.5 / roots[a > 0])


def test_at_least_is_the_same_for_arrays_and_tensors():
    torch = pytest.importorskip("torch")
    values = np.array([-1.0, 0.5, 2.0], np.float32)
    for bounded in (arrays.at_least(values, 0.5), arrays.at_least(torch.tensor(values), 0.5)):
        np.testing.assert_array_equal(np.asarray(bounded), [0.5, 0.5, 2.0])
    assert arrays.at_least(values, 0.5).dtype == np.float32
