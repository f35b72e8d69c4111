"""A headless Chromium under a test's control, with no network: one process for many pages.

It speaks the DevTools protocol over a pair of pipes, so that a test can choose the width of the
screen, dark or light, paper, and whether script runs: a headless window has a least width, and its
flags cannot be changed while it runs.
"""

import base64
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from browser import CHROMIUM

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-pipe",
)
# Chromium reads commands from its file 3 and writes to its file 4. Copies beyond them come first,
# as the pipes may have these numbers themselves.
_START = """
import os, sys
from fcntl import F_DUPFD, fcntl
read, write = (fcntl(int(number), F_DUPFD, 10) for number in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
_PATIENCE_S = 60
# Each with its number and the text that it types.
_KEYS = {
    "Enter": (13, "\r"),
    "Tab": (9, ""),
    "Escape": (27, ""),
    "End": (35, ""),
    "Home": (36, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "+": (187, "+"),
    "-": (189, "-"),
    "/": (191, "/"),
    "?": (191, "?"),
}


# A change of size while a page loads makes it draw its plots once more, in a later frame.
_UNTIL_DRAWN = """
await globalThis.plotsDrawn;
const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
const drawn = () => [...document.querySelectorAll(".js-plotly-plot")]
  .every((plot) => plot.querySelector(".main-svg .drag"));
for (let frames = 0; frames < 3 || (frames < 600 && !drawn()); frames += 1) await frame();
"""


class Chromium:
    """One browser with one tab."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands = commands
        self._answers = answers
        self._unread = b""
        self._number = 0
        self._session: str | None = None
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        attached = self._send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._send("Page.enable")

    def open(
        self,
        page: Path,
        *,
        width: int = 1400,
        height: int = 1000,
        script: bool = True,
        dark: bool = False,
        paper: bool = False,
        touch: bool = False,
        fragment: str = "",
    ) -> None:
        """Load `page` on a screen of `width` CSS pixels and wait until it is drawn.

        `fragment` is the end of its address, "#kernels".
        """
        self._send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._send("Emulation.setTouchEmulationEnabled", enabled=touch, maxTouchPoints=1)
        self.colour(dark=dark, paper=paper)
        self._send("Emulation.setScriptExecutionDisabled", value=not script)
        # From elsewhere: another fragment alone would not load the page again.
        if fragment:
            self.leave()
        self._send("Page.navigate", url=page.as_uri() + fragment)
        self._wait_for("Page.loadEventFired")
        if script:
            self.evaluate(_UNTIL_DRAWN)

    def colour(self, *, dark: bool, paper: bool = False) -> None:
        """The page as it is, dark or light: where no script draws, as if loaded so."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = "print" if paper else "screen"
        self._send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def leave(self) -> None:
        """Show nothing, which takes no time: a page goes on as long as it is open."""
        self._send("Page.navigate", url="about:blank")
        self._wait_for("Page.loadEventFired")

    def before_each_page(self, script: str) -> None:
        """Run `script` in each page that is opened from now on, before its own."""
        self._send("Page.addScriptToEvaluateOnNewDocument", source=script)

    def evaluate(self, body: str) -> Any:
        """What the body of an async function returns in the page."""
        answer = self._send(
            "Runtime.evaluate",
            expression=f"(async () => {{ {body} }})()",
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def picture(self, form: str) -> bytes:
        """What is on the screen, as "png" or "webp"."""
        quality = {"quality": 80} if form == "webp" else {}
        shot = self._send("Page.captureScreenshot", format=form, **quality)
        return base64.b64decode(shot["data"])

    def swipe(self, x: float, y: float, *, up: int = 0) -> None:
        """A finger that comes down at (x, y), moves up by `up` pixels and leaves; 0 is a tap."""
        send = partial(self._send, "Input.dispatchTouchEvent")
        send(type="touchStart", touchPoints=[{"x": x, "y": y}])
        for moved in range(0, up, 10):
            send(type="touchMove", touchPoints=[{"x": x, "y": y - moved}])
        send(type="touchEnd", touchPoints=[])

    def hover(self, x: float, y: float) -> None:
        """The mouse comes to (x, y)."""
        self._send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def drag(self, x: float, y: float, *, right: int = 0) -> None:
        """The mouse takes hold at (x, y), moves by `right` pixels and lets go; 0 is a click."""
        send = partial(self._send, "Input.dispatchMouseEvent", y=y, button="left", clickCount=1)
        send(type="mousePressed", x=x)
        for moved in range(0, abs(right), 10):
            send(type="mouseMoved", x=x + (moved if right > 0 else -moved))
        send(type="mouseReleased", x=x + right)

    def press(self, key: str) -> None:
        """One of `_KEYS`, as a keyboard sends it."""
        code, text = _KEYS[key]
        parameters = {"key": key, "code": key, "windowsVirtualKeyCode": code, "text": text}
        self._send("Input.dispatchKeyEvent", type="keyDown", **parameters)
        self._send("Input.dispatchKeyEvent", type="keyUp", **parameters)

    def _send(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        unsent = json.dumps(message).encode() + b"\0"
        while unsent:
            unsent = unsent[os.write(self._commands, unsent) :]
        while (answer := self._next()).get("id") != self._number:
            pass
        assert "error" not in answer, answer["error"]
        return answer["result"]

    def _wait_for(self, event: str) -> None:
        while self._next().get("method") != event:
            pass

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], _PATIENCE_S)
            assert ready, "Chromium does not answer"
            read = os.read(self._answers, 1 << 20)
            assert read, "Chromium ended"
            self._unread += read
        message, _, self._unread = self._unread.partition(b"\0")
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def started(profile: Path) -> Iterator[Chromium]:
    """A browser that keeps its files in `profile`."""
    assert CHROMIUM is not None
    commands_out, commands = os.pipe()
    answers, answers_in = os.pipe()
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _START, str(commands_out), str(answers_in)),
            *(CHROMIUM, *_FLAGS, f"--user-data-dir={profile}"),
        ],
        pass_fds=(commands_out, answers_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(commands_out)
    os.close(answers_in)
    try:
        yield Chromium(commands, answers)
    finally:
        os.close(commands)
        process.terminate()
        process.wait()
        os.close(answers)
