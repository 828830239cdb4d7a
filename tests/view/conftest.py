"""A session with two pictures, and a server of it."""

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
        found.put(side, session.Picture.of(f"{side}.png", data))
    return found


@pytest.fixture(scope="session")
def chromium():
    """The address of a browser, for all tests."""
    pytest.importorskip("websocket")
    with browser.started() as address:
        yield address


@pytest.fixture
def page(chromium):
    """A page that remembers nothing of those of other tests."""
    with browser.fresh(chromium, 1000, 700) as opened:
        yield opened
