"""A headless Chromium for tests and benchmarks of pages, driven by Playwright."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from caloric.errors import InputError

_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip


def chromium() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@contextmanager
def started() -> Iterator[Browser]:
    """Yield a browser; close it afterwards."""
    program = chromium()
    if program is None:
        raise InputError("Chromium is not installed (Debian: apt install chromium)")
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=program, args=[*_FLAGS]) as browser,
    ):
        yield browser


@contextmanager
def page(browser: Browser, width: int = 1200, height: int = 900) -> Iterator[Page]:
    """Yield a page that shares no cookies, storage or permissions with others."""
    size: Any = {"width": width, "height": height}
    with browser.new_context(viewport=size, is_mobile=width < 500) as context:
        yield context.new_page()


def wait(page: Page, script: str, seconds: float = 30) -> None:
    """Wait until a JavaScript expression is true.

    ``Page.wait_for_function`` needs ``eval``, which the content security policy forbids.
    """
    deadline = time.monotonic() + seconds
    while not page.evaluate(script):
        if time.monotonic() > deadline:
            raise TimeoutError(f"never true: {script}")
        page.wait_for_timeout(20)


def traced(page: Page, categories: list[str], work: Callable[[], None]) -> list[dict[str, Any]]:
    """Return the events of the browser's trace while ``work`` runs."""
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=categories)
    work()
    events: list[dict[str, Any]] = json.loads(browser.stop_tracing())["traceEvents"]
    return events
