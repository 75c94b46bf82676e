"""Runs checks that may never end in a process that can be killed.

Knows processes and one time limit per check. Must not know what a check is.
"""

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from redrive.errors import PluginError
from redrive.graders.outputs import Mark, mark_of

_START_TIMEOUT_S = 120.0
_TICK_S = 0.05
_IDLE_FACTOR = 20
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV")


def check_all(kind: str, rule: Any, values: Sequence[Any], timeout_s: float) -> tuple[Mark, ...]:
    """Check values one by one, in order.

    Args:
        kind: `regex` or `json_schema`.
        rule: of that kind, a JSON value.
        values: JSON values.
        timeout_s: processor time for each; what takes longer is inconclusive, and the others lose
            nothing.

    Raises:
        PluginError: the process does not start.
    """
    marks: list[Mark] = []
    child: _Child | None = None
    try:
        for value in values:
            child = child or _Child(kind, rule)
            mark = child.check(value, timeout_s)
            marks.append(mark)
            if child.is_dead:
                child.stop()
                child = None
    finally:
        if child is not None:
            child.stop()
    return tuple(marks)


class _Child:
    """One process; its first check also waits for its start."""

    def __init__(self, kind: str, rule: Any) -> None:
        # Unbuffered: what was read too far would be lost to the selector.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "redrive.graders.check_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
            bufsize=0,
        )
        self.is_dead = False
        self._send({"kind": kind, "rule": rule})
        self._send("")  # any rule can be tried on that: it says when the process is there
        if self._receive(_START_TIMEOUT_S, is_wall=True) is None:
            self.stop()
            raise PluginError(f"the process that checks {kind} does not start")

    def check(self, value: Any, timeout_s: float) -> Mark:
        """Check one value."""
        self._send(value)
        answer = self._receive(timeout_s, is_wall=False)
        if answer is None:
            self.is_dead = True
            return Mark(None, reason=f"the check did not end within {timeout_s:g} s")
        passed, reason = answer
        if passed is None:
            return Mark(None, reason=reason)
        return mark_of(is_passed=passed, reason=reason)

    def _send(self, value: Any) -> None:
        assert self._process.stdin is not None  # noqa: S101 - a pipe, as asked for
        data = memoryview(json.dumps(value).encode() + b"\n")
        with suppress(BrokenPipeError):  # a dead process is found when it is read from
            while data:
                data = data[self._process.stdin.write(data) or 0 :]

    def _receive(self, timeout_s: float, *, is_wall: bool) -> Any:
        """Read one line; `None` at its end or when its time has passed."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe, as asked for
        line = bytearray()
        watch = _Watch(self._process.pid, timeout_s, is_wall=is_wall)
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(_TICK_S):
                    if watch.is_over():
                        return None
                    continue
                part = self._process.stdout.read(65536)
                if not part:
                    return None
                line += part
        return json.loads(line)

    def stop(self) -> None:
        """Kill it, and close what it holds."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class _Watch:
    """Says when a process has had its time.

    Its own processor time counts, so that a busy machine takes nothing from a check; wall time
    decides alone after many times as long.
    """

    def __init__(self, pid: int, timeout_s: float, *, is_wall: bool) -> None:
        self._pid, self._timeout_s, self._is_wall = pid, timeout_s, is_wall
        self._since, self._cpu_since = time.monotonic(), _cpu_seconds(pid)

    def is_over(self) -> bool:
        """Say whether the time has passed."""
        elapsed = time.monotonic() - self._since
        if self._is_wall or elapsed < self._timeout_s:
            return elapsed >= self._timeout_s
        used = _cpu_seconds(self._pid) - self._cpu_since
        return used >= self._timeout_s or elapsed >= self._timeout_s * _IDLE_FACTOR


def _cpu_seconds(pid: int) -> float:
    """Give the processor time of a process; 0 where the platform does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _environment() -> dict[str, str]:
    measured = tuple(name for name in os.environ if name.startswith(("COV_", "COVERAGE_")))
    return {name: os.environ[name] for name in (*_PASSED_ON, *measured) if name in os.environ}
