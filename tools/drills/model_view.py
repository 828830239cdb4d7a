"""``python -m tools view --points N``: frame rate of ``caloric view`` for a COLMAP model."""

import numpy as np

from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.types import Report
from caloric.view import model_server
from caloric.view.model import ShownImage, ShownModel
from tools.drills import browser, view

_IMAGES = 100
_SIZE = (1280, 800)
# Rotate for some seconds, a step per frame; return the number of frames and the milliseconds.
_ROTATE = """(async () => {
  const canvas = document.getElementById('canvas'), start = performance.now();
  const send = (type, x, y) => canvas.dispatchEvent(new PointerEvent(type, {
    clientX: x, clientY: y, pointerId: 1, button: 0, buttons: 1, bubbles: true,
  }));
  let frames = 0;
  send('pointerdown', 500, 300);
  while (performance.now() - start < 4000) {
    send('pointermove', 500 + 2 * (frames % 100), 300);
    await new Promise(requestAnimationFrame);
    frames += 1;
  }
  send('pointerup', 500, 300);
  return [frames, performance.now() - start];
})()"""


def _model(points: int) -> ShownModel:
    """Return a cloud of random points with cameras in a row."""
    random = np.random.default_rng(0)
    xyz, colors = random.normal(size=(points, 3)), random.integers(0, 255, (points, 3))
    images = tuple(
        ShownImage(
            f"{i}.jpg", (640, 480), 500.0, np.eye(3), np.array([i / 50 - 1, 0, -3]),
            np.zeros((10, 2)), np.arange(10),
        )
        for i in range(_IMAGES)
    )  # fmt: skip
    up = np.array([0.0, -1, 0])
    text = f"{points:,} points"
    return ShownModel(
        "random", text, np.arange(points), xyz, colors.astype(np.uint8), np.ones(points), images, up
    )  # fmt: skip


def run(points: int) -> Report:
    """Return the time until a model is shown, and the frame rate while it is rotated."""
    application = model_server.application(_model(points), ["127.0.0.1"])
    with (
        view.served_application(application) as address,
        browser.started() as chromium,
        browser.page(chromium, *_SIZE) as page,
    ):
        page.goto(address)
        browser.wait(page, "performance.getEntriesByName('loaded').length > 0")
        if not page.evaluate("document.getElementById('message').hidden"):
            raise InputError("this Chromium has no WebGL")
        loaded = page.evaluate("performance.getEntriesByName('loaded')[0].startTime")
        page.wait_for_timeout(1000)
        frames, milliseconds = page.evaluate(_ROTATE)
    return {
        "points": points,
        "model shown, milliseconds": loaded,
        "frames a second": 1000 * frames / milliseconds,
        "versions": versions(),
    }
