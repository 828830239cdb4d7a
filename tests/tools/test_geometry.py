"""``python -m tools geometry``: rendered pairs, and the report from small ones."""

import cv2
import numpy as np
import pytest
from skimage import data

from caloric.matching import models
from tools.geometry import calibration, estimators, run, scenes
from tools.pages import geometry as pages

SIZE = (160, 200)


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("photographs")
    names = "brick", "gravel", "grass"
    paths = [directory / f"{name}_1.png" for name in names]
    for path, name in zip(paths, names, strict=True):
        cv2.imwrite(str(path), getattr(data, name)()[:400])
    return paths


@pytest.fixture
def small(monkeypatch):
    """Render small images."""
    monkeypatch.setattr(scenes, "_MAX_FEATURES", (300,))
    for module in (scenes, estimators, calibration):
        monkeypatch.setattr(module, "SIZE", SIZE)


@pytest.mark.parametrize("kind", ["plane", "depth", "rotation", "lens", "unrelated"])
def test_true_correspondences_agree_with_the_cameras(kind, photographs, small, monkeypatch):
    monkeypatch.setattr(
        scenes, "matched", lambda a, b, *_: scenes.Matched(*np.zeros((2, 0, 2, 3)), None)
    )
    case = scenes.case(kind, photographs, 0, 1)
    assert case.scene == "brick"
    if kind == "unrelated":
        assert len(case.points_a) == 0
        return
    p, q = case.points_a, case.points_b
    assert len(p) == len(q) > 10
    planar = np.linalg.norm(models.mapped(p, case.homography) - q, axis=1)
    if kind in ("plane", "rotation"):
        assert planar.max() < 1e-3
    if kind in ("plane", "depth"):
        assert models.residual(p, q, "fundamental", case.fundamental).max() < 0.1
    if kind == "depth":
        assert planar.max() > 1


def test_images_and_matches_agree_with_the_truth(photographs, small):
    case = scenes.case("relief 1 %", photographs, 1, 0)
    matched = case.levels[1]
    errors = models.residual(
        matched.a[:, :, 2], matched.b[:, :, 2], "fundamental", case.fundamental
    )
    assert len(errors) > 30
    assert np.median(errors) < 1


def test_report(photographs, small, monkeypatch, tmp_path):
    monkeypatch.setattr(calibration, "_MIN_POINTS", 10)
    monkeypatch.setattr(estimators, "THRESHOLDS", (2.0,))
    rows = ([], [], [])
    tasks = [(kind, index, 0) for index in (0, 1) for kind in ("plane", "depth")]
    for task in [*tasks, ("rotation", 0, 0)]:
        for target, part in zip(rows, run.trial(photographs, task), strict=True):
            target.extend(part)
    assert {row["model"] for row in rows[0]} == set(calibration.MODELS)
    assert sum(row["correct"] for row in rows[0]) > 20
    report = run.report(*rows)
    assert report["auto"]["rotation"]["homography"] == 1
    assert {"Caloric", "MAGSAC++ 2 px"} <= set(report["estimators"]["homography"])
    report |= {"photographs": 2}
    text = pages.values(report)
    assert "| rotation | 1 | 1 | 100% |" in text["choices"]
    assert "| Caloric, points |" in text["estimators"]
    assert text["reliability"].count("\n") == 7
    pages.draw(report, tmp_path / "figure.png")
    assert cv2.imread(str(tmp_path / "figure.png")).shape[1] > 1000


def test_reliability():
    rows = [
        {"kind": "plane", "level": 1, "correct": i < 9, "error": 1.0 if i < 9 else 30.0}
        for i in range(10)
    ]
    result = calibration.reliability(np.full(10, 0.95), rows)
    assert result["error"] == pytest.approx(0.05)
    assert result["diagram"] == [[0.95, 0.9, 10]]
    assert (result["of these incorrect"], result["of these above 20 px"]) == (1, 1)


def test_the_regression_recovers_its_coefficients():
    rng = np.random.default_rng(0)
    power = rng.uniform(-40, 10, 4000)
    truth = np.array([-3.0, -0.25])
    terms = np.stack([np.ones(4000), power], 1)
    correct = rng.random(4000) < 1 / (1 + np.exp(-terms @ truth))
    rows = [
        {"kind": "plane", "level": 1, "terms": t, "correct": c}
        for t, c in zip(terms, correct, strict=True)
    ]
    np.testing.assert_allclose(calibration.fit(rows), truth, rtol=0.15)
