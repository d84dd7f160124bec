"""A real Chromium without a window, spoken to over the DevTools protocol; it listens on the loopback device alone."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE_S = 60
"""A busy machine is no bug."""


def found() -> str | None:
    """The browser to test with; None where none is installed."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Tab:
    """One page, and everything it has said, asked for and logged since it was opened."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command; events that arrive before it are kept."""
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while (message := self._next()).get("id") != self._number:
            self.events.append(message)
        assert "error" not in message, message
        return dict(message["result"])

    def open(self, path: Path, width: int, scheme: str = "light") -> None:
        """Load a file at a width in pixels, in light or dark, and wait until it is there."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value_of(self, expression: str) -> Any:
        """What a JavaScript expression gives, waited for if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

    def click(self, selector: str) -> None:
        """Press the mouse on the middle of an element, as a person would."""
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        x, y = self.value_of(f"(() => {{ const b = {box}; return [b.x + b.width / 2, b.y + b.height / 2] }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path: Path) -> None:
        """The whole page as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def complaints(self) -> list[dict[str, Any]]:
        """What went to the console, and errors that nobody caught."""
        said = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
        return [event for event in self.events if event.get("method") in said]

    def requests(self) -> list[str]:
        """The addresses that the page asked for."""
        asked = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in asked]

    def _next(self) -> dict[str, Any]:
        return dict(json.loads(self._socket.recv(timeout=PATIENCE_S)))


@contextmanager
def chromium(program: str, home: Path) -> Iterator[Tab]:
    """A browser with one tab, ended with the block. Without its sandbox, since it reads only pages of ours."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", f"--user-data-dir={home}"]
    with subprocess.Popen([program, *flags, "about:blank"], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            port = next(found[1] for line in process.stderr if (found := re.search(r"ws://127\.0\.0\.1:(\d+)/", line)))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list") as answer:
                (address,) = (page["webSocketDebuggerUrl"] for page in json.load(answer) if page["type"] == "page")
            with connect(address, max_size=None) as socket:
                yield Tab(socket)
        finally:
            process.terminate()
