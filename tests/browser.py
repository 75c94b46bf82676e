"""A headless Chromium that tests drive through a pipe; skipped where none is installed."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_WAIT_S = 60
# DevTools reads file descriptor 3 and writes 4.
_ONTO_3_AND_4 = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of one browser.

    Attributes:
        events: every event that was seen, in order: requests, dialogs, messages of the console.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._number, self._rest, self._session = 0, b"", None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **arguments: Any) -> Any:
        """Send one command of the DevTools protocol and give its result."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": arguments}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> Any:
        while b"\0" not in self._rest:
            data = os.read(self._reader, 1 << 16)
            assert data, "the browser ended"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, address: str) -> None:
        """Load a page and wait until it is complete."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def js(self, expression: str) -> Any:
        """Evaluate an expression in the page, as a debugger does, and give its value."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        found = self.call(
            "Runtime.evaluate",
            expression=f"new Promise((done, fail) => {{ const end = Date.now() + {_WAIT_S}000;"
            f" const look = () => ({expression}) ? done(true) : Date.now() > end ?"
            " fail('never true') : setTimeout(look, 20); look(); })",
            awaitPromise=True,
        )
        assert "exceptionDetails" not in found, expression

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key; a letter is its own text."""
        text = text or (key if len(key) == 1 else "")
        code = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}.get(key, 0)
        shared = {"key": key, "windowsVirtualKeyCode": code or ord(key[0].upper())}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def named(self, *methods: str) -> list[dict[str, Any]]:
        """Give the parameters of the events of some kinds."""
        return [event["params"] for event in self.events if event.get("method") in methods]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Run a browser with a profile of its own below a folder."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed")
    from_test, to_browser = os.pipe()
    from_browser, to_test = os.pipe()
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe")
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _ONTO_3_AND_4, str(from_test), str(to_test)),
            *(program, *options, f"--user-data-dir={folder / 'profile'}"),
        ],
        pass_fds=(from_test, to_test),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(from_test)
    os.close(to_test)
    try:
        yield Browser(from_browser, to_browser)
    finally:
        os.close(to_browser)
        process.kill()
        process.wait()
        os.close(from_browser)
