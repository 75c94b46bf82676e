"""`kill -9` at any moment of a redaction: the session is the old one or the redacted one, whole."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from redrive.app.redacting import redact_sessions
from redrive.capture.exchanges import decode_content
from redrive.record.event import Event
from redrive.stores.sqlite import open_store
from tests.planted_secrets import Planted, plant
from tests.planted_sessions import SESSION, leaks_in, record_planted, store_batches
from tests.stored import opened

KILLS = 300 if os.environ.get("REDRIVE_SOAK") == "full" else 30
Sessions = dict[str, tuple[str, list[Event]]]


@contextmanager
def _held(base_id: str) -> Iterator[str]:
    yield base_id


def redact(path: Path, before_writing: Callable[[], object] = lambda: None) -> str:
    """Redact everything; say why bytes are left, if any are.

    Args:
        path: the store.
        before_writing: called when all is read and nothing is written yet.
    """

    def progress(done: int, total: int, _: str) -> None:
        if done == total:
            before_writing()

    with closing(open_store(path, create=False)) as store:
        rows = list(store.sessions())
        report = redact_sessions(
            store,
            rows,
            b"k" * 32,
            decode=decode_content,
            hold=_held,
            is_dry_run=False,
            progress=progress,
        )
        return report.left


def state_of(path: Path) -> tuple[str, list[Event]]:
    """Give the session's head and its events, from a store that is sound."""
    with opened(path) as store:
        verified = store.verify()
        assert verified.is_ok, verified.faults
        return store.get_session(SESSION).head, list(store.events(SESSION))


@pytest.fixture(scope="module")
def planted() -> list[Planted]:
    return list(plant(15))[::150]


@pytest.fixture(scope="module")
def recorded(planted: list[Planted], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "store.db"
    store_batches(path, record_planted([one.text for one in planted]), size=500)
    return path


class CallCounter:
    """Counts the function calls and returns of this process, and does something at one of them.

    A call is a moment of progress: unlike a time that was measured once, it is the same one
    however busy the machine is.
    """

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.count = 0
        self._at = at
        self._act = act

    def start(self) -> None:
        sys.setprofile(self._see)

    def _see(self, *_: object) -> None:
        self.count += 1
        if self.count == self._at:
            sys.setprofile(None)
            self._act()


def _redact_in_child(path: Path, told: int, at: int, *, ends_itself: bool) -> NoReturn:
    try:
        act = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if ends_itself else None
        counter = CallCounter(at, act or (lambda: os.write(told, b"there")))
        redact(path, counter.start)
        sys.setprofile(None)
        os.write(told, b"%d" % counter.count)
    finally:
        os._exit(0)


def kill_a_redaction(path: Path, at: int, *, ends_itself: bool) -> tuple[bool, bytes]:
    """Redact in a child that is killed while it writes.

    Args:
        path: the store.
        at: the function call from which on it is to be killed; 0 for never.
        ends_itself: whether it dies there and nowhere else; or is killed from here as soon as it
            told that it is there, maybe within what SQLite does.

    Returns:
        Whether it was killed before its end, and what it told: how many calls there were.
    """
    ours, told = os.pipe()
    child = os.fork()
    if not child:
        _redact_in_child(path, told, at, ends_itself=ends_itself)
    os.close(told)
    with open(ours, "rb", buffering=0) as pipe:
        said = pipe.read(100)
        if said == b"there":
            os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status), said


def test_a_killed_redaction_leaves_the_old_session_or_the_new_one(
    planted: list[Planted], recorded: Path, tmp_path: Path
) -> None:
    old = state_of(recorded)
    done = tmp_path / "done.db"
    shutil.copy(recorded, done)
    assert redact(done) == ""
    new = state_of(done)
    assert new[0] != old[0]
    shutil.copy(recorded, tmp_path / "counted.db")
    n_calls = int(kill_a_redaction(tmp_path / "counted.db", 0, ends_itself=True)[1])
    seen = {"old": 0, "new": 0, "killed": 0}
    for number in range(KILLS):
        path = tmp_path / f"{number}.db"
        shutil.copy(recorded, path)
        # The nearer to its end, the more often: there the transaction is committed.
        at = n_calls + 1 - int(n_calls ** (number / KILLS))
        seen["killed"] += kill_a_redaction(path, at, ends_itself=number % 2 == 0)[0]
        state = state_of(path)
        assert state in (old, new)
        seen["old" if state == old else "new"] += 1
        assert redact(path) == ""
        assert state_of(path) == new
        assert leaks_in(path, planted) == []
        for file in tmp_path.glob(f"{number}.db*"):
            file.unlink()
    # Every second one ended itself, whatever the others came to.
    assert seen["killed"] >= KILLS // 2, seen
    assert seen["old"], seen
    assert seen["new"], seen
