"""Markdown for the generated pages: tables and templates."""

import json
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from caloric.types import Report

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
_TEMPLATES = Path(__file__).parent / "templates"
_HEADER = "<!-- Written by `python -m tools pages`; edit tools/pages/templates/{} instead. -->"


def results(name: str) -> Report:
    """Return the stored results of a benchmark, ``docs/results/<name>.json``."""
    report: Report = json.loads((RESULTS / f"{name}.json").read_text("utf-8"))
    return report


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table; vertical bars in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped)


def render(template: str, **values: object) -> str:
    """Return a page: a Jinja template with its values; a missing value is an error."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    header = _HEADER.format(template)
    return environment.get_template(template).render(header=header, **values).rstrip() + "\n"
