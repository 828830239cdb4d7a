"""A session with two images, its server, and a browser."""

from contextlib import ExitStack

import pytest

from caloric.options import ExtractOptions
from caloric.view import session
from pair_of_pictures import pair
from tools.drills import browser
from tools.drills import view as benchmark


@pytest.fixture
def served():
    """Starts a server and gives its address; stopped after the test."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    with ExitStack() as running:
        yield lambda showing: running.enter_context(benchmark.served(showing))


@pytest.fixture
def showing():
    found = session.Session(options=ExtractOptions(max_features=400))
    for side, data in zip("ab", pair(), strict=True):
        found.put(side, session.LoadedImage.of(f"{side}.png", data))
    return found


@pytest.fixture(scope="package")
def chromium():
    """A browser for all tests of this directory: Playwright occupies the event loop."""
    if browser.chromium() is None:
        pytest.skip("Chromium is not installed")
    with browser.started() as running:
        yield running


@pytest.fixture
def page_of(chromium):
    """Opens a page of a size (width, height), isolated from those of other tests."""
    with ExitStack() as running:
        yield lambda *size: running.enter_context(browser.page(chromium, *size))


@pytest.fixture
def page(page_of):
    return page_of(1000, 700)
