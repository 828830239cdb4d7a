"""Device names, their errors, and the --device option."""

import subprocess
import sys
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import caloric
from caloric import cli
from caloric.gpu import devices
from tools.gpu.agreement import compared
from torch_device import HERE, photograph


@pytest.mark.parametrize(("gigabytes", "number"), [(6, 1), (24, 3), (141, 16)])
def test_the_number_of_processes_depends_on_the_memory_of_a_gpu(gigabytes, number, monkeypatch):
    properties = SimpleNamespace(total_memory=gigabytes << 30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert devices.processes(torch.device("cuda", 0)) == number


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_suggests_other_devices(monkeypatch):
    image = photograph(size=(40, 40))
    for device in ("cuda", "cuda:1"):
        with pytest.raises(caloric.InputError, match=r"found no GPU.*'auto'"):
            caloric.extract(image, device=device)
    features = caloric.extract(image, device="auto")
    np.testing.assert_array_equal(features.descriptors, caloric.extract(image).descriptors)
    for device in ("gpu", "cuda:x", 3, None):
        with pytest.raises(caloric.InputError, match="unknown device"):
            caloric.extract(image, device=device)
    with pytest.raises(caloric.InputError, match="runs only on the CPU"):
        caloric.extract(image, device=HERE, detector="opencv")


def test_without_pytorch_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(caloric.InputError, match=r"caloric\[gpu\]"):
        devices.resolve("cuda")
    assert devices.resolve("cpu") is None


def test_extraction_on_the_cpu_does_not_import_pytorch():
    code = (
        "import sys, numpy, caloric\n"
        "image = numpy.random.default_rng(0).random((60, 60))\n"
        "features = caloric.extract([image, image])\n"
        "caloric.match(*features)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_driver_auto_does_not_import_pytorch(monkeypatch):
    monkeypatch.setattr(devices, "_DRIVERS", ("no-such-library.so",))
    monkeypatch.setattr(devices, "_AMD", devices.Path("no-such-device"))
    monkeypatch.setitem(sys.modules, "torch", None)
    devices.available.cache_clear()
    try:
        assert devices.resolve("auto") is None
    finally:
        devices.available.cache_clear()


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_extract_and_match_commands_on_a_device(tmp_path):
    for name, size in (("astronaut", (150, 180)), ("coffee", (150, 180)), ("camera", (90, 120))):
        cv2.imwrite(str(tmp_path / f"{name}.png"), photograph(name, size))
    (tmp_path / "bad.jpg").write_bytes(b"not an image")
    files = sorted(tmp_path.glob("*.*"))
    result = run("extract", *files, "-o", tmp_path / "out", "--device", HERE, "--max-features", 50)
    assert result.exit_code == 1
    assert "3 of 4 images" in result.output
    assert "bad.jpg" in result.output
    features = caloric.Features.load(tmp_path / "out" / "camera.png.npz")
    expected = caloric.extract(caloric.read_image(tmp_path / "camera.png"), max_features=50)
    assert compared(expected, features)[0] >= 0.98
    result = run("match", files[0], files[0], "--device", HERE)
    assert result.exit_code == 0
    assert run("match", files[0], files[0], "--device", "gpu").exit_code != 0
