"""A headless Chromium, driven by the DevTools protocol, for tests and benchmarks of pages."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from caloric.errors import InputError

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0", "--remote-allow-origins=*", "--hide-scrollbars",
)  # fmt: skip
Event = dict[str, Any]


def chromium() -> str | None:
    """Return the path of Chromium, or None if it is not installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Connection:
    """What is said to a debugger, and what it answers."""

    def __init__(self, address: str) -> None:
        """Connect to the address of a debugger."""
        import websocket

        self.socket: Any = websocket.create_connection(address, timeout=60, suppress_origin=True)
        self.number = 0
        self.events: list[Event] = []

    def call(self, method: str, **parameters: Any) -> Event:
        """Return the browser's answer to a method; events that arrive meanwhile are stored."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        self.socket.send(json.dumps(message))
        while True:
            answer: Event = json.loads(self.socket.recv())
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self.events.append(answer)


class Page(Connection):
    """One page of the browser."""

    def __init__(self, address: str) -> None:
        """Connect to the address of the page's debugger."""
        super().__init__(address)
        self.context = ""  # what it shares cookies, downloads and permissions with
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def run(self, script: str) -> Any:
        """Return the awaited value of a JavaScript expression."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 30) -> None:
        """Wait until a JavaScript expression is true."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > deadline:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.02)

    def size(self, width: int, height: int) -> None:
        """Set the size of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip

    def first(self, script: str) -> None:
        """Run a script at the start of every page from now on, before its own."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def prefers(self, **features: str) -> None:
        """Set what the user prefers, such as ``color_scheme="dark"``."""
        named = [
            {"name": "prefers-" + name.replace("_", "-"), "value": value}
            for name, value in features.items()
        ]
        self.call("Emulation.setEmulatedMedia", features=named)

    def go(self, address: str) -> None:
        """Navigate to an address."""
        self.call("Page.navigate", url=address)

    def mouse(self, kind: str, x: float, y: float, **parameters: Any) -> None:
        """Send a mouse event."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **parameters)

    def click(self, x: float, y: float) -> None:
        """Click the left button at a position."""
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key: str, text: str = "") -> None:
        """Press and release a key."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def shot(self, path: Path) -> None:
        """Write a screenshot to a file."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def requested(self) -> list[str]:
        """Return the addresses of all requests so far."""
        return [
            e["params"]["request"]["url"] for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]  # fmt: skip

    def complaints(self) -> list[Event]:
        """Return the exceptions and the errors in the console so far."""
        return [
            e for e in self.events
            if e.get("method") == "Runtime.exceptionThrown"
            or (e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")
        ]  # fmt: skip

    def traced(self, categories: str, work: Any) -> list[Event]:
        """Return the events of the browser's trace while ``work`` runs."""
        self.call("Tracing.start", categories=categories, transferMode="ReportEvents")
        work()
        self.call("Tracing.end")
        while not any(e.get("method") == "Tracing.tracingComplete" for e in self.events):
            self.events.append(json.loads(self.socket.recv()))
        parts = [e for e in self.events if e.get("method") == "Tracing.dataCollected"]
        return [event for part in parts for event in part["params"]["value"]]


@contextmanager
def started() -> Iterator[str]:
    """Yield the address of the debugger of a new browser, which is closed afterwards."""
    program = chromium()
    if program is None:
        raise InputError("no Chromium found; install it (Debian: apt install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield _address(Path(folder))
        finally:
            process.terminate()
            process.wait(20)


@contextmanager
def fresh(browser: str, width: int = 1200, height: int = 900) -> Iterator[Page]:
    """Yield a page of a running browser that remembers nothing of other pages."""
    root = Connection(browser)
    context = root.call("Target.createBrowserContext")["browserContextId"]
    made = root.call("Target.createTarget", url="about:blank", browserContextId=context)
    opened = Page(_of_page(browser, made["targetId"]))
    opened.context = context
    try:
        opened.size(width, height)
        yield opened
    finally:
        opened.socket.close()
        root.call("Target.disposeBrowserContext", browserContextId=context)
        root.socket.close()


@contextmanager
def page(width: int = 1200, height: int = 900) -> Iterator[Page]:
    """Yield the page of a new browser, which is closed afterwards."""
    with started() as browser:
        root = Connection(browser)
        listed = root.call("Target.getTargets")["targetInfos"]
        root.socket.close()
        opened = Page(_of_page(browser, next(t["targetId"] for t in listed if t["type"] == "page")))
        opened.size(width, height)
        yield opened
        opened.socket.close()


def _of_page(browser: str, target: str) -> str:
    return f"{browser.split('/devtools/')[0]}/devtools/page/{target}"


def _address(folder: Path) -> str:
    file, deadline = folder / "DevToolsActivePort", time.monotonic() + 30
    while not (file.exists() and len(file.read_text().split()) == 2):
        if time.monotonic() > deadline:
            raise InputError("Chromium did not start within half a minute")
        time.sleep(0.05)
    port, path = file.read_text().split()
    return f"ws://127.0.0.1:{port}{path}"
