"""Helpers for tests of the page in a browser."""

import base64

import cv2
import numpy as np

from tools.drills.browser import wait

MATCHED = "performance.getEntriesByName('matched').length > 0"


def open_page(page, address):
    """Open the page and wait for its matches."""
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


DROP = """([selector, x, y]) => {
  const input = document.getElementById('dropped-files'), transfer = new DataTransfer();
  for (const file of input.files) transfer.items.add(file);
  input.remove();
  const box = document.querySelector(selector).getBoundingClientRect();
  const at = { clientX: box.left + box.width * x, clientY: box.top + box.height * y };
  for (const name of ['dragover', 'drop']) {
    const event = { dataTransfer: transfer, bubbles: true, cancelable: true, ...at };
    document.dispatchEvent(new DragEvent(name, event));
  }
}"""


def drop(page, *paths, at=(0.5, 0.5), selector="#stages"):
    """Drop files at a position of an element, relative to its size."""
    page.evaluate(
        "() => { const input = document.createElement('input'); input.id = 'dropped-files';"
        " input.type = 'file'; input.multiple = true; document.body.append(input); }"
    )
    page.set_input_files("#dropped-files", list(paths))
    page.evaluate(DROP, [selector, *at])


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
