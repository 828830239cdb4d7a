"""The page as one file that contains its pictures and numbers, to mail or attach."""

import base64
import json
import re
from html import escape
from typing import Any

from caloric.features import Features
from caloric.matching.fitting import Model
from caloric.view import session
from caloric.view.server import STATIC
from caloric.view.session import Picture

_MODULES = ("source.js", "linking.js", "stage.js", "detail.js", "main.js")


def _script() -> str:
    """Return all modules as one script; no name is defined twice."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in _MODULES)
    text = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE)


def page(
    pictures: tuple[Picture, Picture], features: tuple[Features, Features], model: Model,
    ratio: float, threshold: float, title: str,
) -> str:  # fmt: skip
    """Return the text of the HTML file."""
    matched = session.matched(features, model, ratio, threshold)
    sides = dict(zip("ab", pictures, strict=True))
    data: dict[str, Any] = {
        "state": {
            "pictures": {
                side: {"name": picture.name, "width": picture.size[0], "height": picture.size[1]}
                for side, picture in sides.items()
            },
            "descriptors": [features[0].descriptor],
            "models": [model],
            "defaults": {"ratio": ratio, "threshold": threshold},
        },
        "previews": {
            side: "data:image/jpeg;base64," + base64.b64encode(session.preview(picture)).decode()
            for side, picture in sides.items()
        },
        "matches": session.summary(matched),
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
