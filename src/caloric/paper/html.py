"""HTML of the report: style, images, tables and formulas."""

import base64
import io
import re
from collections.abc import Sequence
from html import escape

STYLE = """
body { font: 16px/1.55 Georgia, serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { font-family: system-ui, sans-serif; line-height: 1.2; }
h2 { margin-top: 3rem; border-bottom: 2px solid #c0392b; padding-bottom: .2rem; }
img { max-width: 100%; height: auto; display: block; margin: 1rem auto; }
img.formula { display: inline; margin: 0; }
@media (min-width: 48rem) { .errata td:nth-child(3), .errata td:nth-child(4) { min-width: 15rem; } }
figure { margin: 1.5rem 0; } figcaption { color: #555; font-size: .93rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font: 14px/1.4 system-ui, sans-serif; margin: 1rem 0; }
th, td { border-bottom: 1px solid #ddd; padding: .3rem .6rem; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.better { color: #1b7a3d; font-weight: 600; } .worse { color: #b03020; font-weight: 600; }
td small { color: #555; }
/* On narrow screens each row becomes a list of cells with their headings. */
@media (max-width: 48rem) {
  .wide tr { display: block; border-bottom: 2px solid #bbb; padding: .4rem 0; }
  .wide tr:first-child { display: none; }
  .wide td { display: flex; gap: .8rem; border: 0; padding: .1rem 0; overflow-wrap: anywhere; }
  .wide td, .wide td.n { text-align: left; white-space: normal; }
  .wide td::before { content: attr(data-label); flex: 0 0 7rem; color: #555; }
}
.note { background: #faf6ee; border-left: 4px solid #d9a441; padding: .6rem 1rem; }
code { font-size: .9em; }
"""


def figure(name: str, alt: str, caption: str) -> str:
    """Return a figure with its caption."""
    return (
        f'<figure><img src="{name}" alt="{escape(alt)}"><figcaption>{caption}</figcaption></figure>'
    )


def row(names: Sequence[str], cells: Sequence[str], first_number: int = 99) -> str:
    """Return a table row; cells from index ``first_number`` on are numbers."""
    parts = []
    for i, (name, cell) in enumerate(zip(names, cells, strict=True)):
        kind = ' class="n"' if i >= first_number else ""
        parts.append(f'<td data-label="{escape(name)}"{kind}><span>{cell}</span></td>')
    return f"<tr>{''.join(parts)}</tr>"


def head_row(names: Sequence[str]) -> str:
    """Return the header row of a table."""
    return f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in names)}</tr>"


def math(text: str) -> str:
    """Return text as HTML, with TeX between dollars and plain notation such as k_σd or e^{−P}."""
    parts = text.split("$")
    parts[::2] = [_plain(part) for part in parts[::2]]
    parts[1::2] = [_formula(part) for part in parts[1::2]]
    return "".join(parts)


def _plain(text: str) -> str:
    text = escape(text)
    text = re.sub(r"\^\{([^{}]*)\}|\^(\w)", r"<sup>\1\2</sup>", text)
    text = re.sub(r"_\{([^{}]*)\}|_(σ?\w+)", r"<sub>\1\2</sub>", text)
    return re.sub(r"σ([a-z])(?![a-z])", r"σ<sub>\1</sub>", text)


_POINTS = 11  # font size of formulas


def _formula(tex: str) -> str:
    """Return a formula as an image, aligned with the baseline of the text around it."""
    from matplotlib import mathtext, rc_context
    from matplotlib.font_manager import FontProperties

    file = io.StringIO()
    with rc_context({"mathtext.fontset": "stix"}):
        size = FontProperties(size=_POINTS)
        below = mathtext.math_to_image(f"${tex}$", file, prop=size, format="svg")
    encoded = base64.b64encode(file.getvalue().encode()).decode()
    return (
        f'<img class="formula" alt="{escape(tex)}" src="data:image/svg+xml;base64,{encoded}" '
        f'style="vertical-align:-{below:.1f}pt">'
    )
