"""DescribeOptions."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.descriptor.options import DescribeOptions


def test_domain_sizes():
    image = photographs.gray("camera")
    frames = caloric.detect(image, max_features=50)
    one = caloric.describe(image, frames, "sift", domain_sizes=(1.0,))
    np.testing.assert_array_equal(one, caloric.describe(image, frames, "sift"))
    ten = caloric.describe(image, frames, "sift", domain_sizes=10)
    assert ten.shape == one.shape
    np.testing.assert_allclose(np.linalg.norm(ten, axis=1), 1, rtol=1e-5)
    sizes = [1 / 6 + i * (3 - 1 / 6) / 10 for i in range(10)]
    np.testing.assert_array_equal(ten, caloric.describe(image, frames, "sift", domain_sizes=sizes))
    for bad in (0, 1, True, (), (0.0,), (np.inf,), "abc", 2.5):
        with pytest.raises(caloric.InputError, match="domain_sizes"):
            caloric.describe(image, frames, "sift", domain_sizes=bad)


def test_other_keywords_are_kernel_parameters():
    options = DescribeOptions.of("heat", {"sigma_a": 0.3, "dtype": np.uint8}, caloric.describe)
    assert options.parameters == (("sigma_a", 0.3),)
    assert options.recipe.kernel.sigma_a == 0.3
    assert (options.output, options.name) == ("uint8", "heat")
    assert options.empty_values.shape == (0, 128)
    with pytest.raises(caloric.InputError, match="did you mean 'sigma_a'"):
        DescribeOptions.of("heat", {"sigma_aa": 0.3}, caloric.describe)


def test_another_layout_or_normalization_disables_whitening():
    """Whitening is learned for one recipe."""
    assert DescribeOptions().recipe.whitening is not None
    for other in ({"layout": caloric.Grid(cells=2)}, {"normalisation": "l2"}):
        options = DescribeOptions(**other)
        assert options.recipe.whitening is None
        assert options.fingerprint != DescribeOptions().fingerprint
    same = DescribeOptions(normalisation=DescribeOptions().recipe.normalisation)
    assert same.recipe == DescribeOptions().recipe


def test_options_of_different_types_are_equal_and_hashable():
    a = DescribeOptions(dtype=np.float64, domain_sizes=[1, 2])
    b = DescribeOptions(dtype="float64", domain_sizes=(1.0, 2.0))
    assert a == b
    assert hash(a) == hash(b)
