"""The selection of pairs."""

from itertools import pairwise

import numpy as np
import pytest

import caloric
from caloric.collection import exporting, extraction, metadata, pairing, retrieval, store
from caloric.collection.sources import ImageFile
from caloric.image.exif import Exif
from stores import HERE, extract, run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_retrieval_pairs_are_of_the_same_scene(matched):
    out, _ = matched
    pairs = pairing.pairs(out, pairing.Pairing("retrieval", nearest=2), HERE)
    assert all(a.split("/")[0] == b.split("/")[0] for a, b in pairs)
    assert len(pairs) == 6
    pairing.pairs(out, pairing.Pairing(), HERE)


def test_sequential_pairs_contain_all_neighbors(matched):
    out, _ = matched
    pairs = pairing.pairs(out, pairing.Pairing("sequential", overlap=1, nearest=1), HERE)
    names = sorted(name for name, _ in exporting.images(out))
    assert set(pairwise(names)) <= set(pairs)
    pairing.pairs(out, pairing.Pairing(), HERE)


def test_invalid_options_of_pairs_are_errors():
    with pytest.raises(caloric.InputError, match="unknown pairs"):
        pairing.Pairing("some")
    with pytest.raises(caloric.InputError, match="positive integers"):
        pairing.Pairing(nearest=0)


def test_a_vlad_vector_has_unit_length():
    vector = retrieval.vlad(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:2])
    assert np.linalg.norm(vector) == pytest.approx(1)


def test_the_last_selection_of_pairs_is_the_default(directory, tmp_path):
    out = tmp_path / "out"
    extract(directory, out)
    few = pairing.pairs(out, pairing.Pairing("retrieval", nearest=1), HERE)
    assert len(few) < 15
    assert pairing.pairs(out, None, HERE) == few
    assert pairing.last_pairing(out) == pairing.Pairing("retrieval", nearest=1)
    assert f"{len(few)} pairs" in run("collection", "match", out, "--workers", 1).output


def test_large_collections_use_retrieval_and_gps(tmp_path, directory, monkeypatch):
    out = tmp_path / "out"
    extract(directory, out)
    assert len(pairing.pairs(out, pairing.Pairing(nearest=1), HERE)) == 15
    monkeypatch.setattr(pairing, "_EXHAUSTIVE", 5)
    names = sorted(extraction.stored_images(out))
    files = [
        ImageFile(name, "", Exif(position=(50.0, 8 + 0.01 * 3**i, 0.0)))
        for i, name in enumerate(names)
    ]
    metadata.write(out, files)
    pairs = pairing.pairs(out, pairing.Pairing(nearest=1), HERE)
    assert len(pairs) < 15
    assert set(pairwise(names)) <= set(pairs)  # nearest by position
