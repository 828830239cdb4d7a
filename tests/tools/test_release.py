"""The checks of a release find what is wrong."""

import pytest

import caloric
from paths import ROOT
from tools import floors, release


def test_versions_and_links_of_the_repository():
    assert list(release.versions()) == []
    assert list(release.links()) == []


def test_another_version_is_found(monkeypatch):
    monkeypatch.setattr(caloric, "__version__", "9.9")
    assert [line.split(":")[0] for line in release.versions()] == [
        "CITATION.cff", "recipe/recipe.yaml", "CHANGELOG.md"
    ]  # fmt: skip


def test_a_broken_link_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(
        "[a](docs/a.md#a-part-caloric-match), [b](docs/b.md), [c](https://c.d), [d](docs/a.md#code)"
    )
    (tmp_path / "docs" / "a.md").write_text(
        "[gallery](gallery/x.html) [x](../README.md) [y](#none)\n\n"
        "## A part: `caloric match`\n\n```sh\n# Code\n```\n"
    )
    assert list(release.links(tmp_path)) == [
        "README.md: docs/b.md does not exist",
        "README.md: docs/a.md has no heading #code",
        "docs/a.md:  has no heading #none",
    ]


def test_a_tag_needs_the_version_and_addresses(monkeypatch):
    monkeypatch.setenv("GITHUB_REF_TYPE", "branch")
    assert list(release.tag()) == []
    monkeypatch.setenv("GITHUB_REF_TYPE", "tag")
    monkeypatch.setenv("GITHUB_REF_NAME", "v9.9")
    assert f"the tag v9.9 is not v{caloric.__version__}" in list(release.tag())
    monkeypatch.setenv("GITHUB_REF_NAME", f"v{caloric.__version__}")
    assert not any("the tag" in line for line in release.tag())


def test_the_conda_recipe():
    pytest.importorskip("rattler_build")
    assert list(release.recipe()) == []


def test_errors_of_the_recipe_are_found(monkeypatch, tmp_path):
    pytest.importorskip("rattler_build")
    changed = tmp_path / "recipe.yaml"
    original = release.RECIPE.read_text("utf-8")
    changed.write_text(original.replace("scipy >=1.11", "scipy").replace('"<3.11"', '"<3.10"'))
    monkeypatch.setattr(release, "RECIPE", changed)
    assert list(release.recipe()) == [
        "recipe.yaml: versions of Python before 3.11 are not skipped",
        "recipe.yaml: scipy>=1.11 is missing in the section run",
    ]


def test_the_oldest_versions_are_the_lower_bounds():
    lines = set(floors.floors())
    assert {"numpy==1.26.*", "typer==0.19.*", "matplotlib==3.8.*"} <= lines
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for line in lines:
        name, version = line.removesuffix(".*").split("==")
        assert f"{name}>={version}" in text or f"{name}[distributed]>={version}" in text
