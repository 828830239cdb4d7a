"""A session with two images, its server, and a browser."""

from contextlib import ExitStack

import pytest

from caloric.options import ExtractOptions
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
