"""What tests of the page ask of a browser."""

import base64
import json

import cv2
import numpy as np

from tools.drills.view import USED_BEFORE

MATCHED = "performance.getEntriesByName('matched').length > 0"


def opened(page, address, used=True):
    """The page with its matches; as one who has used it before, unless told otherwise."""
    if used:
        page.first(USED_BEFORE)
    page.go(address)
    page.wait(MATCHED)
    return page


def text(page, name):
    return page.run(f"document.getElementById('{name}').textContent")


def attribute(page, name, which):
    return page.run(f"document.getElementById('{name}').getAttribute('{which}')")


def hidden(page, name):
    return page.run(f"document.getElementById('{name}').hidden")


def box(page, selector):
    return page.run(
        f"(() => {{ const b = document.querySelector('{selector}').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )


def choose(page, name, value):
    page.run(
        f"(() => {{ const e = document.getElementById('{name}'); e.value = {json.dumps(value)};"
        " performance.clearMarks(); e.dispatchEvent(new Event('change')); })()"
    )


def press(page, *keys):
    for key in keys:
        page.key(key, key if len(key) == 1 else "")


def pixels(page, selector="#own .matches"):
    """The pixels of a canvas (h, w, 4) after its next frame."""
    data = page.run(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() =>"
        f" done(document.querySelector('{selector}').toDataURL()))))"
    )
    buffer = np.frombuffer(base64.b64decode(data.split(",")[1]), np.uint8)
    return cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
