"""Installations with another package of OpenCV, without a compiler, and without PyTorch."""

import os
import subprocess
import sys
import tomllib
import venv

import pytest

import snippets
from caloric.runtime import native
from environments import PIP, PROGRAMS
from paths import DOCS, README, ROOT

MATCH = """
import numpy, caloric
image = numpy.random.default_rng(0).random((100, 100))
assert len(caloric.match_images(image, image).points_a) > 8
"""
LINES = snippets.Page(DOCS / "start.md").lines
NO_DEPENDENCIES = LINES.index("pip install --no-deps .")


def install(directory, *words, **environment):
    """Install with pip in an environment; the build directory is not the one of developers."""
    inherited = {k: v for k, v in os.environ.items() if k != native.SETTING}
    command = [
        *PIP, "--python", directory / PROGRAMS / "python", "install",
        "--config-settings", f"build-dir={directory}/build", "-c", ROOT / "constraints.txt",
    ]  # fmt: skip
    subprocess.run([*command, *words], check=True, cwd=ROOT, env=inherited | environment)


def run(directory, *words):
    """Run Python in an environment, and return what it prints."""
    inherited = {k: v for k, v in os.environ.items() if k not in (native.SETTING, "PYTHONPATH")}
    done = subprocess.run(
        [directory / PROGRAMS / "python", *words],
        capture_output=True, text=True, check=True, cwd=directory, env=inherited,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_pytorch_is_not_imported_unless_used():
    code = f"import sys{MATCH}sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_documents_list_all_dependencies_other_than_opencv():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    names = {line.split(">=")[0] for line in project["dependencies"]}
    listed = LINES[NO_DEPENDENCIES + 1].removeprefix("pip install ").split()
    assert set(listed) == names - {"opencv-python-headless"}


@pytest.mark.slow
@pytest.mark.environments
@pytest.mark.parametrize("package", ["opencv-python", "opencv-contrib-python"])
def test_another_package_of_opencv(package, tmp_path):
    venv.create(tmp_path)
    install(tmp_path, package)
    for line in LINES[NO_DEPENDENCIES : NO_DEPENDENCIES + 2]:
        install(tmp_path, *line.split()[2:], CALORIC_NATIVE="0")
    snippets.write_files(tmp_path)
    for code in snippets.Page(README).python:
        run(tmp_path, "-c", code)
    code = "from importlib import metadata; print(*metadata.packages_distributions()['cv2'])"
    assert run(tmp_path, "-c", code).strip() == package


@pytest.mark.slow
@pytest.mark.environments
def test_without_a_compiler_and_then_with_one(tmp_path):
    venv.create(tmp_path)
    install(tmp_path, ".", CC="false", CXX="false")
    text = run(tmp_path, "-c", MATCH + MATCH)
    assert text.count("two to three times slower: it was not compiled") == 1
    install(tmp_path, *native.INSTALL.split()[2:])
    assert run(tmp_path, "-c", MATCH) == ""
    assert "implementation: compiled core (" in run(tmp_path, "-m", "caloric", "info")
