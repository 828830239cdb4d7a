"""``caloric bench scale``: what it measures, and how an interrupted run continues."""

import json
import time

import cv2
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.bench import scale
from caloric.bench.scale import Run
from caloric.collection import Reporter, Workers


def test_steps_that_an_earlier_run_completed_are_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "_INTERVAL", 0.01)

    def interrupted():
        time.sleep(0.2)
        raise KeyboardInterrupt

    path = tmp_path / "steps.json"
    first = scale._Steps(path)
    first.check({"images": 10})
    assert first.timed("extract", lambda: 5) == 5
    with pytest.raises(KeyboardInterrupt):
        first.timed("match", interrupted)
    second = scale._Steps(path)
    second.check({"images": 10})
    assert second.timed("extract", lambda: 6) == 6
    assert second.seconds == {"extract": first.seconds["extract"]}
    assert second.interrupted == []
    second.timed("match", lambda: None)
    assert second.interrupted == ["match"]
    assert second.seconds["match"] > 0.15  # with that of the earlier run
    assert second.memory > 10_000_000
    with pytest.raises(caloric.InputError, match="other settings"):
        scale._Steps(path).check({"images": 20})


def test_the_memory_of_this_process_is_measured():
    assert scale._memory() > 10_000_000


def test_errors_are_reported_before_rendering(tmp_path):
    settings = Run(tmp_path, tmp_path / "out", 10, 50, "retrieval", 5, Workers(1))
    with pytest.raises(caloric.InputError, match="contains no images"):
        scale.run(settings, Reporter())
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_small_collection(tmp_path):
    directory, out = tmp_path / "photographs", tmp_path / "out"
    directory.mkdir()
    for name in ("camera", "coffee"):
        cv2.imwrite(str(directory / f"{name}.png"), photographs.gray(name, (900, 700)))
    arguments = ["bench", "scale", "--data", str(directory), "-o", str(out), "--images", "12"]
    arguments += ["--max-features", "300", "--device", "cpu", "--json", str(tmp_path / "r.json")]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "12 images" in result.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["recall of verified pairs"] > 0.9
    assert set(report["seconds"]) == {"extract", "pair", "match", "verify"}
    assert report["memory of all processes, bytes"] > 10_000_000
    again = CliRunner().invoke(cli.app, arguments)
    assert again.exit_code == 0
    second = json.loads((tmp_path / "r.json").read_text())
    assert second["seconds"] == report["seconds"]
