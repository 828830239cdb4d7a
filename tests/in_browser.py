"""Helpers for tests of the page in a browser."""

import base64

import cv2
import numpy as np

from tools.drills.browser import wait
from tools.drills.view import USED_BEFORE

MATCHED = "performance.getEntriesByName('matched').length > 0"


def open_page(page, address, first_use=False):
    """Open the page and wait for its matches; by default as if it had been used before."""
    if not first_use:
        page.add_init_script(USED_BEFORE)
    page.goto(address)
    wait(page, MATCHED)
    return page


def text(page, name):
    return page.locator(f"#{name}").text_content()


def attribute(page, name, which):
    return page.locator(f"#{name}").get_attribute(which)


def hidden(page, name):
    return page.evaluate(f"document.getElementById('{name}').hidden")


def box(page, selector):
    return [*page.locator(selector).first.bounding_box().values()]


def choose(page, name, value):
    page.evaluate(
        "([name, value]) => { const e = document.getElementById(name); e.value = value;"
        " performance.clearMarks(); e.dispatchEvent(new Event('change')); }",
        [name, value],
    )


def click(page, name):
    """Click an element, visible or not."""
    page.evaluate("(name) => document.getElementById(name).click()", name)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def requested_urls(page):
    return [request.url for request in page.requests()]


def console_errors(page):
    """Exceptions and errors in the console."""
    return page.page_errors() + [m.text for m in page.console_messages() if m.type == "error"]


def pixels(page, selector="#primary .matches"):
    """The pixels of a canvas (h, w, 4) after its next frame."""
    data = page.evaluate(
        "(selector) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame("
        "() => done(document.querySelector(selector).toDataURL()))))",
        selector,
    )
    buffer = np.frombuffer(base64.b64decode(data.split(",")[1]), np.uint8)
    return cv2.imdecode(buffer, cv2.IMREAD_UNCHANGED)
