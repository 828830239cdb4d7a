"""The page in one file, with its pictures and numbers in it: for mail, for a bug report."""

import base64
import json
import re
from html import escape
from typing import Any

from caloric.features import Features
from caloric.matching.geometry import Model
from caloric.view import session
from caloric.view.server import STATIC
from caloric.view.session import Picture

_MODULES = ("source.js", "linking.js", "stage.js", "detail.js", "main.js")


def _script() -> str:
    """All modules as one: names are not used twice."""
    text = "\n".join((STATIC / name).read_text("utf-8") for name in _MODULES)
    text = re.sub(r"^import .*$", "", text, flags=re.MULTILINE)
    return re.sub(r"^export ", "", text, flags=re.MULTILINE)


def page(
    pictures: tuple[Picture, Picture], features: tuple[Features, Features], model: Model,
    ratio: float, threshold: float, title: str,
) -> str:  # fmt: skip
    """The text of the file."""
    found = session.matched(features, model, ratio, threshold)
    sides = dict(zip("ab", pictures, strict=True))
    data: dict[str, Any] = {
        "state": {
            "pictures": {
                side: {"name": one.name, "width": one.size[0], "height": one.size[1]}
                for side, one in sides.items()
            },
            "descriptors": [features[0].descriptor],
            "models": [model],
            "defaults": {"ratio": ratio, "threshold": threshold},
        },
        "previews": {
            side: "data:image/jpeg;base64," + base64.b64encode(session.preview(one)).decode()
            for side, one in sides.items()
        },
        "matches": session.summary(found),
    }
    # Within a script an end tag would end it, whatever a name is.
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
