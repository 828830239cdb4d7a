"""``caloric bench speed`` on a small image."""

import json
import os

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric.bench import speed
from caloric.cli import app
from caloric.runtime import native
from tools.pages import speed as speed_page


@pytest.fixture(scope="module")
def image_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("speed") / "camera.png"
    cv2.imwrite(str(path), photographs.gray("camera")[:200, :240])
    return path


@pytest.mark.slow
def test_the_report_has_all_tasks_and_contenders(image_file, tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "MATCHED", 300)
    monkeypatch.setattr(speed, "SIZES", (0.05,))
    before = dict(os.environ), cv2.getNumThreads()
    plot, results = tmp_path / "speed.png", tmp_path / "speed.json"
    arguments = ["bench", "speed", str(image_file), "--rounds", "1", "--threads", "1,2"]
    arguments += ["--max-features", "100", "--large", "0.2", "--json", str(results)]
    result = CliRunner().invoke(app, [*arguments, "--plot", str(plot)], catch_exceptions=False)
    assert result.exit_code == 0
    report = json.loads(results.read_text())
    paths = ["plain"] if native.core() is None else ["core", "plain"]
    for number in ("1", "2"):
        tasks = report["threads"][number]
        searched = set() if native.core() is None else {"neighbors"}
        assert set(tasks) == {"extract", "detect", "describe", "closed forms", "match"} | searched
        for path in paths:
            assert tasks["extract"][f"caloric, {path}"]["ratio"] > 0
            assert tasks["describe"][f"heat, {path}"]["seconds"] > 0
        assert set(tasks["closed forms"]) == {"sift", "dsp-inner", "dsp-both"}
        for names in tasks.values():
            assert next(iter(names.values()))["ratio"] == 1
    assert report["large"][0]["peak bytes"] > 1e7
    assert report["side by side"]["gain"] > 0
    assert set(report["with OpenCV alone"]["2"]["extract"]) >= {"OpenCV SIFT", "caloric, plain"}
    assert report["versions"]["opencv"] == cv2.__version__
    kind = {"seconds": [0.04, 0.05], "to_float32": [0.3, 0.3], "to_faiss": [0.04, 0.05]}
    machines = [{"processor": "A", "kinds": {"avx2": kind}}]
    neighbors = {"descriptors": 8000, "rounds": 9, "pairs": 3, "machines": machines}
    text = speed_page.page(report, neighbors)
    assert "## Results" in text
    assert "| A | `avx2` | 40 to 50 ms | 0.30 | 0.040 to 0.050 |" in text
    assert plot.stat().st_size > 10_000
    assert (dict(os.environ), cv2.getNumThreads()) == before
    for line in ("extract", "match", "megapixels"):
        assert line in result.stdout


def test_bad_arguments_are_reported(image_file):
    for arguments, message in (
        ([str(image_file), "--threads", "two"], "--threads must be numbers"),
        (["none.png"], "no such file"),
    ):
        result = CliRunner().invoke(app, ["bench", "speed", *arguments])
        assert isinstance(result.exception, caloric.InputError)
        assert message in str(result.exception)


def test_large_images_repeat_the_original():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    large = speed._scaled(pixels, 0.01)
    assert abs(large.size - 10_000) < 200
    assert (large[:3, :4] == pixels).all()
