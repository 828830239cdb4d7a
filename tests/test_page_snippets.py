"""The Python code on pages of the documentation runs, and does what the page says."""

import json
import re

import numpy as np
import pytest

from paths import DOCS


def run(page, scope):
    """Execute the code blocks of a page in order; return their names."""
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.S)
    assert blocks
    exec("\n".join(blocks), scope)
    return scope


def test_refining():
    refined = run("refining.md", {})["refined"]
    assert refined.moved.sum() > 500
    assert refined.covariances.shape == (len(refined), 2, 2)


def test_json(tmp_path):
    rows = [[1, 2, 3, 4, 0.5, True], [5, 6, 7, 8, 0.6, False]]
    path = tmp_path / "matches.json"
    columns = ["x_a", "y_a", "x_b", "y_b", "distance", "inlier"]
    path.write_text(json.dumps({"matches": rows, "columns": columns}))
    points_a, points_b = run("json.md", {})["read_points"](path)
    np.testing.assert_array_equal(np.concatenate([points_a, points_b], 1), [[1, 2, 3, 4]])


def test_whitening(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = run("whitening.md", {})["pair"]
    assert np.load("mine.npy").shape == (208, 128)
    assert len(pair) > 1000
    np.testing.assert_allclose(np.median(pair.points_b - pair.points_a, 0), [-60, -40], atol=0.1)


def test_matching():
    pytest.importorskip("kornia")
    scope = run("matching.md", {})
    counts = scope["counts"]
    assert (np.diff(counts, axis=0) > 0).all()  # a higher ratio has more matches, correct ones too
    assert (np.diff(counts[:, 1] / counts[:, 0]) < 0).all()
    for name in ("good", "nearly_as_good", "indices", "rows"):
        assert len(scope[name]) > 800
