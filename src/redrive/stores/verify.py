"""Checks all that a store holds: every digest, chain, catalogue row, text and artefact.

Knows how rows, segments, texts and artefacts are covered. Must not mend anything. A change that
keeps the head is found here; a cut tail or a rewritten chain needs the head held elsewhere.

Source: DESIGN.md §3 "Store", §8 `verify`.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

from redrive.errors import StoreError, TamperError, UsageError
from redrive.stores.artefacts import open_artefact
from redrive.stores.catalogue import digest_of_sources
from redrive.stores.database import Database
from redrive.stores.growing import empty_tail, longer_tail
from redrive.stores.payloads import find_texts, unpack_envelope
from redrive.stores.policies import POLICY_TABLES
from redrive.stores.port import Fault, Verification
from redrive.stores.rows import (
    ArtefactRow,
    CatalogueRow,
    ProjectionRow,
    Row,
    SegmentRow,
    StoredEntry,
    StoredSource,
    StoredTrial,
    TailRow,
    TextRow,
    check_row,
    read_records,
)
from redrive.stores.segments import chain_start, segment_lines
from redrive.stores.texts import TextStore
from redrive.stores.trials import TRIAL_TABLES, artefacts_of, parse_entry, unpack_plan

_READ_BYTES = 1024 * 1024
_HEAD = re.compile("[0-9a-fA-F]{16,64}")
_DIGEST = re.compile("[0-9a-f]{64}")
_R = TypeVar("_R", bound=Row)
_OWNED = (CatalogueRow, ProjectionRow, StoredSource)

# What no row may be, and how many rows are it.
_STRAYS = (
    (
        "segments that belong to no session",
        "SELECT count(*) FROM segments WHERE projection NOT IN (SELECT id FROM projections)",
    ),
    (
        "projections that belong to no session",
        "SELECT count(*) FROM projections "
        "WHERE session_id NOT IN (SELECT session_id FROM sessions)",
    ),
    (
        "sources that belong to no session",
        "SELECT count(*) FROM sources WHERE session_id NOT IN (SELECT session_id FROM sessions)",
    ),
    (
        "parts that belong to no artefact",
        "SELECT count(*) FROM parts WHERE artefact NOT IN (SELECT id FROM artefacts)",
    ),
    (
        "parts behind the end of their artefact",
        "SELECT count(*) FROM parts JOIN artefacts ON id = artefact WHERE number >= parts",
    ),
    (
        "samples that were drawn from no report",
        "SELECT count(*) FROM samples WHERE report NOT IN (SELECT id FROM policy_reports)",
    ),
    (
        "ledger entries that belong to no trial",
        "SELECT count(*) FROM trial_entries WHERE trial_id NOT IN (SELECT trial_id FROM trials)",
    ),
    (
        "labels that belong to no sample",
        "SELECT count(*) FROM labels WHERE sample NOT IN (SELECT name FROM samples)",
    ),
)


def verify_store(
    database: Database, texts: TextStore, session_id: str | None, head: str | None
) -> Verification:
    """Check one session and what it rests on, or the whole store.

    Args:
        database: what to check.
        texts: the store's texts.
        session_id: an exact id; absent: everything.
        head: a digest that must be a head, now or at an earlier time, of what is checked; 16 hex
            digits of it or more.

    Returns:
        The faults, those of the store itself first, then by session and seq.

    Raises:
        UsageError: `head` is no digest.
    """
    if head is not None and not _HEAD.fullmatch(head):
        raise UsageError(
            f"{head[:80]!r} is no head: expected 16 to 64 hex digits", hint="as reports print it"
        )
    check = _Check(database, texts)
    try:
        check.run(session_id)
    except StoreError as error:  # a damaged page: what was found so far is still said
        check.fault("", None, error.message)
    wanted = "" if head is None else head.lower()
    if not any(digest.startswith(wanted) for digest in check.digests) and wanted:
        where = "the session" if session_id else "the store"
        check.fault(session_id or "", None, f"{where} has no head {head}")
    faults = sorted(check.faults, key=lambda f: (f.session_id, -1 if f.seq is None else f.seq))
    return Verification(not faults, check.checked, check.heads, tuple(faults))


class _Check:
    """What was checked and found so far.

    `text_faults` and `artefact_faults` map a digest to what is wrong with it, `None` where nothing
    is; each is looked at once, and reported by every session that rests on it.
    """

    def __init__(self, database: Database, texts: TextStore) -> None:
        self._database = database
        self._texts = texts
        self._text_faults: dict[bytes, str | None] = {}
        self._artefact_faults: dict[bytes, str | None] = {}
        self._sources: dict[str, list[StoredSource]] = {}
        self._reported: set[bytes] = set()
        self._pointed: set[tuple[str, str]] = set()
        self.checked = 0
        self.heads: dict[str, str] = {}
        self.digests: set[str] = set()
        self.faults: list[Fault] = []

    def fault(self, session_id: str, seq: int | None, fault: str) -> None:
        self.faults.append(Fault(session_id, seq, fault))

    def run(self, session_id: str | None) -> None:
        if session_id is None:
            self._check_pages()
            self._check_strays()
            for text in self._sound_rows(TextRow, None):
                self._text_fault(text.sha256)
            for artefact in self._sound_rows(ArtefactRow, None):
                self._artefact_fault(artefact.sha256)
            self._check_growing()
            self._check_trials()
        self._check_sources(session_id)
        self._check_sessions(session_id)
        for faults in (self._text_faults, self._artefact_faults):
            for digest, fault in faults.items():
                if fault is not None and digest not in self._reported:
                    self.fault("", None, fault)

    def _check_pages(self) -> None:
        for (found,) in self._database.query("PRAGMA integrity_check(20)"):
            if found != "ok":
                self.fault("", None, f"damaged pages: {found}")

    def _check_strays(self) -> None:
        for what, sql in _STRAYS:
            row = self._database.find(sql)
            if row and row[0]:
                self.fault("", None, f"{what}: {row[0]}")

    def _sound_rows(self, kind: type[_R], session_id: str | None) -> Iterator[_R]:
        """Yield the rows that match their seal; each other one is a fault."""
        where, values = ("", ()) if session_id is None else ("WHERE session_id = ?", (session_id,))
        for record in read_records(self._database, kind, where, values):
            self.checked += 1
            try:
                row = check_row(kind, record)
            except TamperError as error:
                owner = record[kind.__struct_fields__.index("session_id")] if kind in _OWNED else ""
                self.fault(str(owner), None, error.message)
                continue
            yield row

    def _check_growing(self) -> None:
        """Check the rows of each table that only grows, and that its tail chains all of them."""
        tails = {row.name: row for row in self._sound_rows(TailRow, None)}
        for kind in (*POLICY_TABLES, *TRIAL_TABLES):
            tail = empty_tail(kind)
            for record in read_records(self._database, kind, "ORDER BY id"):
                self.checked += 1
                try:
                    check_row(kind, record)
                except TamperError as error:
                    self.fault("", None, error.message)
                tail = longer_tail(tail, record[-1])
            if tails.pop(kind.table, empty_tail(kind)) != tail:
                what = f"table {kind.table} does not end as it was left: a row of it was dropped, "
                self.fault("", None, f"{what}moved, changed or added, or its tail was")
        for name in tails:
            self.fault("", None, f"tail {name} belongs to no table")

    def _check_trials(self) -> None:
        """Check that each ledger is dense, and that what its entries rest on is stored.

        A row that does not match its seal is a fault already.
        """
        expected: dict[str, int] = {}
        for row in self._sealed(StoredEntry, "ORDER BY trial_id, number"):
            number = expected.get(row.trial_id, 0)
            expected[row.trial_id] = row.number + 1
            if row.number != number:
                self.fault("", None, f"entry {number} of trial {row.trial_id} is missing")
            try:
                names = artefacts_of(parse_entry(row))
            except TamperError as error:
                self.fault("", None, error.message)
                continue
            for name in names:
                fault = self._artefact_fault(
                    bytes.fromhex(name) if _DIGEST.fullmatch(name) else b""
                )
                if fault is not None:
                    self.fault("", None, f"entry {row.number} of trial {row.trial_id}: {fault}")
        for trial in self._sealed(StoredTrial, "ORDER BY id"):
            try:
                unpack_plan(trial)
            except TamperError as error:
                self.fault("", None, error.message)

    def _sealed(self, kind: type[_R], where: str) -> Iterator[_R]:
        for record in read_records(self._database, kind, where):
            with suppress(TamperError):
                yield check_row(kind, record)

    def _check_sources(self, session_id: str | None) -> None:
        for row in self._sound_rows(StoredSource, session_id):
            self._sources.setdefault(row.session_id, []).append(row)
            fault = self._artefact_fault(row.sha256)
            if fault is not None:
                self._reported.add(row.sha256)
                self.fault(row.session_id, None, f"source {row.role}: {fault}")

    def _check_sessions(self, session_id: str | None) -> None:
        shown = {row.projection: row for row in self._sound_rows(CatalogueRow, session_id)}
        for catalogue in shown.values():
            sources = sorted(self._sources.get(catalogue.session_id, []), key=lambda s: s.role)
            if digest_of_sources(sources) != catalogue.sources:
                what = "its sources are not those that it was read from"
                self.fault(catalogue.session_id, None, what)
        for row in self._sound_rows(ProjectionRow, session_id):
            self.digests.add(row.head.hex())
            if row.id in shown and shown[row.id].session_id == row.session_id:
                self.heads[row.session_id] = row.head.hex()
                del shown[row.id]
            self._check_segments(row)
        for catalogue in shown.values():
            what = f"its projection {catalogue.projection} is missing, damaged or another's"
            self.fault(catalogue.session_id, None, what)

    def _check_segments(self, projection: ProjectionRow) -> None:
        """Check every segment by itself, and that together they are one chain up to the head."""
        session_id = projection.session_id
        seq, head = 0, chain_start(session_id)
        records = read_records(
            self._database, SegmentRow, "WHERE projection = ? ORDER BY first_seq", (projection.id,)
        )
        for record in records:
            self.checked += 1
            try:
                row = check_row(SegmentRow, record)
            except TamperError as error:
                first = record[1] if isinstance(record[1], int) else seq
                self.fault(session_id, first, error.message)
                seq, head = _columns_after(record, seq, head)
                continue
            if row.first_seq != seq or row.prev != head:
                self.fault(session_id, seq, "the chain of segments breaks here")
            self.digests.add(row.digest.hex())
            self._check_lines(session_id, row)
            seq, head = row.first_seq + row.events, row.digest
        if (seq, head) != (projection.events, projection.head):
            self.fault(session_id, seq, "the chain of segments does not end at the session's head")

    def _check_lines(self, session_id: str, row: SegmentRow) -> None:
        try:
            segment = segment_lines(session_id, row)
            for line in segment.lines:
                self._check_artefact(session_id, line)
                if not segment.is_plain:
                    self._check_texts(session_id, line)
        except TamperError as error:
            self.fault(session_id, row.first_seq, error.message)

    def _check_artefact(self, session_id: str, line: bytes) -> None:
        """Check the bytes that an event points at; those of a session's sources were looked at."""
        event = unpack_envelope(line)
        name = event.source.artefact
        if not name or (session_id, name) in self._pointed:
            return
        self._pointed.add((session_id, name))
        digest = bytes.fromhex(name) if _DIGEST.fullmatch(name) else b""
        fault = self._artefact_fault(digest)
        if fault is not None and digest not in self._reported:
            self._reported.add(digest)
            self.fault(session_id, event.seq, fault)

    def _check_texts(self, session_id: str, line: bytes) -> None:
        found = find_texts(line)
        if found is None:
            return
        event, refs = found
        for ref in refs:
            digest = bytes.fromhex(ref.sha256)
            fault = self._text_fault(digest)
            if fault is not None:
                self._reported.add(digest)
                self.fault(session_id, event.seq, fault)

    def _text_fault(self, digest: bytes) -> str | None:
        return _look_once(self._text_faults, digest, lambda: self._texts.get(digest))

    def _artefact_fault(self, digest: bytes) -> str | None:
        return _look_once(
            self._artefact_faults, digest, lambda: _read_artefact(self._database, digest)
        )


def _look_once(
    known: dict[bytes, str | None], digest: bytes, look: Callable[[], object]
) -> str | None:
    """Say what is wrong with the thing of this digest, from `known` or by looking at it."""
    if digest not in known:
        try:
            look()
        except (TamperError, StoreError) as error:
            known[digest] = error.message
        else:
            known[digest] = None
    return known[digest]


def _read_artefact(database: Database, digest: bytes) -> None:
    with open_artefact(database, digest) as stream:
        while stream.read(_READ_BYTES):
            pass


def _columns_after(record: tuple[object, ...], seq: int, head: bytes) -> tuple[int, bytes]:
    """Say where the chain goes on behind a damaged segment, as far as its columns tell."""
    columns = dict(zip((*SegmentRow.__struct_fields__, "seal"), record, strict=True))
    first, events, digest = columns["first_seq"], columns["events"], columns["digest"]
    if isinstance(first, int) and isinstance(events, int) and isinstance(digest, bytes):
        return first + events, digest
    return seq, head
