"""Every command and every piece of Python in README and docs runs."""

import shlex
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import snippets
from paths import DOCS, README, ROOT
from snippets import PAGES, Page

PROGRAMS = Path(sys.executable).parent
FIRST = [Page(README), Page(DOCS / "start.md")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    snippets.write_files(directory)
    return directory


@pytest.mark.parametrize("command", dict.fromkeys(c for page in FIRST for c in page.commands))
def test_commands_of_the_first_pages(command, files):
    snippets.run(command, files, PROGRAMS)


def test_the_first_pages_show_each_command():
    shown = {command.split()[1] for page in FIRST for command in page.commands}
    assert shown == {"match", "refine", "view", "extract", "align", "find", "collection"}


def test_the_readme_is_one_screen_and_starts_with_the_two_commands():
    text = README.read_text("utf-8").splitlines()
    assert len(text) < 90
    assert [line[:2] for line in map(str.split, Page(README).lines)][:2] == [
        ["make", "demo"], ["make", "test"]
    ]  # fmt: skip


LONG = [c for page in PAGES for c in page.lines if c.startswith(("caloric bench", "caloric paper"))]


@pytest.mark.parametrize("command", dict.fromkeys(LONG))
def test_options_of_long_commands_exist(command, files):
    words = [word for word in command.split() if not word.isupper()]
    process = snippets.start(f"{' '.join(words[:3])} --help", files, PROGRAMS)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert all(word in output for word in words if word.startswith("--"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path.name)
def test_pages_with_code_have_an_install_line(page):
    assert page.install


def needs(command):
    """Return whether a command needs the extras of the README's second install line."""
    return command.split()[1] in ("view", "collection")


@pytest.mark.slow
def test_code_runs_in_the_environment_of_its_install_line(files, tmp_path):
    """One environment grows from the smallest install line to the largest.

    Each line contains the packages of those before it, so that the environment holds at each point
    what the line alone would install. The compiled core is built once.
    """
    programs = tmp_path / "environment" / PROGRAMS.name
    venv.create(programs.parent, with_pip=True)
    pip = [programs / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    constraints = ["-c", ROOT / "constraints.txt"]
    wheels = tmp_path / "wheels"
    subprocess.run([*pip, "wheel", "--no-deps", "-w", wheels, ROOT / "native"], check=True)
    (core,) = map(str, wheels.glob("*.whl"))

    pages = {}
    for page in PAGES:
        pages.setdefault(page.install[-1], []).append(page)
    first, second = Page(README).install[:2]
    work = [(first, FIRST[0].python, [c for c in FIRST[0].commands if not needs(c)])]
    work.append((second, [], [c for c in FIRST[0].commands if needs(c)]))
    for line in sorted(set(pages) - {Page(README).install[-1]}, key=len):
        for page in pages[line]:
            work.append((line, page.python, page.commands))

    installed = ""
    for number, (line, python, commands) in enumerate(work):
        directory = shutil.copytree(files, tmp_path / f"page{number}")
        if line != installed:
            packages = [core if word == "./native" else word for word in shlex.split(line)[2:]]
            subprocess.run([*pip, "install", *constraints, *packages], cwd=ROOT, check=True)
            installed = line
        if python:
            script = directory / "snippet.py"
            script.write_text("\n".join(python), "utf-8")
            done = subprocess.run(
                [programs / "python", script.name], cwd=directory, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{python}\n{done.stderr}"
        for command in commands:
            snippets.run(command, directory, programs)
