"""One recorder per session, one runner per trial: a lock that ends with its holder, who is noted.

Knows small files beside a store, one per session or trial. Must not open the store
itself. The lock is `flock` on the file, so a file that a killed recorder left behind locks nothing.

Source: DESIGN.md §3 "Store"; `docs/reliability.md` "Store and recorder".
"""

import contextlib
import hashlib
import os
import sys
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from redrive.errors import StoreError
from redrive.stores.port import Recorder

if sys.platform != "win32":
    import fcntl

_DIGITS = 16
_TRIES = 10
_PAUSE_S = 0.02
_NOTE_BYTES = 4096


class _Words(NamedTuple):
    """What is locked, as messages say it."""

    purpose: str
    taken: str
    hint: str


class RecordingLock:
    """Holds a session or a trial for this process; see `hold_session`, `hold_trial`.

    A forked child does not hold it: the child's copy of the descriptor is closed at once, since the
    lock would else outlive its holder.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        reference = weakref.ref(self)

        def let_go() -> None:
            lock = reference()
            if lock is not None:
                lock._close()

        os.register_at_fork(after_in_child=let_go)

    def release(self) -> None:
        """Give it free and remove the file; idempotent."""
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # a folder that may no longer be written
                os.unlink(self._path)
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def lock_path(store: Path, session_id: str) -> Path:
    """Say where the lock of a session lies: beside the store, whichever way the store is named."""
    real = store.resolve()
    digest = hashlib.sha256(session_id.encode()).hexdigest()
    return real.with_name(f"{real.name}-recording-{digest[:_DIGITS]}")


def hold_session(store: Path, session_id: str) -> RecordingLock:
    """Make this process the one recorder of a session.

    Raises:
        StoreError: another process records it, which is named; or the file cannot be made.
    """
    words = _Words(
        f"session {session_id} for recording",
        f"session {session_id} is being recorded",
        "end that recorder, or record under another id",
    )
    return _hold(lock_path(store, session_id), words)


def hold_trial(store: Path, trial_id: str) -> RecordingLock:
    """Make this process the one that runs a trial.

    Raises:
        StoreError: another process runs it, which is named; or the file cannot be made.
    """
    words = _Words(
        f"trial {trial_id} for a run",
        f"trial {trial_id} is being run",
        "wait until it is done, or end it; then `redrive trial resume` goes on",
    )
    return _hold(lock_path(store, f"trial:{trial_id}"), words)


def _hold(path: Path, words: "_Words") -> RecordingLock:
    if sys.platform == "win32":
        raise StoreError("recording needs a system with flock: Linux or macOS")
    try:
        for _ in range(_TRIES):
            descriptor = _try_to_lock(path)
            if descriptor is not None:
                return _held(path, descriptor)
            time.sleep(_PAUSE_S)  # somebody may just be looking, or giving it up
        holder = _read_note(path)
    except OSError as error:
        raise StoreError(
            f"cannot lock {words.purpose}: {path}: {error.strerror}",
            hint="make the store's folder writable",
        ) from error
    raise StoreError(f"{words.taken} by {describe(holder)}", hint=words.hint)


def _held(path: Path, descriptor: int) -> RecordingLock:
    """Note who holds a lock; where the note cannot be written nobody is to be kept out."""
    try:
        _note_holder(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return RecordingLock(path, descriptor)


def find_recorder(store: Path, session_id: str) -> Recorder | None:
    """Say which process records a session; `None` where none does, or the system does not tell."""
    if sys.platform == "win32":
        return None
    path = lock_path(store, session_id)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_note(path)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None


def describe(recorder: Recorder) -> str:
    """Name a recorder in a message."""
    if not recorder.pid:
        return "another process"
    details = ", ".join(
        filter(None, (recorder.program, recorder.since and f"since {recorder.since}"))
    )
    return f"process {recorder.pid}" + (f" ({details})" if details else "")


def _try_to_lock(path: Path) -> int | None:
    """Lock the file; `None` where another process has it, or removed it meanwhile."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _note_holder(descriptor: int) -> None:
    """Write who holds the lock. Never arguments: they may carry secrets."""
    since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    name = Path(sys.argv[0] if sys.argv else "").name
    program = Path(sys.executable).name if name in ("", "-", "-c", "-m") else name
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(Recorder(os.getpid(), program, since)), 0)


def _read_note(path: Path) -> Recorder:
    """Read who holds the lock; one that does not tell is just another process."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_NOTE_BYTES), type=Recorder)
    except (OSError, msgspec.DecodeError):
        return Recorder()
