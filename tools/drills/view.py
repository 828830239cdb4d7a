"""``python -m tools view``: how soon the page appears, and how smoothly it moves."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.options import ExtractOptions
from caloric.types import Report
from caloric.view import server, session
from caloric.view.pictures import Picture
from tools.drills import browser

_MATCHES = 10_000
_PHOTOGRAPHS = (
    "astronaut", "coffee", "chelsea", "rocket", "camera", "brick",
    "grass", "gravel", "page", "coins", "text", "moon",
)  # fmt: skip
# The alignment plays by itself at first use only; here it would be measured with the page.
USED_BEFORE = "try { localStorage.setItem('caloric-seen', 'yes'); } catch { }"


@contextmanager
def served(shown: session.Session) -> Iterator[str]:
    """Yield the address of a running server, which is stopped afterwards."""
    import uvicorn

    application = server.application(shown, ["127.0.0.1", "localhost"])
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


# A wheel that is sent from outside is answered 30 times a second at most; this one once a frame.
_ZOOM = """(async (x, y) => {
  const canvas = document.getElementById('canvas'), until = performance.now() + 1500;
  for (let step = 0; performance.now() < until; step += 1) {
    const deltaY = step % 40 < 20 ? -40 : 40;
    const at = { clientX: x, clientY: y, deltaY, cancelable: true };
    canvas.dispatchEvent(new WheelEvent('wheel', at));
    await new Promise(requestAnimationFrame);
  }
})"""


def _drag_and_zoom(page: browser.Page) -> None:
    """Drag for a second and a half, then zoom for as long."""
    box = page.run(
        "(() => { const b = document.getElementById('canvas').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    x, y = box[0] + box[2] / 4, box[1] + box[3] / 3
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    deadline, step = time.monotonic() + 1.5, 0
    while time.monotonic() < deadline:
        step += 1
        page.mouse("mouseMoved", x + 3 * (step % 40), y + 2 * (step % 30), button="left")
    page.mouse("mouseReleased", x, y, button="left", clickCount=1)
    page.run(f"{_ZOOM}({x}, {y})")


def mosaic() -> NDArray[np.uint8]:
    """Return twelve photographs of scikit-image in one picture (1500, 2560, 3) of many features."""
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


def run(image: Path | None = None) -> Report:
    """Return the figures for a picture matched with itself: as many matches as features."""
    shown = session.Session(options=ExtractOptions(max_features=_MATCHES + 1000))
    if image is None:
        picture = Picture.of_pixels("twelve photographs", mosaic())
    else:
        picture = Picture.of(image.name, image.read_bytes())
    for side in "ab":
        shown.put(side, picture)
    matches = len(shown.matched(session.Settings()).matches)
    if matches < _MATCHES:
        raise InputError(f"{picture.name}: {matches} features; {_MATCHES} are needed")
    with served(shown) as address, browser.page() as page:
        page.first(USED_BEFORE)
        page.go(address)
        page.wait("performance.getEntriesByName('matched').length > 0")
        times = page.run(
            "({ paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,"
            " shown: performance.getEntriesByName('shown')[0].startTime,"
            " matched: performance.getEntriesByName('matched')[0].startTime })"
        )
        events = page.traced("devtools.timeline,disabled-by-default-devtools.timeline.frame",
                             lambda: _drag_and_zoom(page))  # fmt: skip
    frame_times = sorted(e["ts"] for e in events if e["name"] == "DrawFrame")
    intervals = [(b - a) / 1000 for a, b in pairwise(frame_times)]
    return {
        "matches": matches,
        "first paint, milliseconds": times["paint"],
        "pictures shown, milliseconds": times["shown"],
        "matches shown, milliseconds": times["matched"],
        "frames": len(frame_times),
        "frames a second": 1e6 * (len(frame_times) - 1) / (frame_times[-1] - frame_times[0]),
        "slowest of a hundred frames, milliseconds": sorted(intervals)[int(0.99 * len(intervals))],
        "versions": versions(),
    }
