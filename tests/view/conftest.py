"""A session with two images, its server, and a browser."""

import threading
import time
from contextlib import ExitStack

import pytest

from caloric.options import ExtractOptions
from caloric.runtime import progress
from caloric.view import session
from encoded_images import encoded_pair
from tools.drills import browser
from tools.drills import view as benchmark


@pytest.fixture
def served():
    """Starts a server for a session and returns its URL; it is stopped after the test."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    with ExitStack() as running:
        yield lambda viewer: running.enter_context(benchmark.served(viewer))


@pytest.fixture
def viewer():
    """A session with two images that match."""
    loaded = session.Session(options=ExtractOptions(max_features=400))
    for side, data in zip("ab", encoded_pair(), strict=True):
        loaded.set_image(side, session.LoadedImage.of(f"{side}.png", data))
    return loaded


class Slow:
    """A computation that takes until it is cancelled, or until ``proceed`` is set."""

    def __init__(self, work):
        self.work = work
        self.started, self.proceed, self.cancelled = (threading.Event() for _ in range(3))

    def __call__(self, *arguments):
        progress.report("simulated views, tilt 4")
        self.started.set()
        try:
            while not self.proceed.is_set():
                progress.check()
                time.sleep(0.01)
        except progress.CancellationError:
            self.cancelled.set()
            raise
        return self.work(*arguments)


@pytest.fixture
def slow(monkeypatch):
    """Makes a function slow: see :class:`Slow`."""

    def replace(owner, name):
        replacement = Slow(getattr(owner, name))
        monkeypatch.setattr(owner, name, replacement)
        return replacement

    return replace


@pytest.fixture(scope="package")
def chromium():
    """One browser for all tests of this directory, since Playwright occupies the event loop."""
    if browser.chromium() is None:
        pytest.skip("Chromium is not installed")
    with browser.started() as running:
        yield running


@pytest.fixture
def page_of(chromium):
    """Opens a page of a given width and height, isolated from those of other tests."""
    with ExitStack() as running:
        yield lambda *size: running.enter_context(browser.page(chromium, *size))


@pytest.fixture
def page(page_of):
    return page_of(1000, 700)
