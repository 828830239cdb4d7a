"""Every command and every piece of Python in README and docs runs."""

import re
import shutil
import sys
from pathlib import Path

import pytest

import environments
import snippets
from paths import DOCS, README
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
    assert shown == {"match", "verify", "refine", "view", "extract", "align", "find", "collection"}


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


@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.path.name)
def test_the_first_pages_name_the_extra_of_a_command(page):
    named = {command.split()[1]: page.extra(command) for command in page.commands}
    expected = {"view": "view", "collection": "collection"}
    assert named == dict.fromkeys(named) | {k: v for k, v in expected.items() if k in named}


def work():
    """Yield a page, an install line, the Python code and the commands for each environment."""
    readme = Page(README)
    plain = [c for c in readme.commands if readme.extra(c) is None]
    yield README, readme.install[0], readme.python, plain
    for command in filter(readme.extra, readme.commands):
        yield README, f"pip install '.[{readme.extra(command)}]'", [], [command]
    for page in PAGES:
        if page != readme:
            yield page.path, page.install[0], page.python, page.commands


def words(line):
    """Return the extras and packages of an install line."""
    return set(re.findall(r"\w+", line))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the source tree."""
    directory = tmp_path_factory.mktemp("wheels")
    return environments.wheel(directory)


@pytest.mark.slow
@pytest.mark.environments
def test_code_runs_in_the_environment_of_its_install_line(files, wheel, tmp_path):
    """A command that has run in an environment with fewer packages is not repeated, unless later
    commands of the page need its output.
    """
    made, done = {}, set()
    for number, (page, line, python, commands) in enumerate(work()):
        if line not in made:
            make = environments.empty if line == "pip install ." else environments.subset
            made[line] = make(tmp_path / f"env{number}", line, wheel)
        directory = tmp_path / page.stem
        if not directory.exists():
            shutil.copytree(files, directory)
        if python:
            (directory / "snippet.py").write_text("\n".join(python), "utf-8")
            snippets.run("python snippet.py", directory, made[line])
        for command in commands:
            repeated = any(c == command and words(old) <= words(line) for c, old in done)
            if not repeated or "OUT" in command:
                snippets.run(command, directory, made[line])
                done.add((command, line))
