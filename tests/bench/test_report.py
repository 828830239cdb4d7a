"""Reports of the accuracy benchmarks, from known results."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from caloric.bench import report
from caloric.bench.datasets import Pair
from caloric.bench.evaluate import RATIOS, Result
from caloric.bench.methods import DEFAULT

PAIRS = [
    Pair(f"{group} {k}", group, Path(group) / "1.png", Path(group) / f"{k}.png", np.eye(3))
    for group in ("wall", "boat")
    for k in (2, 3)
]
NAMES = ("mAP", "R@1", "mAP, normalized", "MMA 3", "right", "features", "repeatability")


def result(name, values, detects=False):
    metrics = {metric: np.array(values) for metric in (*NAMES, "correspondences")}
    corners = np.full((len(values), len(RATIOS)), 9.0)
    corners[:, :3] = 2.0
    return Result(name, detects, 128, metrics, corners)


@pytest.fixture
def summary():
    results = [
        result(DEFAULT, [0.9, 0.7, 0.5, 0.3]),
        result("other", [0.8, 0.6, 0.4, 0.2]),
        result(DEFAULT, [0.5, 0.5, 0.5, 0.5], detects=True),
    ]
    return report.summarize("oxford", PAIRS, results)


def test_results_are_averages_over_pairs_and_groups(summary):
    default = summary["same keypoints"][DEFAULT]
    assert default["results"]["mAP"]["mean"] == pytest.approx(0.6)
    assert default["groups"]["wall"]["mAP"] == pytest.approx(0.8)
    assert default["groups"]["boat"]["mAP"] == pytest.approx(0.4)
    assert default["pairs"]["mAP"] == [0.9, 0.7, 0.5, 0.3]
    assert default["results"]["corners 3"]["mean"] == pytest.approx(3 / len(RATIOS))
    assert default["corners 3 by ratio"] == [1.0] * 3 + [0.0] * (len(RATIOS) - 3)
    assert list(summary["own detectors"]) == [DEFAULT]
    assert json.loads(report.dumps(summary))["pairs"] == [pair.name for pair in PAIRS]


def test_leads_are_differences_on_the_same_pairs(summary):
    """The difference is the same for all pairs, so the interval is a point."""
    default, other = (summary["same keypoints"][name] for name in (DEFAULT, "other"))
    assert default["ahead of it is the default by"] == {}
    lead = other["ahead of it is the default by"]["mAP"]
    assert lead == pytest.approx({"mean": 0.1, "low": 0.1, "high": 0.1})
    behind = summary["differences of mAP, same keypoints"]["other"][DEFAULT]
    assert behind["mean"] == pytest.approx(-0.1)


def test_tables_have_labels_and_plots_are_drawn(summary, tmp_path):
    head, rows = report.table(summary, "same keypoints")
    assert [row[0] for row in rows] == [DEFAULT, "other"]
    cells = dict(zip(head, rows[1], strict=True))
    assert cells["mAP"] == "0.500"
    assert cells["correct matches"] == "0"  # a count
    assert cells["lead of the default (mAP)"] == "+0.100 [+0.100, +0.100]"
    report.plot(summary, tmp_path / "plot.png")
    assert cv2.imread(str(tmp_path / "plot.png")).std() > 10
