"""Journals in memory that fail on demand, events to record, and child processes that record."""

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Sequence
from pathlib import Path

from redrive.errors import StoreError
from redrive.record.event import Event, Kind, Note, dump_payload
from tests.stored import event_at

SESSION = "redrive:r"
_ROOT = Path(__file__).resolve().parent.parent


def notes(count: int, first: int = 0, *, session_id: str = SESSION, size: int = 8) -> list[Event]:
    """Make events that say which they are."""
    return [
        event_at(session_id, seq, Kind.NOTE, dump_payload(Note(label=f"note {seq}".ljust(size))))
        for seq in range(first, first + count)
    ]


class MemoryJournal:
    """Keeps commits in a list. `gate` holds commits back while it is not set; `error` fails one."""

    session_id = SESSION

    def __init__(self, first_seq: int = 0) -> None:
        self.next_seq = first_seq
        self.commits: list[list[Event]] = []
        self.artefacts: list[bytes] = []
        self.threads: set[int] = {threading.get_ident()}
        self.ends: list[str] = []
        self.error: BaseException | None = None
        self.end_error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    @property
    def events(self) -> list[Event]:
        """All that was committed, in order."""
        return [event for commit in self.commits for event in commit]

    def commit(self, events: Sequence[Event], artefacts: Sequence[bytes]) -> None:
        self.threads.add(threading.get_ident())
        self.entered.set()
        self.gate.wait()
        if self.error is not None:
            raise self.error
        self.commits.append(list(events))
        self.artefacts += artefacts
        self.next_seq += len(events)

    def close(self) -> None:
        self._end("closed")

    def abandon(self) -> None:
        self._end("abandoned")

    def _end(self, word: str) -> None:
        self.threads.add(threading.get_ident())
        self.ends.append(word)
        if self.end_error is not None:
            raise self.end_error


def refused() -> StoreError:
    return StoreError("the store took nothing")


def run_child(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a Python program that may import redrive and the tests; fail where it fails."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=child_environment(),
        cwd=_ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def child_environment() -> dict[str, str]:
    """Give the environment in which a child finds redrive and the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])}
