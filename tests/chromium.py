"""A headless Chromium, driven by its own protocol: what the tests of pages need of it."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--remote-debugging-port=0", "--remote-allow-origins=*", "--hide-scrollbars",
)  # fmt: skip


def found():
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class Page:
    def __init__(self, address):
        import websocket

        self.socket = websocket.create_connection(address, timeout=60, suppress_origin=True)
        self.number, self.events = 0, []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def run(self, script):
        """The value of an expression, awaited."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def wait(self, script, seconds=30):
        until = time.monotonic() + seconds
        while not self.run(script):
            if time.monotonic() > until:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.05)

    def size(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip

    def go(self, address):
        self.call("Page.navigate", url=address)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mousePressed", x, y, button="left", clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)

    def key(self, key, text=None):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text or "")
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def shot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        Path(path).write_bytes(base64.b64decode(data))

    def requested(self):
        """Addresses of all requests so far."""
        return [
            e["params"]["request"]["url"] for e in self.events
            if e.get("method") == "Network.requestWillBeSent"
        ]  # fmt: skip

    def complaints(self):
        """Exceptions and errors in the console."""
        return [
            e for e in self.events
            if e.get("method") == "Runtime.exceptionThrown"
            or (e.get("method") == "Log.entryAdded" and e["params"]["entry"]["level"] == "error")
        ]  # fmt: skip


@contextmanager
def page(width=1200, height=900):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [found(), *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port = _port(Path(folder))
            listed = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
            address = next(p["webSocketDebuggerUrl"] for p in listed if p["type"] == "page")
            opened = Page(address)
            opened.size(width, height)
            yield opened
            opened.socket.close()
        finally:
            process.terminate()
            process.wait(20)


def _port(folder):
    file, until = folder / "DevToolsActivePort", time.monotonic() + 30
    while not (file.exists() and file.read_text().strip()):
        if time.monotonic() > until:
            raise TimeoutError("Chromium did not start")
        time.sleep(0.05)
    return int(file.read_text().splitlines()[0])
