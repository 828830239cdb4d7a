"""Every command and every piece of Python in README and docs runs."""

import re
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


def extras(line):
    """Return the extras and packages of an install line."""
    return frozenset(re.findall(r"[a-z]+", line.removeprefix("pip install ./native")))


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A wheel of the compiled core, built once."""
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", wheels]
    subprocess.run([*command, ROOT / "native"], check=True)
    (wheel,) = map(str, wheels.glob("*.whl"))
    return wheel


def install(line, directory, core):
    """Run an install line in an environment, and return its programs."""
    programs = directory / PROGRAMS.name
    if not programs.exists():
        venv.create(directory, with_pip=True)
    packages = [core if word == "./native" else word for word in shlex.split(line)[2:]]
    command = [programs / "python", "-m", "pip", "install", "--quiet", "-c", "constraints.txt"]
    subprocess.run([*command, *packages], cwd=ROOT, check=True)
    return programs


@pytest.mark.slow
def test_code_runs_in_the_environment_of_its_install_line(files, core, tmp_path):
    """An environment is extended for a line that includes its packages, and otherwise a new one."""
    minimum, more = Page(README).install[:2]
    readme = Page(README)
    work = [(minimum, readme.python, [c for c in readme.commands if not needs(c)])]
    work.append((more, [], [c for c in readme.commands if needs(c)]))
    work += [(p.install[0], p.python, p.commands) for p in PAGES if p.path != README]
    environments = {}
    lines = sorted({line for line, _, _ in work}, key=lambda line: (len(extras(line)), line))
    for number, line in enumerate(lines):
        base = max((e for e in environments if e <= extras(line)), key=len, default=None)
        environment = environments.pop(base) if base is not None else tmp_path / f"env{number}"
        programs = install(line, environment, core)
        environments[extras(line)] = environment
        for page, (needed, python, commands) in enumerate(work):
            if needed != line:
                continue
            directory = shutil.copytree(files, tmp_path / f"page{page}")
            if python:
                (directory / "snippet.py").write_text("\n".join(python), "utf-8")
                snippets.run("python snippet.py", directory, programs)
            for command in commands:
                snippets.run(command, directory, programs)
