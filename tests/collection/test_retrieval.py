"""Retrieval vectors of images, with a codebook learned from the collection."""

import numpy as np
import pytest

import caloric
from caloric.collection import extraction, retrieval, store
from stores import HERE

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_directions_that_many_images_have_in_common_count_less_in_large_collections(monkeypatch):
    rng = np.random.default_rng(0)
    vlads = np.float32(rng.standard_normal((40, 60)) * np.linspace(1, 3, 60))
    small = retrieval._directions(vlads)
    monkeypatch.setattr(retrieval, "_IMAGES", len(vlads))
    large = retrieval._directions(vlads)
    variances = ((vlads @ small.T) ** 2).sum(0)
    np.testing.assert_allclose(np.linalg.norm(small, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(large, small / variances[:, None] ** 0.25, rtol=1e-3, atol=1e-6)


def test_vectors_are_reduced_by_pca_and_computed_once(matched, monkeypatch, tmp_path):
    out, _ = matched
    names, first = retrieval.vectors(out, HERE)
    assert names == sorted(extraction.stored_images(out))
    assert first.shape == (6, 6)  # as many directions as images
    np.testing.assert_allclose(np.linalg.norm(first.astype(float), axis=1), 1, atol=2e-3)
    monkeypatch.setattr(retrieval, "make", None)
    again = retrieval.vectors(out, HERE)[1]
    np.testing.assert_array_equal(first, again)
    with pytest.raises(caloric.InputError, match="extract them first"):
        retrieval.codebook(tmp_path)
