"""A session has one recorder, whose death gives it free, and who is named to everybody else."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from redrive.errors import StoreError
from redrive.stores.port import Recorder
from redrive.stores.recording_lock import (
    describe,
    find_recorder,
    hold_session,
    lock_path,
)
from tests.recorders import child_environment

_HOLD = """
import sys
from pathlib import Path
from redrive.stores.recording_lock import hold_session
lock = hold_session(Path(sys.argv[1]), "redrive:a")
print("held", flush=True)
sys.stdin.read()
"""


def test_the_lock_lies_beside_the_store_for_its_owner_alone(path: Path) -> None:
    lock = hold_session(path, "redrive:a")
    (file,) = path.parent.iterdir()
    assert file == lock_path(path, "redrive:a")
    assert file.name.startswith("store.db-recording-")
    assert len(file.name) == len("store.db-recording-") + 16
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lock.release()
    lock.release()
    assert list(path.parent.iterdir()) == []


def test_the_holder_is_noted_without_its_arguments(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/agents/triage.py", "--key", "sk-secret"])
    lock = hold_session(path, "redrive:a")
    noted = lock_path(path, "redrive:a").read_bytes()
    holder = msgspec.json.decode(noted, type=Recorder)
    assert (holder.pid, holder.program) == (os.getpid(), "triage.py")
    assert holder.since.endswith("Z")
    assert b"secret" not in noted
    assert b"agents" not in noted
    assert find_recorder(path, "redrive:a") == holder
    lock.release()


@pytest.mark.parametrize("argv", [[], [""], ["-c"]])
def test_a_program_without_a_name_is_its_interpreter(
    path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    lock = hold_session(path, "redrive:a")
    found = find_recorder(path, "redrive:a")
    assert found is not None
    assert found.program == Path(sys.executable).name
    lock.release()


def test_the_second_is_refused_however_the_store_is_named(path: Path) -> None:
    path.touch()
    link = path.with_name("link.db")
    link.symlink_to(path)
    lock = hold_session(path, "redrive:a")
    with pytest.raises(StoreError, match=rf"recorded by process {os.getpid()} \(.+, since 20"):
        hold_session(link, "redrive:a")
    hold_session(path, "redrive:b").release()
    lock.release()
    hold_session(link, "redrive:a").release()


def test_a_killed_holder_holds_nothing(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        found = find_recorder(path, "redrive:a")
        assert found is not None
        assert found.pid == holder.pid
        with pytest.raises(StoreError, match=f"by process {holder.pid} "):
            hold_session(path, "redrive:a")
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert lock_path(path, "redrive:a").exists(), "its file is left"
    assert find_recorder(path, "redrive:a") is None
    lock = hold_session(path, "redrive:a")
    found = find_recorder(path, "redrive:a")
    assert found is not None
    assert found.pid == os.getpid()
    lock.release()


def test_nobody_records_what_has_no_lock(path: Path) -> None:
    assert find_recorder(path, "redrive:a") is None


def test_who_only_looks_does_not_keep_a_recorder_out(path: Path) -> None:
    stop, made = threading.Event(), 0

    def look() -> None:
        while not stop.is_set():
            find_recorder(path, "redrive:a")

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(50):
        hold_session(path, "redrive:a").release()
        made += 1
    stop.set()
    thread.join()
    assert made == 50


def test_a_lock_whose_holder_cannot_be_noted_is_not_held(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_nothing(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("redrive.stores.recording_lock._note_holder", write_nothing)
        with pytest.raises(StoreError, match="No space left"):
            hold_session(path, "redrive:a")
    hold_session(path, "redrive:a").release()


def test_of_many_that_want_it_at_once_one_holds_it(path: Path) -> None:
    held, most, lock = [0], [0], threading.Lock()

    def want() -> None:
        for _ in range(10):
            try:
                mine = hold_session(path, "redrive:a")
            except StoreError:
                continue
            with lock:
                held[0] += 1
                most[0] = max(most[0], held[0])
            with lock:
                held[0] -= 1
            mine.release()

    threads = [threading.Thread(target=want) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


@pytest.mark.parametrize("note", [b"", b"{", b'{"pid": "x"}', b"\xff"])
def test_a_holder_that_cannot_be_read_is_just_another_process(path: Path, note: bytes) -> None:
    lock = hold_session(path, "redrive:a")
    lock_path(path, "redrive:a").write_bytes(note)
    assert find_recorder(path, "redrive:a") == Recorder()
    with pytest.raises(StoreError, match="is being recorded by another process"):
        hold_session(path, "redrive:a")
    lock.release()


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot lock session redrive:a for recording"):
        hold_session(tmp_path / "none" / "store.db", "redrive:a")


@pytest.mark.parametrize(
    ("recorder", "text"),
    [
        (Recorder(), "another process"),
        (Recorder(7), "process 7"),
        (Recorder(7, "agent.py", "2026-03-02T09:00:00Z"), "process 7 (agent.py, since 2026-03-02"),
    ],
)
def test_a_recorder_is_named_by_what_is_known_of_it(recorder: Recorder, text: str) -> None:
    assert describe(recorder).startswith(text)
