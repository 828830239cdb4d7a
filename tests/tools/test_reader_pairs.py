"""``python -m tools reader-pairs``: matchers of other libraries on exported descriptors."""

import numpy as np
import pytest

import photographs
from tools import reader_pairs, readers


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    cv2 = pytest.importorskip("cv2")
    directory = tmp_path_factory.mktemp("pair")
    image = photographs.gray("brick", (300, 300))
    cv2.imwrite(str(directory / "a.png"), image)
    cv2.imwrite(str(directory / "b.png"), np.rot90(image))
    return directory


def test_every_matcher_finds_correct_matches_of_a_rotated_image(pair, monkeypatch):
    pytest.importorskip("kornia")
    monkeypatch.setattr(readers, "METHODS", {"caloric": readers.exported})
    messages = []
    report = reader_pairs.run([pair], 300, 1, messages.append)
    assert messages == [f"{pair.name}, 1 pairs: caloric"]
    results = report[f"{pair.name}, 1 pairs"]
    assert list(results) == list(reader_pairs.RULES)
    for rule, methods in results.items():
        correct, total = methods["caloric"]
        assert 100 < correct <= total <= 300, rule
    assert results["hloc NN-ratio"]["caloric"][1] < results["hloc NN-mutual"]["caloric"][1]
    (text,) = reader_pairs.lines(report)
    assert "| openMVG (0.8, one direction) | caloric |" in text


def test_a_symmetric_ratio_test_compares_both_directions():
    def search(a, b):
        distances = np.abs(a - b.T)
        order = np.argsort(distances, 1)[:, :2]
        return order, np.take_along_axis(distances, order, 1)

    a, b = np.float32([[0], [1], [10]]), np.float32([[0.4], [10], [30]])
    one_way = reader_pairs.ratio_test(search, 0.8)(a, b)
    assert one_way.tolist() == [[0, 0], [1, 0], [2, 1]]
    # Row 0 of b is nearly as far from row 1 of a as from row 0.
    both = reader_pairs.ratio_test(search, 0.8, symmetric=True)(a, b)
    assert both.tolist() == [[0, 0], [2, 1]]
    assert reader_pairs.ratio_test(search, 0.5, symmetric=True)(a, b).tolist() == [[2, 1]]


def test_few_matches_have_no_inliers():
    assert reader_pairs.inliers(None, None, np.zeros((7, 2), np.int64)) == 0
