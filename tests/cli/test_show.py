"""caloric info."""

import re
import tomllib

import pytest

import caloric
from caloric.cli.show import EXTRAS
from caloric.runtime import native
from paths import DOCS, ROOT


def test_info_lists_versions_devices_and_descriptors(command):
    code, out, _ = command("info")
    assert code == 0
    assert f"caloric {caloric.__version__}" in out
    assert all(name in out for name in caloric.descriptors())


def test_info_shows_the_core_and_the_extras(command, monkeypatch):
    monkeypatch.setattr("caloric.cli.show.find_spec", lambda name: None if name == "faiss" else 1)
    _, out, _ = command("info")
    assert f"implementation: {native.about()}" in out
    assert "extra view: installed" in out
    assert "extra collection: missing faiss: pip install 'caloric[collection]'" in out


@pytest.mark.parametrize(
    ("version", "shown"), [("COLMAP 3.8", "3.8"), ("4.2.1", "4.2.1"), ("", "missing; models need")]
)
def test_info_shows_colmap(command, monkeypatch, version, shown):
    monkeypatch.setattr("caloric.interop.colmap.version", lambda: version)
    _, out, _ = command("info")
    assert f"\nCOLMAP: {shown}" in out


def test_the_extras_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    assert everything == f"caloric[{','.join(EXTRAS)}]"
    for name in EXTRAS:
        assert f"`{name}`" in (DOCS / "start.md").read_text("utf-8")
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src").rglob("*.py"))
    named = set(re.findall(r"caloric\[(\w+)\]", source))
    assert {"view", "collection", "gpu", "viz", "demo"} <= named <= set(EXTRAS)
