"""Every command and every piece of Python in README and docs runs."""

import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import environments
import snippets
from caloric.collection import store
from paths import DOCS, README
from snippets import PAGES, Page

PROGRAMS = Path(sys.executable).parent
FIRST = [Page(README), Page(DOCS / "start.md")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("files")
    snippets.write_files(directory)
    return directory


@pytest.fixture(scope="module")
def used(files, tmp_path_factory):
    """Return a copy for commands that run in this environment; other tests copy ``files``."""
    return shutil.copytree(files, tmp_path_factory.mktemp("used") / "files")


def run_python(blocks, directory, programs):
    (directory / "snippet.py").write_text("\n".join(blocks), "utf-8")
    snippets.run("python snippet.py", directory, programs)


def test_python_of_the_readme(used):
    run_python(Page(README).python, used, PROGRAMS)


@pytest.mark.parametrize("command", Page(README).commands)
def test_commands_of_the_readme(command, used):
    snippets.run(command, used, PROGRAMS)


# Without those that need the model of another command, which runs in the test of environments.
STEPS = [c for c in Page(DOCS / "start.md").commands if not c.startswith("caloric refine MODEL")]


@pytest.mark.parametrize("command", [c for c in STEPS if c not in Page(README).commands])
def test_commands_of_the_first_steps(command, used):
    snippets.run(command, used, PROGRAMS)


def test_the_first_pages_show_each_command():
    shown = {command.split()[1] for page in FIRST for command in page.commands}
    assert shown == {
        "match", "verify", "refine", "merge", "view", "extract", "align", "find", "collection"
    }  # fmt: skip


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
    expected = {"view": "view", "collection": "collection", "extract": "collection"}
    assert named == dict.fromkeys(named) | {k: v for k, v in expected.items() if k in named}


def work():
    """Yield a page, an install line, the Python code and the commands for each environment."""
    readme = Page(README)
    plain = [c for c in readme.commands if readme.extra(c) is None]
    yield pytest.param(README, readme.install[0], readme.python, plain, id="README")
    for command in filter(readme.extra, readme.commands):
        line = f"pip install '.[{readme.extra(command)}]'"
        yield pytest.param(README, line, [], [command], id=f"README: {command}")
    for page in PAGES:
        if page != readme:
            content = page.install[0], page.python, page.commands
            yield pytest.param(page.path, *content, id=page.path.stem)


def words(line):
    """Return the extras and packages of an install line."""
    return set(re.findall(r"\w+", line))


@dataclass
class Environments:
    """Environments by their install line, and the commands that have run in each."""

    directory: Path
    wheel: Path
    programs: dict[str, Path] = field(default_factory=dict)
    done: set[tuple[str, str]] = field(default_factory=set)

    def make(self, line):
        """Return the programs of an environment, which is made if it does not exist."""
        if line not in self.programs:
            make = environments.empty if line == "pip install ." else environments.subset
            target = self.directory / f"env{len(self.programs)}"
            self.programs[line] = make(target, line, self.wheel)
        return self.programs[line]

    def ran(self, command, line):
        """Return whether a command has run in an environment with the same or fewer packages."""
        return any(c == command and words(old) <= words(line) for c, old in self.done)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    wheel = environments.wheel(tmp_path_factory.mktemp("wheels"))
    return Environments(tmp_path_factory.mktemp("pages"), wheel)


@pytest.mark.slow
@pytest.mark.environments
@pytest.mark.parametrize(("page", "line", "python", "commands"), list(work()))
def test_code_runs_in_the_environment_of_its_install_line(
    page, line, python, commands, files, made
):
    """A command that has run is not repeated, unless later commands of the page need its output."""
    programs = made.make(line)
    directory = made.directory / page.stem
    if not directory.exists():
        shutil.copytree(files, directory)
    if python:
        run_python(python, directory, programs)
    if store.fcntl is None:  # collections need the file locks of Linux or macOS
        made_by_collections = ("collection", "OUT", "MODEL")
        commands = [c for c in commands if not any(word in c for word in made_by_collections)]
    if any(
        command.startswith(("caloric merge OUT", "caloric refine MODEL")) for command in commands
    ):
        snippets.run("caloric collection run IMAGES -o OUT", directory, programs)
        shutil.copytree(directory / "OUT" / "colmap" / "sparse" / "0", directory / "MODEL")
    for command in commands:
        if not made.ran(command, line) or "OUT" in command:
            snippets.run(command, directory, programs)
            made.done.add((command, line))
