"""The command line, examples of the documentation, and imports."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import cv2
import pytest
from skimage import data
from typer.testing import CliRunner

import caloric
from caloric import cli, pipeline
from caloric.alignment import align, templates
from caloric.descriptor import engine
from caloric.image import inputs
from paths import README


def test_info():
    result = CliRunner().invoke(cli.app, ["info"])
    assert result.exit_code == 0
    assert f"caloric {caloric.__version__}" in result.stdout
    assert "heat" in result.stdout


def test_help_fits_one_screen():
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    assert "paper" in result.stdout
    assert len(result.stdout.splitlines()) < 40


@pytest.mark.parametrize("arguments", [[], ["match"], ["collection", "run"], ["bench", "pairs"]])
def test_help_shows_no_type_for_flags(arguments):
    assert "bool" not in CliRunner().invoke(cli.app, [*arguments, "--help"]).stdout


@pytest.mark.parametrize("arguments", [["frobnicate"], ["paper"], ["paper", "--color", "x"]])
def test_invalid_usage_exits_with_status_2(arguments):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


def test_optional_libraries_are_not_imported():
    """Importing the library and the command line must be fast."""
    code = (
        "import sys, caloric, caloric.cli; "
        "print([m for m in ('matplotlib', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_code_of_the_readme_and_the_first_steps_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, image in zip("AB", data.stereo_motorcycle()[:2], strict=True):
        cv2.imwrite(f"{name}.jpg", image[..., ::-1])
    scope: dict[str, object] = {}
    for page, count in ((README, 2), (README.parent / "docs" / "start.md", 6)):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        assert len(blocks) == count
        exec("\n".join(blocks), scope)
        assert len(scope["pair"].points_a) > 100
    assert scope["geometry"].inliers.sum() > 300
    assert (tmp_path / "matches.png").stat().st_size > 1000
    assert (tmp_path / "step_by_step.png").stat().st_size > 1000
    assert scope["descriptors"].shape == (100, 128)
    assert scope["maps"].shape == (8, 32, 32)


@pytest.mark.slow
def test_the_code_of_the_recipes_runs_and_finds_more_inliers():
    """Inliers of an OpenCV script with SIFT, and with Caloric instead."""
    pytest.importorskip("kornia")
    text = (README.parent / "docs/recipes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    scope: dict[str, object] = {}
    exec("\n".join(blocks), scope)
    assert scope["after"] > scope["before"] > 100
    assert scope["described"].shape == (1, 100, 128)
    assert len(scope["matches"]) > 200


def test_type_annotations_are_installed():
    """Then mypy uses them; `make lint` checks tests/user_code.py."""
    assert (Path(caloric.__file__).parent / "py.typed").is_file()


def test_citations_name_the_sources_of_a_descriptor():
    assert caloric.cite("heat").count("@") == 1
    for name, who in (("sift", "Lowe"), ("dsp-inner", "Dong"), ("distribution-field", "Sevilla")):
        assert who in caloric.cite(name)
        assert "Mobahi" in caloric.cite(name)
    with pytest.raises(caloric.InputError, match="magic"):
        caloric.cite("magic")


def test_examples_in_docstrings():
    for module in (caloric, pipeline, engine, align, templates, inputs):
        result = doctest.testmod(module)
        assert result.attempted > 0, module
        assert result.failed == 0, module


def test_the_citation_file_has_the_version():
    text = (README.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {caloric.__version__}" in text


def test_the_package_can_be_run_as_a_module():
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "caloric", *words], capture_output=True, text=True, check=False
        )

    assert run("--version").stdout.strip() == f"caloric {caloric.__version__}"
    result = run("match", "missing.png", "missing.png")
    assert result.returncode == 2
    assert result.stderr.startswith("caloric: ")


def test_version_option(command):
    assert command("--version")[1].strip() == f"caloric {caloric.__version__}"


@pytest.mark.parametrize(
    "words",
    [
        "extract bad.png -o new/out",
        "extract bad.png -o new --to text",
        "extract bad.png -o new --to openmvg",
        "extract bad.png -o new --to opensfm",
        "extract missing.png -o new",
        "collection run missing -o new/out",
        "collection extract empty -o new/out",
        "collection export missing --to openmvg",
    ],
)
def test_failed_commands_leave_no_directories(words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.png").write_bytes(b"not an image")
    (tmp_path / "empty").mkdir()
    assert command(*words.split())[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.png", "empty"]
