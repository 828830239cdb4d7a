"""``caloric bench view``: how soon the page is there, and how smoothly it moves."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.view import server, session
from tools.drills import browser

Report = dict[str, Any]
_MATCHES = 5000


@contextmanager
def served(showing: session.Session) -> Iterator[str]:
    """A running server's address; it ends with the context."""
    import uvicorn

    application = server.application(showing, ["127.0.0.1", "localhost"])
    config = uvicorn.Config(application, port=0, log_level="error")
    listening = config.bind_socket()
    one = uvicorn.Server(config)
    thread = threading.Thread(target=one.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not one.started:
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        one.should_exit = True
        thread.join(20)
        listening.close()


def _moved(page: browser.Page) -> None:
    """A second and a half of dragging, and as much of zooming."""
    box = page.run(
        "(() => { const b = document.getElementById('canvas').getBoundingClientRect();"
        " return [b.left, b.top, b.width, b.height]; })()"
    )
    x, y = box[0] + box[2] / 4, box[1] + box[3] / 2
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    until, step = time.monotonic() + 1.5, 0
    while time.monotonic() < until:
        step += 1
        page.mouse("mouseMoved", x + 3 * (step % 40), y + 2 * (step % 30), button="left")
    page.mouse("mouseReleased", x, y, button="left", clickCount=1)
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        step += 1
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-40 if step % 40 < 20 else 40)


def run(image: Path) -> Report:
    """A picture beside itself, so that there are as many matches as features."""
    showing = session.Session(most=_MATCHES + 1000)
    data = image.read_bytes()
    for side in "ab":
        showing.put(side, session.Picture.of(image.name, data))
    matches = len(showing.matched("caloric", "homography").indices)
    if matches < _MATCHES:
        raise InputError(f"{image}: {matches} features; a picture with {_MATCHES} is needed")
    with served(showing) as address, browser.page() as page:
        page.go(address)
        page.wait("performance.getEntriesByName('matched').length > 0")
        times = page.run(
            "({ paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,"
            " shown: performance.getEntriesByName('shown')[0].startTime,"
            " matched: performance.getEntriesByName('matched')[0].startTime })"
        )
        events = page.traced("devtools.timeline,disabled-by-default-devtools.timeline.frame",
                             lambda: _moved(page))  # fmt: skip
    drawn = sorted(e["ts"] for e in events if e["name"] == "DrawFrame")
    apart = [(b - a) / 1000 for a, b in pairwise(drawn)]
    return {
        "matches": matches,
        "first paint, milliseconds": times["paint"],
        "pictures shown, milliseconds": times["shown"],
        "matches shown, milliseconds": times["matched"],
        "frames": len(drawn),
        "frames a second": 1e6 * (len(drawn) - 1) / (drawn[-1] - drawn[0]),
        "slowest of a hundred frames, milliseconds": sorted(apart)[int(0.99 * len(apart))],
        "versions": versions(),
    }
