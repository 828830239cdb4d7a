"""Retrieval vectors of images, with a codebook learned from the collection."""

import numpy as np
import pytest

import caloric
from caloric.collection import extraction, retrieval, store
from stores import HERE

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


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
