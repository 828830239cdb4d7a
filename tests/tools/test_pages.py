"""Generated pages: tables, templates, and the command that writes all of them."""

import jinja2
import pytest
from typer.testing import CliRunner

from tools.__main__ import app
from tools.pages import markdown, registry


def test_vertical_bars_in_tables_are_escaped():
    assert markdown.table(["a", "b"], [["1", "|x|"]]) == "| a | b |\n| --- | --- |\n| 1 | \\|x\\| |"


def test_a_page_names_its_template_and_a_missing_value_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown, "_TEMPLATES", tmp_path)
    (tmp_path / "page.md").write_text("{{ header }}\n\n{{ text }}\n\n\n")
    page = markdown.render("page.md", text="*words* & {mod}`x`")
    assert page.endswith("\n\n*words* & {mod}`x`\n")
    assert "tools/pages/templates/page.md" in page
    with pytest.raises(jinja2.UndefinedError, match="text"):
        markdown.render("page.md")


def test_one_command_writes_all_pages(tmp_path, monkeypatch):
    monkeypatch.setattr(markdown, "DOCS", tmp_path)
    monkeypatch.setattr(registry, "PAGES", {"a.md": lambda: "first\n", "b.md": lambda: "second\n"})
    result = CliRunner().invoke(app, ["pages"], catch_exceptions=False)
    assert result.exit_code == 0
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.md": "first\n", "b.md": "second\n"
    }  # fmt: skip


def test_every_template_belongs_to_a_page():
    templates = {path.name for path in markdown._TEMPLATES.iterdir()}
    assert templates == set(registry.PAGES)
