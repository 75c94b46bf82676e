"""Keeps the events of one live session durably: a transaction per commit, one recorder at a time.

Knows how a session grows: what `capture.ports.Journal` promises. Must not know who observes the
agent. What a commit needs of the session so far (head, last texts) is held between commits, so that
one costs the same at event 100 and at event 100,000.

Source: DESIGN.md §3 "Store"; `docs/reliability.md` "Store and recorder".
"""

import hashlib
import io
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from redrive.errors import StoreError
from redrive.record.event import Event
from redrive.record.summary import count_session
from redrive.stores import artefacts, catalogue
from redrive.stores.database import Database, open_database
from redrive.stores.recording_lock import RecordingLock, hold_session
from redrive.stores.rows import ProjectionRow, put_row
from redrive.stores.schema import migrate
from redrive.stores.segments import SegmentWriter, read_chain, read_events_without_texts
from redrive.stores.sqlite import SqliteStore
from redrive.stores.texts import TextStore

BUSY_TIMEOUT_MS = 30_000
"""An import holds the store for as long as its file takes; giving up would end the recording."""


def open_journal(
    path: Path,
    base_id: str,
    fmt: str,
    version: int,
    *,
    create: bool = True,
    is_resumed: bool = False,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
) -> "SqliteJournal":
    """Begin to record a session, on a connection of its own; use it from the thread that opened it.

    Args:
        path: the store.
        base_id: of the session, such as `redrive:triage-20260302T090000-1f2e3d`.
        fmt: name of the recorder's format.
        version: of the recorder.
        create: make the store if it does not exist.
        is_resumed: go on with a recording of this very id, if there is one.
        busy_timeout_ms: how long a commit waits for another process that writes.

    Raises:
        UsageError: the store does not exist, and `create` is false.
        StoreError: it cannot be written; another process records this session, which is named; or
            the session is stored already and is not a recording to be resumed.
    """
    with ExitStack() as undo:
        database = _open_writable(path, create=create, busy_timeout_ms=busy_timeout_ms)
        undo.callback(database.close)
        migrate(database)
        lock = hold_session(path, base_id)
        undo.callback(lock.release)
        store = SqliteStore(database)
        with store.transaction():
            session_id = _begin(store, base_id, fmt, version, is_resumed=is_resumed)
        journal = SqliteJournal(database, session_id, lock)
        undo.pop_all()
    return journal


def _open_writable(path: Path, *, create: bool, busy_timeout_ms: int) -> Database:
    database = open_database(path, create=create, read_only=False, busy_timeout_ms=busy_timeout_ms)
    if database.is_read_only:
        database.close()
        raise StoreError(f"store {path} is read-only", hint="make the file and its folder writable")
    return database


def _begin(store: SqliteStore, base_id: str, fmt: str, version: int, *, is_resumed: bool) -> str:
    """Create the session, or find that it may be resumed; give its id."""
    rows = store.revisions(base_id)
    if not rows:
        return store.create(base_id, fmt, version).close().session_id
    row = rows[-1]
    is_recording = len(rows) == 1 and not row.sources
    is_ours = (row.format, row.importer_version) == (fmt, version)
    if not (is_resumed and is_recording and is_ours):
        raise StoreError(
            f"session {base_id} is stored already: {row.n_events} events of format {row.format} "
            f"version {row.importer_version}",
            hint="record under another id",
        )
    store.set_summary(row.session_id, {})  # what is being recorded has none
    return row.session_id


class SqliteJournal:
    """A `redrive.capture.ports.Journal`; make it with `open_journal`."""

    def __init__(self, database: Database, session_id: str, lock: RecordingLock) -> None:
        self._database = database
        self._texts = TextStore(database)
        self._session_id = session_id
        self._lock = lock
        self._projection: ProjectionRow | None = None
        self._segments: SegmentWriter | None = None
        self._is_closed = False

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        return self._session_id

    @property
    def next_seq(self) -> int:
        """The seq that the next event must have."""
        return self._known()[0].events

    def commit(self, events: Sequence[Event], artefacts: Sequence[bytes] = ()) -> None:
        """Store events and the bytes that they point at, all or none; durable on return.

        Args:
            events: dense in seq, from `next_seq`.
            artefacts: verbatim bytes; one that is stored already costs a look-up.

        Raises:
            StoreError: the events do not follow, the journal is closed, or the store cannot be
                written. Nothing of this commit is stored then, unless the disk failed while it was
                being made durable; `next_seq` says which.
            RecordError: an id of an event is no text.
        """
        if self._is_closed:
            raise StoreError(f"the recording of {self._session_id} is closed")
        projection, segments = self._known()
        self._check_order(events, projection.events)
        try:
            with self._database.transaction():
                self._require_unchanged(projection)
                for data in artefacts:
                    self._put_artefact(data)
                segments.extend(events)
                segments.flush()
                grown = segments.grown(projection)
                put_row(self._database, grown, replaces=True)
        except BaseException:
            self._forget()
            raise
        self._projection = grown

    def close(self) -> None:
        """End the recording: write the session's counts, give up its lock. Idempotent.

        Raises:
            StoreError: the counts cannot be written; the lock is given up all the same.
            TamperError: what was recorded is damaged.
        """
        try:
            if not self._is_closed:
                self._write_summary()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End the recording after a fault: write nothing more, give up the lock. Idempotent.

        Without counts in the catalogue, readers count for themselves, and say that the recorder
        ended early.

        Raises:
            StoreError: the file cannot be released; the lock is given up all the same.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._database.close()
        finally:
            self._lock.release()

    def _known(self) -> tuple[ProjectionRow, SegmentWriter]:
        """Give the state of the session as the store has it, read where it is not known."""
        if self._projection is None or self._segments is None:
            self._projection = catalogue.get_projection(self._database, self._session_id)
            self._segments = SegmentWriter(self._database, self._texts, self._projection)
        return self._projection, self._segments

    def _forget(self) -> None:
        """After a failed commit only the store knows what it holds."""
        self._projection = self._segments = None
        self._texts.clear()

    def _check_order(self, events: Sequence[Event], first: int) -> None:
        wanted = range(first, first + len(events))
        if [event.seq for event in events] == list(wanted) and all(
            event.session_id == self._session_id for event in events
        ):
            return
        for event, seq in zip(events, wanted, strict=True):
            if event.seq != seq or event.session_id != self._session_id:
                raise StoreError(
                    f"event {event.seq} of session {event.session_id} cannot follow: "
                    f"expected event {seq} of {self._session_id}"
                )

    def _require_unchanged(self, known: ProjectionRow) -> None:
        """Refuse to write behind another process that changed the session, lock or no lock."""
        found = self._database.find(
            "SELECT s.projection, p.events, p.head FROM sessions s JOIN projections p "
            "ON p.id = s.projection WHERE s.session_id = ?",
            (self._session_id,),
        )
        if found != (known.id, known.events, known.head):
            raise StoreError(
                f"session {self._session_id} was changed by another process while it was recorded"
            )

    def _put_artefact(self, data: bytes) -> None:
        digest = hashlib.sha256(data).digest()
        if artefacts.find_artefact(self._database, digest) is None:
            artefacts.write_artefact(self._database, digest, len(data), io.BytesIO(data), None)

    def _write_summary(self) -> None:
        projection, _ = self._known()
        chain = read_chain(self._database, projection)
        summary = count_session(
            self._session_id,
            lambda: read_events_without_texts(self._database, projection, chain),
            SqliteStore(self._database).reader(self._session_id),
        )
        with self._database.transaction():
            catalogue.put_summary(self._database, self._session_id, msgspec.to_builtins(summary))
