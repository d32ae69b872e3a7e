"""Look at a page in headless Chromium, over the DevTools protocol on a pipe: no further library."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

CHROMIUM = Path(os.environ.get("FASTSLOW_CHROMIUM", "/usr/bin/chromium"))
OPTIONS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run",
]  # fmt: skip
OPTIONS += ["--disable-background-networking", "--disable-component-update", "--mute-audio"]


@dataclass
class Browser:
    """One tab."""

    to: BinaryIO
    back: BinaryIO
    session: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    _last: int = 0

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what happens meanwhile is kept in `events`."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while (answer := self._read()).get("id") != self._last:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return dict(answer["result"])

    def wait_for(self, method: str) -> None:
        """Until such an event has come."""
        while not any(event["method"] == method for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return answer["result"].get("value")

    def open(self, page: Path, width: int, theme: str) -> None:
        """Load the page on a screen so wide, `light` or `dark`."""
        self.events.clear()
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        feature = {"name": "prefers-color-scheme", "value": theme}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def found(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of a kind since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def photograph(self, path: Path) -> None:
        """Save the whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _read(self) -> dict[str, Any]:
        message = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            assert byte, "Chromium went away"
            message += byte
        return dict(json.loads(message))


@contextmanager
def browse(profile: Path) -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it afterwards."""
    (take, to), (back, give) = os.pipe(), os.pipe()
    command = [str(CHROMIUM), *OPTIONS, f"--user-data-dir={profile}", "about:blank"]
    script = f'exec "$@" 3<&{take} 4>&{give} 2>/dev/null'  # Chromium's pipe is 3 and 4
    process = subprocess.Popen(["bash", "-c", script, "bash", *command], pass_fds=(take, give))
    os.close(take)
    os.close(give)
    with os.fdopen(to, "wb") as sender, os.fdopen(back, "rb") as receiver:
        browser = Browser(sender, receiver)
        try:
            # One of our own: what Chromium opens by itself need not be a page.
            target = browser.call("Target.createTarget", url="about:blank")["targetId"]
            attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
            browser.session = attached["sessionId"]
            for domain in ("Page", "Runtime", "Log", "Network"):
                browser.call(f"{domain}.enable")
            yield browser
        finally:
            process.kill()
            process.wait()
