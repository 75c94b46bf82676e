"""`kill -9` at any moment of a redaction: the session is the old one or the redacted one, whole."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

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


def redact(path: Path) -> str:
    """Redact everything; say why bytes are left, if any are."""
    with closing(open_store(path, create=False)) as store:
        rows = list(store.sessions())
        report = redact_sessions(
            store,
            rows,
            b"k" * 32,
            decode=decode_content,
            hold=_held,
            is_dry_run=False,
            progress=lambda *_: None,
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
    return list(plant(15))[::40]


@pytest.fixture(scope="module")
def recorded(planted: list[Planted], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("killed") / "store.db"
    store_batches(path, record_planted([one.text for one in planted]), size=500)
    return path


def kill_a_redaction(path: Path, after_s: float) -> bool:
    """Redact in a child and kill it; say whether it was killed before its end."""
    child = os.fork()
    if not child:
        redact(path)
        os._exit(0)
    time.sleep(after_s)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_a_killed_redaction_leaves_the_old_session_or_the_new_one(
    planted: list[Planted], recorded: Path, tmp_path: Path
) -> None:
    old = state_of(recorded)
    done = tmp_path / "done.db"
    shutil.copy(recorded, done)
    began = time.monotonic()
    assert redact(done) == ""
    took_s = time.monotonic() - began
    new = state_of(done)
    assert new[0] != old[0]
    seen = {"old": 0, "new": 0, "killed": 0}
    for number in range(KILLS):
        path = tmp_path / f"{number}.db"
        shutil.copy(recorded, path)
        # The last fifth, in which the store is written, is met as often as all before it.
        share = number / KILLS if number % 2 else 0.8 + 0.3 * number / KILLS
        seen["killed"] += kill_a_redaction(path, took_s * share)
        state = state_of(path)
        assert state in (old, new)
        seen["old" if state == old else "new"] += 1
        assert redact(path) == ""
        assert state_of(path) == new
        assert leaks_in(path, planted) == []
        for file in tmp_path.glob(f"{number}.db*"):
            file.unlink()
    assert seen["killed"] > KILLS // 3, seen
    assert seen["old"], seen
