"""The choice of pairs."""

from itertools import pairwise

import numpy as np
import pytest

import caloric
from caloric.collection import exporting, pairing, retrieval, store
from stores import HERE, extract, run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_pairs_in_sequence_and_by_what_they_show(matched):
    out, _ = matched
    near = pairing.pairs(out, pairing.Pairing("retrieval", nearest=2), HERE)
    assert all(a.split("/")[0] == b.split("/")[0] for a, b in near)
    assert len(near) == 6
    row = pairing.pairs(out, pairing.Pairing("sequential", overlap=1, nearest=1), HERE)
    names = sorted(name for name, _ in exporting.images(out))
    assert set(pairwise(names)) <= set(row)
    pairing.pairs(out, pairing.Pairing(), HERE)
    with pytest.raises(caloric.InputError, match="unknown pairs"):
        pairing.Pairing("some")
    with pytest.raises(caloric.InputError, match="positive integers"):
        pairing.Pairing(nearest=0)
    one = retrieval.vlad(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:2])
    assert np.linalg.norm(one) == pytest.approx(1)


def test_pairs_are_remembered(directory, tmp_path):
    out = tmp_path / "out"
    extract(directory, out)
    few = pairing.pairs(out, pairing.Pairing("retrieval", nearest=1), HERE)
    assert len(few) < 15
    assert pairing.pairs(out, None, HERE) == few
    assert pairing.chosen(out) == pairing.Pairing("retrieval", nearest=1)
    assert f"{len(few)} pairs" in run("collection", "match", out, "--workers", 1).output
