"""The command line, and what importing the package costs."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import caloric
from caloric import cli

README = Path(__file__).parents[1] / "README.md"


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


@pytest.mark.parametrize("arguments", [["frobnicate"], ["paper"], ["paper", "--colour", "x"]])
def test_bad_usage_is_exit_code_2(arguments):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


def test_optional_libraries_are_not_imported():
    """Neither the library nor `caloric info` needs matplotlib."""
    code = (
        "import sys, caloric, caloric.cli; "
        "print([m for m in ('matplotlib', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 2
    scope: dict[str, object] = {}
    exec("\n".join(blocks), scope)
    assert scope["descriptors"].shape == (100, 128)
    assert scope["maps"].shape == (8, 32, 32)


def test_docstrings_that_are_examples():
    assert doctest.testmod(caloric).attempted > 0
    assert doctest.testmod(caloric).failed == 0


def test_version_is_said_once():
    text = (README.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {caloric.__version__}" in text
