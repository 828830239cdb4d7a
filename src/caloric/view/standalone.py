"""The page as one self-contained file with its images and results."""

import json
import re
from html import escape
from pathlib import Path

from caloric.errors import InputError
from caloric.image_pair import ImageMatch
from caloric.types import Report
from caloric.view import details, images, result
from caloric.view.images import LoadedImage

STATIC = Path(__file__).parent / "static"
_IMPORT = re.compile(r'^import .* from "\./(.+)";\n', re.MULTILINE)


def _modules(name: str, before: list[str]) -> list[str]:
    """Return the names of a module and of all that it imports, in order of dependency."""
    if name in before:
        return before
    for needed in _IMPORT.findall((STATIC / name).read_text("utf-8")):
        before = _modules(needed, before)
    return [*before, name]


def _script() -> str:
    """Return all modules as one script; no name is defined twice."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in _modules("main.js", []))
    return re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)


def page(both: tuple[LoadedImage, LoadedImage], pair: ImageMatch, command: str, title: str) -> str:
    """Return the HTML of a page that shows a result and the command that computes it."""
    return written(both, {**result.summary(pair), "command": command}, None, title)


def written(
    both: tuple[LoadedImage, LoadedImage], own: Report, other: Report | None, title: str
) -> str:
    """Return the HTML of a page with a summary, and optionally one to compare it with."""
    sides = dict(zip("ab", both, strict=True))
    data: Report = {
        "pictures": {side: described(image) for side, image in sides.items()},
        "previews": {
            side: images.address(images.preview(image), "jpeg") for side, image in sides.items()
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


def described(image: LoadedImage) -> Report:
    """Return the name and size of an image, for the page."""
    return {"name": image.name, "width": image.size[0], "height": image.size[1]}


def _path(both: tuple[LoadedImage, LoadedImage], place: list[float] | None) -> Report | None:
    """Return the alignment that the page animates; None if there is no reliable one."""
    if place is None:
        return None
    try:
        path = details.aligned(both, place[0], place[1], round(place[2]))
    except InputError:  # an image that is too small
        return None
    return path if path["converged"] else None
