"""One SQLite file: opened safely, written in whole transactions, every fault of it named.

Knows SQLite and files. Must not know sessions, events or tables. No `sqlite3.Error` leaves this
module: each is a `StoreError` that says what was found and what to do.

Source: DESIGN.md §3 "Store"; `docs/reliability.md`.
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from redrive.errors import StoreError, UsageError
from redrive.stores.locks import find_lock_holder

APPLICATION_ID = 0x52445256  # "RDRV"
BUSY_TIMEOUT_MS = 5000
_FETCH_ROWS = 64

_FAULTS = {
    sqlite3.SQLITE_READONLY: ("is read-only", "make the file and its folder writable"),
    sqlite3.SQLITE_PERM: ("may not be read by this user", "check the file's mode"),
    sqlite3.SQLITE_FULL: ("cannot grow: the disk is full", "free some space and run this again"),
    sqlite3.SQLITE_IOERR: ("failed in input or output", "check the disk"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a copy, or import the sources again"),
    sqlite3.SQLITE_NOTADB: ("is no redrive store", "name another with --store"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "check the path and its mode"),
    sqlite3.SQLITE_TOOBIG: ("cannot hold a value as large as this", "split the source"),
}
_LOCKED = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)

# SQLite's own message may quote damaged bytes, which Python then cannot decode.
_ERRORS = (sqlite3.Error, UnicodeError)

SqlValue = str | bytes | int | float | None


class Database:
    """A connection to one SQLite file.

    Args:
        path: where the file lies, for messages.
        connection: in autocommit mode.
        is_read_only: whether writing is refused.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, is_read_only: bool) -> None:
        self.path = path
        self.is_read_only = is_read_only
        self.is_in_transaction = False
        self._connection = connection

    def execute(self, sql: str, values: Sequence[SqlValue] = ()) -> int:
        """Run one statement; give the id of the row it inserted, if it did."""
        try:
            return self._connection.execute(sql, values).lastrowid or 0
        except _ERRORS as error:
            raise _fault(self.path, error) from error

    def query(self, sql: str, values: Sequence[SqlValue] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield rows; a few are held at a time."""
        try:
            cursor = self._connection.execute(sql, values)
            cursor.arraysize = _FETCH_ROWS
            while rows := cursor.fetchmany():
                yield from rows
        except _ERRORS as error:
            raise _fault(self.path, error) from error

    def find(self, sql: str, values: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        """Give the first row, or `None`."""
        try:
            row: tuple[Any, ...] | None = self._connection.execute(sql, values).fetchone()
        except _ERRORS as error:
            raise _fault(self.path, error) from error
        return row

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside one whole.

        Raises:
            StoreError: the store is read-only, another process writes, or one is open already.
        """
        if self.is_read_only:
            raise StoreError(f"store {self.path} is read-only", hint=_FAULTS[8][1])
        if self.is_in_transaction:
            raise StoreError(f"a transaction on store {self.path} is open already")
        self.execute("BEGIN IMMEDIATE")
        self.is_in_transaction = True
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise
        finally:
            self.is_in_transaction = False

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Show every read inside the same state, whatever other processes commit meanwhile.

        Inside a transaction that is what they see in any case. Keep it short: while it is open, the
        log of those who write can only grow.
        """
        if self._connection.in_transaction:
            yield
            return
        self.execute("BEGIN")
        try:
            yield
        finally:
            self._roll_back()  # nothing was written

    def _roll_back(self) -> None:
        """Undo what is open; SQLite has done so by itself after a full disk."""
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        """Release the file; the last writer to close folds the log into it."""
        try:
            self._connection.close()
        except _ERRORS as error:
            raise _fault(self.path, error) from error


def open_database(
    path: Path,
    *,
    create: bool,
    read_only: bool,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    is_shared: bool = False,
) -> Database:
    """Open a SQLite file, or make one with mode 0600 in folders of mode 0700.

    A file or folder that this user may not write is opened for reading alone. With `is_shared`,
    any thread may use it, one at a time; whoever shares it holds the lock.

    Raises:
        UsageError: it does not exist, and `create` is false.
        StoreError: it cannot be opened.
    """
    is_file = os.path.isfile(path)  # unlike Path.is_file, it says no where nothing may be seen
    is_new = not is_file or os.path.getsize(path) == 0
    if create and not read_only and is_new:
        _make_file(path)
    elif is_file and is_new:
        raise StoreError(f"store {path} is an empty file", hint="import something into it first")
    elif not is_file:
        raise UsageError(f"no store at {path}", hint="import something first, or name it: --store")
    may_write = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    is_read_only = read_only or not may_write
    # Beside a file that may not be written, SQLite's shared memory could not be made, or would be
    # left behind unwritable. Without a log none is needed.
    is_immutable = not may_write and not _has_log(path)
    mode = "ro&immutable=1" if is_immutable else "ro" if is_read_only else "rw"
    try:
        connection = _connect(path, mode, busy_timeout_ms, is_shared=is_shared)
    except _ERRORS as error:
        raise _fault(path, error) from error
    return Database(path, connection, is_read_only=is_read_only)


def _make_file(path: Path) -> None:
    try:
        _make_folder(path.parent)
        # A device, a pipe or a socket is no place for a store, and its mode is not ours to change.
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise StoreError(f"cannot make store {path}: it is no file", hint="name another")
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        path.chmod(0o600)  # an empty file may have been there, with another mode
    except OSError as error:
        raise StoreError(f"cannot make store {path}: {error.strerror}") from error


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _connect(path: Path, mode: str, busy_timeout_ms: int, *, is_shared: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=busy_timeout_ms / 1000,
        check_same_thread=not is_shared,
    )
    # A damaged text is caught by its seal, so it must reach Python as some text.
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        if mode == "rw":
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA journal_size_limit=0")
    except _ERRORS:
        connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.is_file() and log.stat().st_size > 0


def _primary(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _fault(path: Path, error: Exception) -> StoreError:
    """Say what a SQLite error means to a user."""
    code = sqlite3.SQLITE_CORRUPT if isinstance(error, UnicodeError) else _primary(error)
    if code in _LOCKED:
        holder = find_lock_holder(path)
        by = "another process" if holder is None else f"another process ({holder})"
        return StoreError(
            f"store {path} is locked by {by}", hint="wait until it is done, then run this again"
        )
    found, hint = _FAULTS.get(code, ("cannot be used", ""))
    return StoreError(f"store {path} {found}: {error}", hint=hint)
