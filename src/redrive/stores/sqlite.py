"""The store in one SQLite file: what `redrive.stores.port` promises.

Knows how catalogue, segments, texts and artefacts make a store. Must not know formats or verbs.

Source: DESIGN.md §3 "Store" and "Names".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from redrive import canonical
from redrive.errors import StoreError
from redrive.record.event import Event
from redrive.record.session import SessionIndex, build_index
from redrive.stores import artefacts, catalogue
from redrive.stores.database import BUSY_TIMEOUT_MS, Database, open_database
from redrive.stores.policies import SqlitePolicyTables
from redrive.stores.port import Fault, Recorder, SessionRow, SourceRow, Verification, Whole
from redrive.stores.recording_lock import find_recorder
from redrive.stores.rewriting import SqliteRewriting
from redrive.stores.rows import CatalogueRow, ProjectionRow, next_id, put_row
from redrive.stores.schema import migrate
from redrive.stores.segments import (
    Link,
    SegmentReader,
    SegmentWriter,
    chain_start,
    read_blocks,
    read_chain,
    read_events,
)
from redrive.stores.texts import TextStore
from redrive.stores.trials import SqliteTrialTables
from redrive.stores.verify import verify_store


def open_store(
    path: Path,
    *,
    create: bool,
    read_only: bool = False,
    busy_timeout_ms: int = BUSY_TIMEOUT_MS,
) -> "SqliteStore":
    """Open a store, bringing an older one to the schema of today.

    Args:
        path: where it lies; see `redrive.stores.locate.locate_store`.
        create: make it if it does not exist, mode 0600, in folders of mode 0700.
        read_only: never write; a file that may not be written is opened so in any case.
        busy_timeout_ms: how long to wait for another process that writes.

    Raises:
        UsageError: it does not exist, and `create` is false.
        StoreError: it is newer, locked, damaged, or no store.
    """
    database = open_database(
        path, create=create, read_only=read_only, busy_timeout_ms=busy_timeout_ms
    )
    try:
        migrate(database)
    except BaseException:
        database.close()
        raise
    return SqliteStore(database)


class SqliteStore:
    """A `redrive.stores.port.Store`. Use it from one thread; make it with `open_store`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._texts = TextStore(database)
        self._writers: list[SqliteWriter] = []

    @property
    def path(self) -> Path:
        """Where the store lies."""
        return self._database.path

    @property
    def is_read_only(self) -> bool:
        """Whether writing is refused."""
        return self._database.is_read_only

    @property
    def policies(self) -> SqlitePolicyTables:
        """What the store keeps of policies."""
        return SqlitePolicyTables(self._database)

    @property
    def trials(self) -> SqliteTrialTables:
        """What the store keeps of trials."""
        return SqliteTrialTables(self._database)

    @property
    def rewriting(self) -> SqliteRewriting:
        """What removes content that was replaced."""
        return SqliteRewriting(self._database, self._texts)

    def close(self) -> None:
        """Release the store."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything inside one whole: all of it is stored, or nothing.

        Raises:
            StoreError: the store is read-only or locked, or a writer was left open.
        """
        try:
            with self._database.transaction():
                yield
                if self._writers:
                    raise StoreError(f"the writer of {self._writers[0].session_id} was not closed")
        except BaseException:
            self._texts.clear()
            raise
        finally:
            self._writers.clear()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Use the transaction that is open, or one of its own."""
        if self._database.is_in_transaction:
            yield
        else:
            with self.transaction():
                yield

    # --- artefacts

    def has_artefact(self, sha256: str) -> bool:
        """Say whether this source is stored."""
        return artefacts.find_artefact(self._database, bytes.fromhex(sha256)) is not None

    def put_artefact(self, sha256: str, size: int, data: BinaryIO, extends: str | None) -> None:
        """Store a source verbatim, unless it is stored; see `artefacts.write_artefact`."""
        with self._writing():
            if not self.has_artefact(sha256):
                base = None if extends is None else bytes.fromhex(extends)
                artefacts.write_artefact(self._database, bytes.fromhex(sha256), size, data, base)

    def open_artefact(self, sha256: str) -> BinaryIO:
        """Open a stored source as a stream; its digest is checked when it was read to its end."""
        return artefacts.open_artefact(self._database, bytes.fromhex(sha256))

    def artefact_sizes(self) -> dict[int, list[str]]:
        """Map size in bytes → digests."""
        return artefacts.artefact_sizes(self._database)

    # --- sessions

    def sessions(self) -> Iterator[SessionRow]:
        """List every revision, oldest first event first."""
        with self._database.snapshot():
            return iter(list(catalogue.list_sessions(self._database)))

    def list_sound(self) -> tuple[list[SessionRow], list[Fault]]:
        """List every revision whose rows are sound, and what is wrong with the others."""
        with self._database.snapshot():
            return catalogue.list_sound(self._database)

    def get_session(self, name: str) -> SessionRow:
        """Find one session by id, `ID@N` or unique prefix; see `catalogue.resolve_name`."""
        with self._database.snapshot():
            session_id = catalogue.resolve_name(self._database, name)
            return catalogue.get_session(self._database, session_id)

    def get_row(self, session_id: str) -> SessionRow:
        """Give one session by the exact key of its row, whatever newer revisions there are."""
        with self._database.snapshot():
            return catalogue.get_session(self._database, session_id)

    def sources_of(self, sha256: str) -> list[SourceRow]:
        """List the sessions that were read from this artefact."""
        return catalogue.list_sources(self._database, bytes.fromhex(sha256))

    def create(
        self, base_id: str, fmt: str, importer_version: int, *, replaces: str | None = None
    ) -> "SqliteWriter":
        """Begin a session, its next revision, or with `replaces` a new projection of that one.

        Raises:
            StoreError: no transaction is open.
            UsageError: there is no session to replace.
        """
        self._require_transaction()
        number = next_id(self._database, ProjectionRow)
        if replaces is None:
            base_id = canonical.escape_surrogates(base_id)
            session_id, revision = catalogue.next_revision(self._database, base_id)
            row = CatalogueRow(
                session_id, base_id, revision, fmt, number, catalogue.digest_of_sources(())
            )
        else:
            old = catalogue.get_catalogue_row(self._database, replaces)
            row = msgspec.structs.replace(old, projection=number)
        projection = ProjectionRow(
            id=number,
            session_id=row.session_id,
            importer_version=importer_version,
            events=0,
            head=chain_start(row.session_id),
            first_ts_ns=None,
            last_ts_ns=None,
            summary="{}",
        )
        put_row(self._database, row, replaces=replaces is not None)
        put_row(self._database, projection)
        return self._open_writer(projection)

    def revisions(self, base_id: str) -> list[SessionRow]:
        """List every revision of one id, oldest first; empty where the id is unknown."""
        with self._database.snapshot():
            return catalogue.list_revisions(self._database, base_id)

    def set_summary(self, session_id: str, summary: dict[str, Any]) -> SessionRow:
        """Put the counts into a session's catalogue row, seal included.

        Raises:
            UsageError: there is no such session.
        """
        with self._writing():
            catalogue.put_summary(self._database, session_id, summary)
        return catalogue.get_session(self._database, session_id)

    def extend(self, session_id: str) -> "SqliteWriter":
        """Append to a stored session's current projection.

        Raises:
            StoreError: no transaction is open.
            UsageError: there is no such session.
        """
        self._require_transaction()
        return self._open_writer(catalogue.get_projection(self._database, session_id))

    def _open_writer(self, projection: ProjectionRow) -> "SqliteWriter":
        writer = SqliteWriter(self._database, self._texts, projection, self._writers)
        self._writers.append(writer)
        return writer

    def _require_transaction(self) -> None:
        if not self._database.is_in_transaction:
            raise StoreError("a session is written inside a transaction: none is open")

    def add_source(self, row: SourceRow) -> None:
        """Note that a session was read from an artefact (replaces the same role's earlier one)."""
        with self._writing():
            catalogue.put_source(self._database, row)

    # --- reading

    def events(self, session_id: str, start: int = 0) -> Iterator[Event]:
        """Stream the events of the current projection from seq `start`, each segment checked."""
        projection, chain = self._chain_of(session_id)
        return read_events(self._database, self._texts, projection, chain, start)

    def reader(self, session_id: str) -> SegmentReader:
        """Give events by seq, with a small cache of segments."""
        return SegmentReader(self._database, self._texts, *self._chain_of(session_id))

    def read_whole(self, session_id: str, max_bytes: int) -> Whole:
        """Read a session's lines at once, unless they take more than `max_bytes`.

        Raises:
            UsageError: there is no such session.
            TamperError: its rows or segments are damaged.
        """
        with self._database.snapshot():
            projection = catalogue.get_projection(self._database, session_id)
            return Whole(projection.head.hex(), read_blocks(self._database, projection, max_bytes))

    def index(self, session_id: str, n_events: int | None = None) -> SessionIndex:
        """Build the index of a session, or of its first events, by one pass over its events."""
        return build_index(session_id, lambda: islice(self.events(session_id), n_events))

    def find_recorder(self, session_id: str) -> Recorder | None:
        """Say which process records this session now."""
        return find_recorder(self._database.path, session_id)

    def _chain_of(self, session_id: str) -> tuple[ProjectionRow, list[Link]]:
        """Give a session's projection and its chain, both of one moment.

        Raises:
            UsageError: there is no such session.
            TamperError: its rows or its chain are damaged.
        """
        with self._database.snapshot():
            projection = catalogue.get_projection(self._database, session_id)
            return projection, read_chain(self._database, projection)

    def verify(self, session_id: str | None = None, head: str | None = None) -> Verification:
        """Check every digest, chain, catalogue row and artefact; with `head`, that it is there.

        Raises:
            UsageError: there is no such session.
        """
        with self._database.snapshot():  # a recorder may commit meanwhile
            if session_id is not None:
                catalogue.require_session(self._database, session_id)
            return verify_store(self._database, TextStore(self._database), session_id, head)


class SqliteWriter:
    """Appends events to one projection; see `redrive.stores.port.SessionWriter`."""

    def __init__(
        self,
        database: Database,
        texts: TextStore,
        projection: ProjectionRow,
        open_writers: "list[SqliteWriter]",
    ) -> None:
        self._database = database
        self._projection = projection
        self._segments = SegmentWriter(database, texts, projection)
        self._open_writers = open_writers

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        return self._projection.session_id

    @property
    def next_seq(self) -> int:
        """The seq that the next event must have."""
        return self._segments.next_seq

    def append(self, event: Event) -> None:
        """Take the next event; it is stored when its segment is full or the writer closes.

        Raises:
            StoreError: the event is of another session, not the next one, or the writer is closed.
        """
        if event.seq != self.next_seq or event.session_id != self.session_id:
            raise StoreError(
                f"event {event.seq} of session {event.session_id} cannot follow: "
                f"expected event {self.next_seq} of {self.session_id}"
            )
        self._require_open()
        self._segments.append(event)

    def close(self) -> SessionRow:
        """Write what is left and the catalogue row, whose summary `set_summary` fills.

        Raises:
            StoreError: the writer is closed already.
        """
        self._require_open()
        self._segments.flush()
        self._open_writers.remove(self)
        put_row(self._database, self._segments.grown(self._projection), replaces=True)
        return catalogue.get_session(self._database, self.session_id)

    def _require_open(self) -> None:
        if self not in self._open_writers:
            raise StoreError(f"the writer of {self.session_id} is closed")
