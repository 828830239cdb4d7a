"""The second round for missing images."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

import photographs
from caloric.collection import (
    completing,
    exporting,
    extraction,
    matching,
    pairing,
    store,
    summaries,
)
from caloric.collection.matching import Matching
from caloric.collection.summaries import PairSummary
from stores import HERE, SETTINGS

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)

PAIRS = [
    PairSummary("a", "b", 300, 250, 1.0, True),
    PairSummary("b", "c", 200, 100, 1.0, True),
    PairSummary("b", "x", 20, 15, 0.1, False),
    PairSummary("a", "x", 9, 9, 0.0, False),
    PairSummary("x", "y", 90, 0, 0.0, False),
]


def test_partners_are_registered_and_the_best_first():
    assert completing.partners("x", PAIRS, {"a", "b", "c"}) == ["b", "a", "c"]
    assert completing.partners("y", PAIRS, {"a", "b", "c"}) == []


def test_better_pairs_replace_the_summaries():
    better = PairSummary("x", "b", 60, 40, 0.9, True)
    worse = PairSummary("x", "a", 5, 2, 0.0, False)
    result = completing.summaries(PAIRS, [better, worse])
    assert better in result
    assert worse not in result
    assert len(result) == len(PAIRS)


def test_a_missing_image_is_matched_again_with_simulated_views(plainly_named):
    directory, out = plainly_named
    name, *others = sorted(extraction.stored_images(out))
    pairs = summaries.summaries(out)
    (task,) = completing.tasks(str(directory), out, SETTINGS, Matching(), pairs, set(others))
    assert list(task.shards_of) == [name, *completing.partners(name, pairs, set(others))]
    completed = completing.complete([task], HERE).images
    old = dict(exporting.images(out))
    features = dict(completing.images(out, completed))
    assert features.keys() == old.keys()
    count = len(old[name])
    assert len(features[name]) > count
    np.testing.assert_allclose(features[name].frames.maps[:count], old[name].frames.maps)
    assert features[others[0]].frames.maps.shape == old[others[0]].frames.maps.shape
    before = {(p.name_a, p.name_b): p for p in matching.two_views(out)}
    after = list(completing.two_views(out, completed))
    assert len(after) == len(before)
    new = [pair for pair in after if (pair.name_a, pair.name_b) not in before]
    kept = [pair for pair in after if name in (pair.name_a, pair.name_b)]
    assert new or kept
    for pair in completed[name].pairs:
        assert pair.matches[:, 0].max() < len(features[name])
        assert pair.matches[:, 1].max() < len(features[pair.name_b])


def test_an_image_that_changed_is_left_out(plainly_named, tmp_path):
    directory, out = plainly_named
    _, *others = sorted(extraction.stored_images(out))
    pairs = summaries.summaries(out)
    (task,) = completing.tasks(str(directory), out, SETTINGS, Matching(), pairs, set(others))
    assert str(completing.complete([replace(task, directory=str(tmp_path))], HERE)) == (
        "0 of 1 missing image have new verified pairs"
    )


def test_images_with_a_white_level_are_matched_again(tmp_path):
    directory, out = tmp_path / "images", tmp_path / "out"
    directory.mkdir()
    for i, view in enumerate(photographs.book(3)):
        cv2.imwrite(str(directory / f"{i}.png"), view.astype(np.uint16) * 16)  # 12 bits
    extraction.extract(str(directory), out, SETTINGS, HERE, white_level=4095.0)
    matching.match(out, pairing.pairs(out, pairing.Pairing(), HERE), Matching(), HERE)
    matching.verify(out, Matching(), HERE)
    pairs = summaries.summaries(out)
    tasks = completing.tasks(str(directory), out, SETTINGS, Matching(), pairs, {"0.png", "1.png"})
    assert list(completing.complete(tasks, HERE).images) == ["2.png"]
