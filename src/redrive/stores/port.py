"""What a store promises; `redrive.stores.sqlite` keeps it in one SQLite file.

Knows events, sessions and artefacts as values. Must not know formats, verbs or closure.

Source: DESIGN.md §3 "Store" and "Names".
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

import msgspec

from redrive.record.event import Event
from redrive.record.session import EventReader, SessionIndex


class SessionRow(msgspec.Struct, frozen=True):
    """One stored session revision, as the catalogue knows it.

    Attributes:
        session_id: FORMAT:ID, with `@N` where it is revision N > 1. Also the key for every read.
        base_id: without `@N`.
        revision: from 1.
        format: importer name.
        importer_version: of the current projection.
        n_events: events of the current projection.
        head: digest of the last segment, which covers every event before it.
        first_ts_ns, last_ts_ns: oldest and newest event time, where recorded.
        summary: what the import pipeline counted (JSON; see `redrive.record.summary`).
        sources: (role, sha256, size in bytes) of each source.
    """

    session_id: str
    base_id: str
    revision: int
    format: str
    importer_version: int
    n_events: int
    head: str
    first_ts_ns: int | None = None
    last_ts_ns: int | None = None
    summary: dict[str, Any] = {}
    sources: tuple[tuple[str, str, int], ...] = ()


class SourceRow(msgspec.Struct, frozen=True):
    """One stored source of one session: artefact, its role, how it was read, and its counts."""

    session_id: str
    role: str
    sha256: str
    size: int
    importer: str
    importer_version: int
    report: dict[str, Any] = {}


class Fault(msgspec.Struct, frozen=True):
    """What `verify` found: the session (empty: the store itself), first seq it covers, and what."""

    session_id: str
    seq: int | None
    fault: str


class Verification(msgspec.Struct, frozen=True):
    """The result of a check of digests and chains; `heads` maps session → head digest."""

    is_ok: bool
    checked: int
    heads: dict[str, str]
    faults: tuple[Fault, ...]


class SessionWriter(Protocol):
    """Appends events to one session inside a transaction."""

    @property
    def session_id(self) -> str:
        """The id that the session has in the store."""
        ...

    @property
    def next_seq(self) -> int:
        """The seq that the next event must have."""
        ...

    def append(self, event: Event) -> None:
        """Take the next event; it is stored when its segment is full or the writer closes."""
        ...

    def close(self) -> SessionRow:
        """Write what is left and the catalogue row, whose summary `set_summary` fills."""
        ...


class Store(Protocol):
    """Where sessions lie.

    Errors: `StoreError` for a store that is newer, locked, damaged or read-only; `TamperError` as
    soon as a read meets a digest that does not match, so that no verb answers from it; `UsageError`
    for an id or prefix that is unknown or ambiguous.
    """

    def close(self) -> None:
        """Release the store."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Make everything inside one whole: all of it is stored, or nothing."""
        ...

    # --- artefacts: the verbatim sources
    def has_artefact(self, sha256: str) -> bool:
        """Say whether this source is stored."""
        ...

    def put_artefact(self, sha256: str, size: int, data: BinaryIO, extends: str | None) -> None:
        """Store a source verbatim; with `extends`, `data` is only what follows that artefact."""
        ...

    def open_artefact(self, sha256: str) -> BinaryIO:
        """Open a stored source as a stream; its digest is checked when it was read to its end."""
        ...

    def artefact_sizes(self) -> dict[int, list[str]]:
        """Map size in bytes → digests, to find which stored source a grown file begins with."""
        ...

    # --- sessions
    def sessions(self) -> Iterator[SessionRow]:
        """List every revision, oldest first event first."""
        ...

    def list_sound(self) -> tuple[list[SessionRow], list[Fault]]:
        """List every revision whose rows are sound, and what is wrong with the others."""
        ...

    def get_session(self, name: str) -> SessionRow:
        """Find one session by id (the newest revision, or `ID@N`) or unique prefix."""
        ...

    def get_row(self, session_id: str) -> SessionRow:
        """Give one session by the exact key of its row, whatever newer revisions there are."""
        ...

    def sources_of(self, sha256: str) -> list[SourceRow]:
        """List the sessions that were read from this artefact."""
        ...

    def create(
        self, base_id: str, fmt: str, importer_version: int, *, replaces: str | None = None
    ) -> SessionWriter:
        """Begin a session, or its next revision if `base_id` exists.

        With `replaces`, begin a new projection of that session id instead; it becomes current, the
        old projection stays.
        """
        ...

    def revisions(self, base_id: str) -> list[SessionRow]:
        """List every revision of one id, oldest first; empty where the id is unknown."""
        ...

    def set_summary(self, session_id: str, summary: dict[str, Any]) -> SessionRow:
        """Put the counts into a session's catalogue row, digest included."""
        ...

    def extend(self, session_id: str) -> SessionWriter:
        """Append to a stored session's current projection."""
        ...

    def add_source(self, row: SourceRow) -> None:
        """Note that a session was read from an artefact (replaces the same role's earlier one)."""
        ...

    # --- reading
    def events(self, session_id: str, start: int = 0) -> Iterator[Event]:
        """Stream the events of the current projection from seq `start`, each segment checked."""
        ...

    def reader(self, session_id: str) -> EventReader:
        """Give events by seq, with a small cache of segments."""
        ...

    def index(self, session_id: str) -> SessionIndex:
        """Build the session's index by one pass over its events."""
        ...

    def verify(self, session_id: str | None = None, head: str | None = None) -> Verification:
        """Check every digest, chain, catalogue row and artefact; with `head`, that it is there."""
        ...
