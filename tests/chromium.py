"""Drives a headless Chromium through its debugging pipe, with nothing but the standard library.

The pipe carries JSON messages that end in NUL: commands on the child's descriptor 3, answers and
events on 4. No port is opened.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LAUNCH = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(arg), fcntl.F_DUPFD, 10) for arg in sys.argv[1:3])
os.dup2(reads, 3), os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_WAIT_S = 60
_KEY_CODES = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """Find an installed Chromium."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab: sends commands, keeps the events that came meanwhile."""

    def __init__(self, commands: int, answers: int, deadline_s: float) -> None:
        self.events: list[dict[str, Any]] = []
        self._commands, self._answers = commands, answers
        self._until = time.monotonic() + deadline_s
        self._last, self._rest = 0, b""
        self._session: str | None = None

    def attach(self) -> None:
        """Open a tab and listen to its page, its requests and its console."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._last:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _note(self, event: dict[str, Any]) -> None:
        self.events.append(event)
        if event.get("method") == "Page.javascriptDialogOpening":
            # Not awaited: the page stands still until the dialog is closed.
            self._last += 1
            closing = {"id": self._last, "method": "Page.handleJavaScriptDialog"}
            closing |= {"params": {"accept": False}, "sessionId": self._session}
            os.write(self._commands, json.dumps(closing).encode() + b"\0")
            self._last += 1

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            left_s = max(0.0, self._until - time.monotonic())
            if not select.select([self._answers], [], [], left_s)[0]:
                raise TimeoutError("Chromium does not answer")
            data = os.read(self._answers, 1 << 16)
            if not data:
                raise RuntimeError("Chromium ended")
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, page: Path | str) -> None:
        """Open a file or an address and wait until it is loaded."""
        self.send("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self._note(self._receive())

    def evaluate(self, expression: str) -> Any:
        """Evaluate an expression in the page; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        self.evaluate(
            f"new Promise((done, fail) => {{ const end = Date.now() + {_WAIT_S}000;"
            f" const look = () => ({expression}) ? done(true) : Date.now() > end ?"
            " fail('never true') : setTimeout(look, 20); look(); })"
        )

    def press(self, key: str) -> None:
        """Press and release a key; a letter is its own text."""
        text = key if len(key) == 1 else ""
        code = _KEY_CODES.get(key) or ord(key[0].upper())
        shared = {"key": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **shared)
        self.send("Input.dispatchKeyEvent", type="keyUp", **shared)

    def requested(self) -> list[str]:
        """List the addresses that the page asked for, its own first."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """List dialogs, uncaught exceptions and what the browser logged, as text."""
        methods = (
            "Page.javascriptDialogOpening",
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
        )
        return [json.dumps(event) for event in self.events if event.get("method") in methods]


@contextmanager
def open_page(program: str, profile: Path, deadline_s: float = 180) -> Iterator[Page]:
    """Start Chromium with a profile of its own and give a tab; it is ended afterwards."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Chromium refuses its sandbox to root.
    flags = (*_FLAGS, *(("--no-sandbox",) if os.geteuid() == 0 else ()))
    launch = (sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out))
    child = subprocess.Popen(
        [*launch, program, *flags, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(ours_out, ours_in, deadline_s)
        page.attach()
        yield page
    finally:
        os.close(ours_out)
        os.close(ours_in)
        child.terminate()
        try:
            child.wait(60)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
