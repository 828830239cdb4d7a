"""docs/errata.md, from the errata and their computed numbers."""

import re

from caloric.paper import errata
from tools.pages.markdown import render


def _escaped(text: str) -> str:
    """Return text escaped for Markdown, except for formulas between dollar signs."""
    parts = text.split("$")
    parts[::2] = [re.sub(r"([\[\]*_<|])", r"\\\1", part) for part in parts[::2]]
    return "$".join(parts)


def page() -> str:
    """Return the text of the page."""
    return render(
        "errata.md", errata=errata.all_errata(), escaped=_escaped, format_value=errata.format_value
    )
