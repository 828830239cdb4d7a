"""Descriptors by name, by kernel and by recipe."""

from dataclasses import replace

import numpy as np
import pytest

import caloric
import photographs
from caloric.descriptor import recipes, whitening


def test_a_kernel_is_accepted_as_a_descriptor():
    patches = np.random.default_rng(0).random((2, 8, 8))
    kernel = caloric.kernel("heat", sigma_d=0.2, sigma_a=0.4)
    np.testing.assert_array_equal(
        caloric.describe_patches(patches, kernel), caloric.describe_patches(patches, "heat")
    )


def test_variants_of_the_default_have_their_dimensions():
    image = photographs.gray("camera")
    frames = caloric.detect(image, max_features=40)
    whole = caloric.describe(image, frames)
    assert whole.shape == (40, 128)
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    for count in (64, 32):
        few = caloric.describe(image, frames, f"caloric-{count}")
        cut = whole[:, :count] / np.linalg.norm(whole[:, :count], axis=1, keepdims=True)
        np.testing.assert_allclose(few, cut, atol=1e-5)
    plain = caloric.describe(image, frames, "caloric-unlearned")
    assert plain.shape == (40, 128)
    assert plain.min() >= 0
    raw = caloric.describe(image, frames, "caloric-unwhitened")
    assert raw.shape == (40, recipes.descriptor("caloric").layout.dimension)
    assert caloric.describe(image, frames, sigma_r=0.5).shape == raw.shape
    with pytest.raises(caloric.InputError, match="choose from caloric, sift"):
        caloric.describe(image, frames, "caloric-63")
    with pytest.raises(caloric.InputError, match="dimensions must be 1 to 128"):
        replace(recipes.descriptor("caloric"), dimensions=129)
    with pytest.raises(caloric.InputError, match="only for whitened descriptors"):
        replace(recipes.descriptor("sift"), dimensions=64)
    with pytest.raises(caloric.InputError, match="unknown whitening"):
        whitening.load("other")


def test_the_default_accepts_another_normalization_and_layout():
    image = photographs.gray("camera")
    frames = caloric.detect(image, max_features=5)
    layout = recipes.descriptor("caloric").layout
    assert caloric.describe(image, frames, normalisation="none").shape == (5, layout.dimension)
    custom = caloric.describe(image, frames, layout=caloric.Rings(radii=(2.0, 6.0), angles=4))
    assert custom.shape == (5, 64)


def test_the_stored_search_contains_the_chosen_values():
    search = recipes.search()
    assert set(search["searched"]) <= set(search["chosen"])
    for name, options in search["searched"].items():
        assert search["chosen"][name] in options
    assert search["scores"]["held-out synthetic mAP"] > 0.5
