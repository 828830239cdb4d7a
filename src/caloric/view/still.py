"""The page as one file that contains its pictures and numbers, to mail or attach."""

import json
import re
from html import escape
from pathlib import Path

from caloric.errors import InputError
from caloric.image_pair import ImageMatch
from caloric.types import Report
from caloric.view import closeup, pictures, result
from caloric.view.pictures import Picture

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import .* from "\./(.+)";\n', re.MULTILINE)


def _modules(name: str, before: list[str]) -> list[str]:
    """Return the names of a module and of all that it imports, each after those it needs."""
    if name in before:
        return before
    for needed in _IMPORT.findall((STATIC / name).read_text("utf-8")):
        before = _modules(needed, before)
    return [*before, name]


def _script() -> str:
    """Return all modules as one script; no name is defined twice."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in _modules("main.js", []))
    return re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)


def page(both: tuple[Picture, Picture], pair: ImageMatch, command: str, title: str) -> str:
    """Return the text of the HTML file that shows a result, and how it came about."""
    return written(both, {**result.summary(pair), "command": command}, None, title)


def written(both: tuple[Picture, Picture], own: Report, other: Report | None, title: str) -> str:
    """Return the text of the HTML file of a summary, and of another one beside it if there is."""
    sides = dict(zip("ab", both, strict=True))
    data: Report = {
        "pictures": {side: described(picture) for side, picture in sides.items()},
        "previews": {
            side: pictures.address(pictures.preview(picture), "jpeg")
            for side, picture in sides.items()
        },
        "own": own,
        "other": other,
        "path": _path(both, own["place"]),
    }
    # An end tag in a file name would close the script element.
    numbers = json.dumps(data).replace("<", "\\u003c")
    text = (STATIC / "index.html").read_text("utf-8")
    text = text.replace("<title>Caloric: matches</title>", f"<title>{escape(title)}</title>")
    text = text.replace(
        '<link rel="stylesheet" href="static/view.css">',
        f"<style>\n{(STATIC / 'view.css').read_text('utf-8')}</style>",
    )
    text = text.replace('<script type="module" src="static/main.js"></script>\n', "")
    return text.replace(
        "</body>",
        f'<script type="application/json" id="still">{numbers}</script>\n'
        f'<script type="module">\n{_script()}</script>\n</body>',
    )


def described(picture: Picture) -> Report:
    """Return what the page is told of a picture."""
    return {"name": picture.name, "width": picture.size[0], "height": picture.size[1]}


def _path(both: tuple[Picture, Picture], place: list[float] | None) -> Report | None:
    """Return the alignment that the page can play; None if there is none that is believed."""
    if place is None:
        return None
    try:
        found = closeup.aligned(both, place[0], place[1], round(place[2]))
    except InputError:  # a picture too small for it
        return None
    return found if found["converged"] else None
