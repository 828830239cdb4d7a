"""Reasons for missing images, and the summary of a run."""

from pathlib import Path

from caloric.collection import results
from caloric.collection.results import CollectionResult
from caloric.collection.summaries import PairSummary
from caloric.interop.colmap_model import Reconstruction

PAIRS = [
    PairSummary("a", "b", 300, 250, 1.0, True),
    PairSummary("a", "weak", 30, 9, 0.01, False),
    PairSummary("b", "weak", 20, 8, 0.0, False),
    PairSummary("a", "few", 3, 0, 0.0, False),
    PairSummary("a", "one", 1, 0, 0.0, False),
    PairSummary("a", "other", 12, 0, 0.0, False),
    PairSummary("b", "near", 40, 21, 0.9, True),
]
MODEL = Reconstruction(Path("0"), ("a", "b"), 10, 0.4, 2.0, 1)


def test_each_missing_image_has_a_reason():
    outcomes = {
        "a": 9,
        "b": 9,
        "weak": 9,
        "few": 9,
        "one": 9,
        "other": 9,
        "near": 9,
        "flat": 0,
        "bad": "bad: no",
        "x": 9,
    }
    assert results.missing(outcomes, PAIRS, {"a", "b"}) == {
        "weak": "weak match: no reliable geometry; best partner: a (9 of 30 matches are inliers)",
        "few": "no match: at most 3 matches with another image",
        "one": "no match: at most 1 match with another image",
        "other": "no match: at most 12 matches with another image, which have no common geometry",
        "near": "not enough overlap: matches 1 image, best b with 21 inliers",
        "flat": "no features",
        "bad": "no",
        "x": "not paired with another image",
    }


def test_a_failure_has_a_reason():
    assert "no two images have a reliable geometry" in results.failure(PAIRS[1:6], ())
    assert "(2 verified pairs, with at most 250 inliers)" in results.failure(PAIRS, ())
    assert "registered 2 images but no point" in results.failure(PAIRS, (MODEL,))


def test_the_summary_counts_images_and_models():
    missing = {f"{i}.jpg": "no features" for i in range(23)}
    result = CollectionResult(("a", "b"), missing, (MODEL, MODEL), {}, {}, "", {}, Path("r.html"))
    lines = str(result).splitlines()
    assert lines[0] == result.summary == "2 of 25 images registered in 2 models"
    assert lines[1] == "  not registered: 0.jpg: no features"
    assert lines[-2:] == ["  ... and 3 more: see the report", "report: r.html"]
    assert result
    failed = CollectionResult((), {"a": "bad"}, (), {}, {}, "no pairs", {}, Path("r.html"))
    assert str(failed).splitlines()[:2] == [
        "0 of 1 image registered: no pairs",
        "  not registered: a: bad",
    ]
    assert not failed
