"""``python -m tools cost``: the CPU time of a run includes that of its workers."""

import sys

import numpy as np
import pytest
from PIL import Image

import photographs
from tools import cost


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="processes are adopted on Linux only")
def test_both_methods_are_measured(tmp_path):
    pytest.importorskip("pycolmap")
    images = tmp_path / "images"
    images.mkdir()
    for name in ("camera", "coffee"):
        pixels = (255 * photographs.gray(name)[:200, :200]).astype(np.uint8)
        Image.fromarray(pixels).save(images / f"{name}.png")
    report = cost.run([images], tmp_path / "work", ["portable"], 1, lambda message: None)
    times = report["sets"]["images"]["times"]
    assert set(times) == {"COLMAP SIFT", "portable"}
    for ((one,),) in zip(times.values(), strict=True):
        assert 0.1 < one["CPU seconds"] < 100
    # Imports of the workers alone take longer than this.
    assert times["portable"][0]["CPU seconds"] > 1


def test_the_ratio_is_that_of_each_round():
    def measured(*seconds):
        return [{"CPU seconds": value} for value in seconds]

    times = {"COLMAP SIFT": measured(60, 80, 70), "amx": measured(30, 60, 70)}
    report = {"sets": {"set": {"images": 25, "times": times}}}
    (text,) = cost.lines(report)
    assert "| set | 25 | amx | 70 s | 60 s | 0.75 (0.50 to 1.00) |" in text
