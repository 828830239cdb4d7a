"""``caloric bench`` on a small data set."""

import json

import cv2
import pytest
from typer.testing import CliRunner

from caloric import InputError, cli
from caloric.bench import evaluate, methods
from homography_scenes import write_scene
from tools.pages import accuracy


def test_a_second_run_reads_the_cache(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    write_scene(data, "oxford")
    out, plot, cache = data / "report.json", tmp_path / "plot.png", tmp_path / "cache"
    arguments = ["bench", "oxford", "--data", str(data), "--only", "graf"]
    arguments += ["--json", str(out), "--plot", str(plot), "--cache", str(cache)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert next(iter(report["same keypoints"])) == "caloric"
    assert {"OpenCV SIFT, root", methods.RESAMPLED, "heat"} <= set(report["same keypoints"])
    for method in report["same keypoints"].values():
        value = method["results"]["mAP"]
        assert 0.5 < value["low"] <= value["mean"] <= value["high"] <= 1
        assert method["results"]["corners 3"]["mean"] == 1
    for method in report["own detectors"].values():
        assert method["results"]["repeatability"]["mean"] > 0.5
    assert "lead of" in result.output
    assert cv2.imread(str(plot)).std() > 10

    def fail(*_):
        raise AssertionError("not read from the cache")

    monkeypatch.setattr(evaluate._Images, "run", fail)
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    assert json.loads(out.read_text()) == report
    text = accuracy.page([out], None, None)
    assert (
        f"| caloric | 128 | {report['same keypoints']['caloric']['results']['mAP']['mean']:.3f}"
        in text
    )
    assert "### Where the default loses" in text
    out.write_text("{}")
    with pytest.raises(InputError, match="not results of this version"):
        accuracy.page([out], None, None)


def test_unknown_scenes_and_missing_data_are_errors(tmp_path, command):
    code, _, err = command("bench", "oxford", "--data", tmp_path / "none")
    assert code == 2
    assert "no such directory" in err
    write_scene(tmp_path, "oxford")
    code, _, err = command("bench", "oxford", "--data", tmp_path, "--only", "graf,wall")
    assert code == 2
    assert err.strip().endswith("contains no scene wall")
    code, _, err = command("bench", "pairs", "--data", tmp_path, "--only", "wall")
    assert code == 2
    assert "no scene wall" in err
