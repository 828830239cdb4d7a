"""A headless Chromium, driven by its own protocol, for tests and benchmarks of pages."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
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
    """Where it is, if it is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Page:
    """One page of it."""

    def __init__(self, address: str) -> None:
        """By the address of its debugger."""
        import websocket

        self.socket: Any = websocket.create_connection(address, timeout=60, suppress_origin=True)
        self.number = 0
        self.events: list[Event] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Event:
        """What the browser answers; events that come meanwhile are kept."""
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

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 30) -> None:
        """Until it is true."""
        until = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.05)

    def size(self, width: int, height: int) -> None:
        """Of the window."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip

    def go(self, address: str) -> None:
        """To a page."""
        self.call("Page.navigate", url=address)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """An event of it."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """There."""
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key: str, text: str = "") -> None:
        """Pressed and let go."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def shot(self, path: Path) -> None:
        """A picture of the page."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def requested(self) -> list[str]:
        """The addresses of all requests so far."""
        return [
            e["params"]["request"]["url"] for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]  # fmt: skip

    def complaints(self) -> list[Event]:
        """Exceptions, and errors in the console."""
        return [
            e for e in self.events
            if e.get("method") == "Runtime.exceptionThrown"
            or (e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")
        ]  # fmt: skip

    def traced(self, categories: str, work: Any) -> list[Event]:
        """The events of the browser's own trace while something is done."""
        self.call("Tracing.start", categories=categories, transferMode="ReportEvents")
        work()
        self.call("Tracing.end")
        while not any(e.get("method") == "Tracing.tracingComplete" for e in self.events):
            self.events.append(json.loads(self.socket.recv()))
        found = [e for e in self.events if e.get("method") == "Tracing.dataCollected"]
        return [event for one in found for event in one["params"]["value"]]


@contextmanager
def page(width: int = 1200, height: int = 900) -> Iterator[Page]:
    """A browser with one page, ended afterwards."""
    program = chromium()
    if program is None:
        raise InputError("no Chromium found; install it (Debian: apt install chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = _port(Path(folder))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
                listed = json.load(answer)
            opened = Page(next(p["webSocketDebuggerUrl"] for p in listed if p["type"] == "page"))
            opened.size(width, height)
            yield opened
            opened.socket.close()
        finally:
            process.terminate()
            process.wait(20)


def _port(folder: Path) -> int:
    file, until = folder / "DevToolsActivePort", time.monotonic() + 30
    while not (file.exists() and file.read_text().strip()):
        if time.monotonic() > until:
            raise InputError("Chromium did not start within half a minute")
        time.sleep(0.05)
    return int(file.read_text().splitlines()[0])
