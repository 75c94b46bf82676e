"""Starts recorders, to be killed; one small process that forks them, so that each starts at once.

Run: python -m tests.soak.recording, then one line per recorder on stdin: SINCE AFTER_S WORD STORE.
The word is `honest`, or `eager` for one that acknowledges before it knows. It is killed so long
after its `start`, or after its first `acknowledgement`, which comes when the machine gets to it.
The answer is `killed`.

A recorder goes on with the session where the last one was killed. Two of its threads put events,
flush, and append the seq that is durable then to the file STORE.acks: what was written to a file
stays when its writer is killed.
"""

import hashlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec

from redrive.capture.ports import RecordingFault
from redrive.capture.recorder import Limits, Recorder
from redrive.record.event import Event, Kind, Source
from redrive.stores.recording import open_journal
from tests.recorders import SESSION, child_environment
from tests.stored import messages, steps_of

N_STEPS = 500
_ROOT = Path(__file__).resolve().parents[2]


def artefact_of(event: Event) -> bytes:
    """Give the bytes that an event points at."""
    return b"wire bytes of event %d " % event.seq * 40


def all_events() -> list[Event]:
    """Make the session: growing requests, and responses that point at their bytes."""
    events = list(steps_of(SESSION, messages(N_STEPS, 60)))
    for event in events[:]:
        if event.kind is Kind.MODEL_RESPONSE:
            data = artefact_of(event)
            source = Source(hashlib.sha256(data).hexdigest(), 0, len(data))
            events[event.seq] = msgspec.structs.replace(event, source=source)
    return events


class Killer:
    """Starts recorders and kills them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def kill(
        self, store: Path, after_s: float, word: str = "honest", *, since: str = "acknowledgement"
    ) -> None:
        """Record into a store for a while, then kill the recorder."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{since} {after_s} {word} {store}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer == "killed\n", answer


@contextmanager
def started_killer() -> Iterator[Killer]:
    """Start the process that forks recorders."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.recording"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
        cwd=_ROOT,
    )
    with process:
        yield Killer(process)
        assert process.stdin is not None
        process.stdin.close()


class _Agent:
    """Puts the session's events from two threads and acknowledges them."""

    def __init__(self, recorder: Recorder, events: list[Event], acks: int, *, is_eager: bool):
        self._recorder = recorder
        self._events = events
        self._acks = acks
        self._is_eager = is_eager
        self._lock = threading.Lock()
        self._next = recorder.first_seq

    def work(self) -> None:
        dice = random.Random(threading.get_ident() ^ time.time_ns())
        while self._next < len(self._events):
            for _ in range(dice.randrange(1, 9)):
                with self._lock:
                    last = self._put()
            if dice.random() < 0.5:
                time.sleep(dice.random() / 200)
            if not self._is_eager:
                self._recorder.flush()
            os.write(self._acks, b"%d\n" % last)
        self._recorder.flush()
        os.write(self._acks, b"%d\n" % (len(self._events) - 1))

    def _put(self) -> int:
        events = self._events[self._next : self._next + 1]
        if events and events[0].kind is Kind.MODEL_RESPONSE:
            self._recorder.put(events, (artefact_of(events[0]),))
        else:
            self._recorder.put(events)
        self._next += len(events)
        return self._next - 1


def _record(store: Path, events: list[Event], *, is_eager: bool) -> NoReturn:
    def fail(fault: RecordingFault) -> None:
        os.write(2, f"{fault}\n".encode())
        os._exit(3)

    recorder = Recorder(
        lambda: open_journal(store, SESSION, "redrive", 1, is_resumed=True),
        on_fault=fail,
        limits=Limits(max_delay_s=0.02),
        is_fail_closed=True,
    )
    acks = os.open(f"{store}.acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    agent = _Agent(recorder, events, acks, is_eager=is_eager)
    for _ in range(2):
        threading.Thread(target=agent.work).start()
    while True:
        time.sleep(60)


def _wait_for_more(acks: Path, size: int) -> None:
    deadline_s = time.monotonic() + 120
    while not (acks.exists() and acks.stat().st_size > size) and time.monotonic() < deadline_s:
        time.sleep(0.001)


def _main() -> None:
    events = all_events()
    for line in sys.stdin:
        since, after_s, word, store = line.rstrip("\n").split(" ", 3)
        acks = Path(f"{store}.acks")
        size = acks.stat().st_size if acks.exists() else 0
        child = os.fork()
        if not child:
            _record(Path(store), events, is_eager=word == "eager")
        if since == "acknowledgement":
            _wait_for_more(acks, size)
        time.sleep(float(after_s))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        is_killed = os.WIFSIGNALED(status)
        print("killed" if is_killed else f"ended with {status}", flush=True)  # noqa: T201


if __name__ == "__main__":
    _main()
