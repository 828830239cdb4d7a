"""Incorrect pairs: judged by a model, and among images of different sets."""

import shutil

import numpy as np
import pytest

from caloric.collection import matching, store
from colmap_models import write_database, write_model
from tools import incorrect_pairs

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_pairs_are_judged_by_the_model(tmp_path):
    shifts = np.array([[0, 0, 0], [0.5, 0.1, 0], [0.2, -0.4, 0.3]])
    write_model(tmp_path / "0", shifts=shifts)
    write_database(tmp_path / "database.db", tmp_path / "0")
    pairs = list(incorrect_pairs.of_database(tmp_path / "database.db"))
    assert [len(p) for _, _, p, _ in pairs] == [40, 40]
    unregistered = ("a.jpg", "z.jpg", pairs[0][2], pairs[0][3])
    result = incorrect_pairs.judged([*pairs, unregistered], tmp_path / "0")
    assert result == {"pairs": 2, "incorrect pairs": ["a.jpg c.jpg"]}


def test_pairs_of_a_store_have_the_positions_of_colmap(matched):
    (pair, *_), (expected, *_) = (
        list(incorrect_pairs.of_store(matched[0])),
        [pair for pair in matching.two_views(matched[0]) if pair.matrix is not None],
    )
    assert pair[:2] == (expected.name_a, expected.name_b)
    assert len(pair[2]) == len(pair[3]) == len(expected.inliers)


def test_the_same_scene_in_two_stores_is_accepted(matched, tmp_path):
    shutil.copytree(matched[0], tmp_path / "copy")
    result = incorrect_pairs.unrelated([matched[0], tmp_path / "copy"], 4)
    assert result["pairs"] == 4
    assert result["accepted"] <= result["at least 15 inliers"]
    assert result["accepted"] > 0
