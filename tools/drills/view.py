"""``python -m tools view``: first paint and frame rate of ``caloric view``, and its screenshot."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Page

from caloric import demo
from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.options import ExtractOptions
from caloric.types import Report
from caloric.view import server, session
from caloric.view.images import LoadedImage
from tools.drills import browser

_MATCHES = 10_000
_PHOTOGRAPHS = (
    "astronaut", "coffee", "chelsea", "rocket", "camera", "brick",
    "grass", "gravel", "page", "coins", "text", "moon",
)  # fmt: skip


@contextmanager
def served(shown: session.Session) -> Iterator[str]:
    """Yield the address of a running server of a session; stop it afterwards."""
    with served_application(server.application(shown, ["127.0.0.1", "localhost"])) as address:
        yield address


@contextmanager
def served_application(application: Any) -> Iterator[str]:
    """Yield the address of a running server of an application; stop it afterwards."""
    import uvicorn

    config = uvicorn.Config(application, port=0, log_level="error")
    listening = config.bind_socket()
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(20)
        listening.close()


# Wheel events of Playwright are handled at most 30 times per second, these once per frame.
_ZOOM = """(async (x, y) => {
  const canvas = document.getElementById('canvas'), until = performance.now() + 1500;
  for (let step = 0; performance.now() < until; step += 1) {
    const deltaY = step % 40 < 20 ? -40 : 40;
    const at = { clientX: x, clientY: y, deltaY, cancelable: true };
    canvas.dispatchEvent(new WheelEvent('wheel', at));
    await new Promise(requestAnimationFrame);
  }
})"""


def _drag_and_zoom(page: Page) -> None:
    """Drag for 1.5 seconds, then zoom for 1.5 seconds."""
    box = page.locator("#canvas").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 4, box["y"] + box["height"] / 3
    page.mouse.move(x, y)
    page.mouse.down()
    deadline, step = time.monotonic() + 1.5, 0
    while time.monotonic() < deadline:
        step += 1
        page.mouse.move(x + 3 * (step % 40), y + 2 * (step % 30))
    page.mouse.up()
    page.evaluate(f"{_ZOOM}({x}, {y})")


def mosaic() -> NDArray[np.uint8]:
    """Return a mosaic (1500, 2560, 3) of twelve scikit-image images, with many features."""
    from skimage import data

    tiles = []
    for name in _PHOTOGRAPHS:
        image = getattr(data, name)()
        image = image if image.ndim == 3 else np.repeat(image[..., None], 3, 2)
        h, w = image.shape[:2]
        scale = max(500 / h, 640 / w)
        size = (round(w * scale), round(h * scale))
        tiles.append(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC)[:500, :640])
    return np.concatenate([np.concatenate(tiles[i : i + 4], 1) for i in (0, 4, 8)])


def screenshot(path: Path) -> None:
    """Save the image of the documentation: the viewer with a selected match, in the dark theme."""
    shown = session.Session(options=ExtractOptions())
    pair = demo.changed_view()
    for side, pixels in zip("ab", (pair.original, pair.changed), strict=True):
        shown.set_image(side, LoadedImage.of_pixels(f"{side.upper()}.jpg", pixels))
    with (
        served(shown) as address,
        browser.started() as chromium,
        browser.page(chromium, 1280, 760) as page,
    ):
        page.emulate_media(color_scheme="dark")
        page.goto(address)
        browser.wait(page, "performance.getEntriesByName('matched').length > 0")
        page.keyboard.press("d")
        page.keyboard.press("n")
        browser.wait(page, "document.querySelectorAll('#detail figure').length > 0")
        page.wait_for_timeout(500)  # the drawer scrolls to the match
        page.evaluate("document.getElementById('settings').nextElementSibling.scrollIntoView()")
        page.evaluate("document.getElementById('drawer').scrollBy(0, -12)")
        page.wait_for_timeout(500)
        page.screenshot(path=path, type="jpeg", quality=85)


def run(image: Path | None = None) -> Report:
    """Return the results for an image matched with itself: as many matches as features."""
    shown = session.Session(options=ExtractOptions(max_features=_MATCHES + 1000))
    if image is None:
        loaded = LoadedImage.of_pixels("twelve photographs", mosaic())
    else:
        loaded = LoadedImage.of(image.name, image.read_bytes())
    for side in "ab":
        shown.set_image(side, loaded)
    matches = len(shown.matched(session.Settings()).matches)
    if matches < _MATCHES:
        raise InputError(f"{loaded.name}: {matches} matches; {_MATCHES} are needed")
    with served(shown) as address, browser.started() as chromium, browser.page(chromium) as page:
        page.goto(address)
        browser.wait(page, "performance.getEntriesByName('matched').length > 0")
        times = page.evaluate(
            "({ paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,"
            " shown: performance.getEntriesByName('shown')[0].startTime,"
            " matched: performance.getEntriesByName('matched')[0].startTime })"
        )
        categories = ["devtools.timeline", "disabled-by-default-devtools.timeline.frame"]
        events = browser.traced(page, categories, lambda: _drag_and_zoom(page))
    frame_times = sorted(e["ts"] for e in events if e["name"] == "DrawFrame")
    intervals = [(b - a) / 1000 for a, b in pairwise(frame_times)]
    return {
        "matches": matches,
        "first paint, milliseconds": times["paint"],
        "images shown, milliseconds": times["shown"],
        "matches shown, milliseconds": times["matched"],
        "frames": len(frame_times),
        "frames a second": 1e6 * (len(frame_times) - 1) / (frame_times[-1] - frame_times[0]),
        "slowest of a hundred frames, milliseconds": sorted(intervals)[int(0.99 * len(intervals))],
        "versions": versions(),
    }
