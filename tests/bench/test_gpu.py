"""``caloric bench gpu``, and the file benchmark of ``python -m tools gpu``."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.bench import gpu


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "photographs"
    path.mkdir()
    cv2.imwrite(str(path / "only.png"), photographs.gray("brick", (120, 140)))
    return path


def test_images_are_scaled_and_cropped_to_one_size(directory, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(caloric.InputError, match="contains no images"):
        gpu.photographs(tmp_path / "empty", 64, 64, 1)
    images = gpu.photographs(directory, 96, 128, 3)
    assert [image.shape for image in images] == [(96, 128, 3)] * 3
    assert not np.array_equal(images[0], images[1])
    (gray,) = gpu.gray_photographs(directory, 96, 128, 1)
    assert gray.shape == (96, 128)


def test_the_command_reports_rates_and_requires_a_gpu(directory, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setattr(gpu, "SIZES", {"small": (96, 128, 100)})
    monkeypatch.setattr(gpu, "_IMAGES", {"cpu": 2, "device": 3})
    out = tmp_path / "gpu.json"
    arguments = ["bench", "gpu", "--data", directory, "--device", "torch:cpu", "--json", out]
    result = CliRunner().invoke(cli.app, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    rates = json.loads(out.read_text())["rates"]["small"]
    for kind in ("cpu", "device"):
        assert rates[kind]["images per second"] > 0
        assert rates[kind]["pairs per second"] > 0
    assert "images per second" in result.stdout
    arguments = ["bench", "gpu", "--data", str(directory), "--device", "cpu"]
    with pytest.raises(caloric.InputError, match="no GPU found"):
        CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


def test_the_file_benchmark_reports_rates(directory, monkeypatch):
    pytest.importorskip("torch")
    from tools.gpu import users

    monkeypatch.setattr(users, "IMAGES", 2)
    smaller = lambda path, height, width, count: gpu.photographs(path, 160, 200, count)  # noqa: E731
    monkeypatch.setattr(users, "photographs", smaller)
    monkeypatch.setattr(users, "_seconds", lambda work, *_: float(bool(work() or True)))
    report = users.files(directory, "torch:cpu", lambda message: None)
    assert report["files"] == 2
    assert report["images a second, decoded by the cpu"] > 0
