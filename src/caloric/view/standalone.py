"""The page as one self-contained HTML file."""

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


def _modules(name: str, loaded: list[str]) -> list[str]:
    """Return ``loaded``, then the imports of a module that are missing in it, then the module."""
    if name in loaded:
        return loaded
    for imported in _IMPORT.findall((STATIC / name).read_text("utf-8")):
        loaded = _modules(imported, loaded)
    return [*loaded, name]


def _script() -> str:
    """Return all modules as one script; their top-level names must be unique."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in _modules("main.js", []))
    return re.sub(r"^export ", "", _IMPORT.sub("", text), flags=re.MULTILINE)


def page(
    image_pair: tuple[LoadedImage, LoadedImage], pair: ImageMatch, command: str, title: str
) -> str:
    """Return a page that shows a result and the command that computes it."""
    return render(image_pair, {**result.summary(pair), "command": command}, None, title)


def render(
    image_pair: tuple[LoadedImage, LoadedImage],
    shown: Report,
    comparison: Report | None,
    title: str,
) -> str:
    """Return a page with the summary of a result, and optionally one to compare it with."""
    sides = dict(zip("ab", image_pair, strict=True))
    data: Report = {
        "images": {side: describe(image) for side, image in sides.items()},
        "previews": {
            side: images.data_url(images.preview(image), "jpeg") for side, image in sides.items()
        },
        "result": shown,
        "comparison": comparison,
        "alignment": _alignment(image_pair, shown["square"]),
    }
    # A closing tag in a file name would end the script element.
    embedded = json.dumps(data).replace("<", "\\u003c")
    text = (STATIC / "index.html").read_text("utf-8")
    text = text.replace("<title>Caloric: matches</title>", f"<title>{escape(title)}</title>")
    text = text.replace(
        '<link rel="stylesheet" href="static/view.css">',
        f"<style>\n{(STATIC / 'view.css').read_text('utf-8')}</style>",
    )
    text = text.replace('<script type="module" src="static/main.js"></script>\n', "")
    return text.replace(
        "</body>",
        f'<script type="application/json" id="embedded-data">{embedded}</script>\n'
        f'<script type="module">\n{_script()}</script>\n</body>',
    )


def describe(image: LoadedImage) -> Report:
    """Return the name and size of an image, for the page."""
    return {"name": image.name, "width": image.size[0], "height": image.size[1]}


def _alignment(
    image_pair: tuple[LoadedImage, LoadedImage], square: list[float] | None
) -> Report | None:
    """Return the alignment that the page animates; None if there is no reliable one."""
    if square is None:
        return None
    try:
        alignment = details.aligned(image_pair, square[0], square[1], round(square[2]))
    except InputError:  # an image is too small
        return None
    return alignment if alignment["converged"] else None
