"""Modules, files, extras and commands mentioned in the documentation exist."""

import importlib
import importlib.util
import re
import tomllib
from functools import cache

import pytest
import typer.main

import caloric.cli
import tools.__main__
from paths import DOCS, README, ROOT

DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
PACKAGE = ROOT / "src" / "caloric"
DIRECTORIES = ("src", "tests", "docs", "tools", "native", ".github")
SOURCES = ("py", "md", "cpp", "hpp", "toml", "yml", "js")
# Data files: a name such as features.h5 is not an attribute of a module.
DATA = ("h5", "npz", "csv", "json", "png", "jpg", "txt", "db", "html")
# The worked examples of CONTRIBUTING, and a program of gaussian-splatting.
EXAMPLES = ("student.py", "test_student.py", "csv.py", "test_csv.py", "train.py")


def code(text):
    """Return inline code and the lines of code blocks."""
    inline = re.findall(r"`([^`\n]+)`", text)
    fenced = re.findall(r"^ *```\w*\n(.*?)^ *```", text, re.S | re.M)
    indented = re.findall(r"^ {4,}(\S.*)$", text, re.M)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    return [re.sub(r"\s+#.*", "", line) for line in (*inline, *lines, *indented)]


def resolves(name):
    """Return whether a dotted name is a module or an attribute of a module or class."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            fields = getattr(thing, "__dataclass_fields__", {})
            if not hasattr(thing, part) and part not in fields:
                return False
            thing = getattr(thing, part, None)
        return True
    return False


@cache
def files():
    paths = [path for directory in DIRECTORIES for path in (ROOT / directory).rglob("*")]
    return [f"/{p.relative_to(ROOT).as_posix()}" for p in (*paths, *ROOT.iterdir())]


def dotted(text):
    """Return the dotted names of modules and their attributes, starting with ``caloric``."""
    names = re.findall(r"(?<![\w./\[-])caloric(?:\.\w+)+", text)
    stages = {path.stem for path in PACKAGE.iterdir()} - {"__init__"}
    for span in re.findall(r"`(\w+(?:[./]\w+)+)(?:\(.*?\))?`", text):
        if re.split(r"[./]", span)[0] in stages:
            names.append(f"caloric.{span.replace('/', '.')}")
    return {name for name in names if name.rsplit(".", 1)[1] not in (*SOURCES, *DATA)}


def file_names(text):
    """Return the names of source files, and of files in directories of the repository."""
    words = [word.strip("'\"(),;:") for snippet in code(text) for word in snippet.split()]
    words += [link for link in re.findall(r"\]\(([^)#:]+)", text) if "gallery/" not in link]
    ending = re.compile(rf"[\w./*-]+\.({'|'.join(SOURCES)})")
    top = re.compile(rf"(?:{'|'.join(DIRECTORIES)})/[\w./*-]*|\w+/")
    names = {word for word in words if ending.fullmatch(word) or top.fullmatch(word)}
    return {name for name in names if name.rsplit("/", 1)[-1] not in EXAMPLES}


def is_file(name):
    suffix = re.escape(name.removeprefix("../").rstrip("/")).replace(r"\*", "[^/]*")
    return any(re.search(rf"/{suffix}$", path) for path in files())


def unknown_command(line):
    """Return whether a line calls an unknown command, option, target or tool."""
    words = line.replace(".venv/bin/", "").split()
    if words[0] == "make" and len(words) > 1:
        return not re.search(rf"^{re.escape(words[1])}:", (ROOT / "Makefile").read_text(), re.M)
    if words[:2] == ["python", "-m"] and words[2].startswith("tools."):
        return importlib.util.find_spec(words[2]) is None
    if words[:3] == ["python", "-m", "tools"]:
        command, words = typer.main.get_command(tools.__main__.app), words[3:]
    elif words[0] == "caloric":
        command, words = typer.main.get_command(caloric.cli.app), words[1:]
    else:
        return False
    while hasattr(command, "commands") and words and re.fullmatch(r"[a-z-]*[a-z]", words[0]):
        if words[0].startswith("-"):
            break
        if words[0] not in command.commands:
            return True
        command, words = command.commands[words[0]], words[1:]
    options = {name for p in command.params for name in (*p.opts, *p.secondary_opts)}
    used = {word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return not used <= options | {"--help"}


@pytest.fixture(params=DOCUMENTS, ids=lambda path: path.name)
def text(request):
    return request.param.read_text("utf-8")


def test_modules_exist(text):
    assert [name for name in sorted(dotted(text)) if not resolves(name)] == []


def test_files_exist(text):
    assert [name for name in sorted(file_names(text)) if not is_file(name)] == []


def test_extras_exist(text):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {
        e for names in re.findall(r"(?:caloric|\.)\[([a-z,]+)\]", text) for e in names.split(",")
    }
    assert extras <= set(known["optional-dependencies"])


def test_commands_exist(text):
    lines = [line for line in code(text) if line.strip() and not line.startswith("caloric.")]
    assert [line for line in lines if unknown_command(line)] == []


def test_nonexistent_names_are_detected():
    text = "`caloric.gpu.host.to_host`, `gpu/host.to_host`, `tests/no_such.py`, `interop/none.py`"
    assert not any(resolves(name) for name in dotted(text))
    assert len(dotted(text)) == 1
    assert [name for name in sorted(file_names(text)) if not is_file(name)] == [
        "interop/none.py", "tests/no_such.py"
    ]  # fmt: skip
    for line in (
        "make nothing",
        "caloric mach A B",
        "caloric match A B --viws 2",
        "python -m tools.no",
    ):
        assert unknown_command(line)
    for line in ("make test", "caloric match A B --views 2", "caloric collection run X -o Y"):
        assert not unknown_command(line)
