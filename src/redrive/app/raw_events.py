"""Gives a session's events as JSON texts, and its source as bytes, both as they were recorded.

Must not know verbs or a terminal. Holds one event, or one part of a source, at a time.

Source: DESIGN.md §10 "`cat` prints JSON lines".
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Raw

from redrive.errors import UsageError, quote
from redrive.record.event import Event, Kind, Source
from redrive.reports.times import time_or_none
from redrive.stores.port import SessionRow, Store

_PART_BYTES = 1024 * 1024


class SourceView(msgspec.Struct, frozen=True):
    """Where an event's bytes lie."""

    artefact: str
    offset: int
    length: int


class EventView(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as `cat` prints it: the envelope, its time as RFC 3339, its payload as stored."""

    id: str
    session_id: str
    seq: int
    kind: Kind
    node_id: str
    source: SourceView
    payload: Raw
    parent_id: str | None = None
    actor: str = ""
    ts: str | None = None
    call_id: str | None = None
    group: str | None = None
    supersedes: str | None = None
    flags: tuple[str, ...] = ()


def parse_kinds(names: Sequence[str]) -> frozenset[Kind]:
    """Read the kinds to keep; all of them where none is named.

    Raises:
        UsageError: a name is no kind.
    """
    known = {kind.value: kind for kind in Kind}
    for name in names:
        if name not in known:
            raise UsageError(f"no event kind {quote(name)}", hint=f"kinds: {', '.join(known)}")
    return frozenset(known[name] for name in names) if names else frozenset(Kind)


def check_events(store: Store, row: SessionRow) -> None:
    """Read every event once, so that nothing is printed of a session that is damaged further on.

    Raises:
        TamperError: a stored event does not match its digest.
    """
    for _ in store.events(row.session_id):
        pass


def dump_events(store: Store, row: SessionRow, kinds: frozenset[Kind]) -> Iterator[bytes]:
    """Yield each event as one JSON text, in seq order.

    Raises:
        TamperError: before the first event, where any stored event does not match its digest.
    """
    check_events(store, row)
    for event in store.events(row.session_id):
        if event.kind in kinds:
            yield dump_event(event)


def dump_event(event: Event) -> bytes:
    """Write one event as JSON; lone surrogates stay escapes."""
    return msgspec.json.encode(
        EventView(
            id=event.id,
            session_id=event.session_id,
            seq=event.seq,
            kind=event.kind,
            node_id=event.node_id,
            source=_view_source(event.source),
            payload=_plain_payload(event.payload),
            parent_id=event.parent_id,
            actor=event.actor,
            ts=time_or_none(event.ts_ns),
            call_id=event.call_id,
            group=event.group,
            supersedes=event.supersedes,
            flags=event.flags,
        )
    )


def _view_source(source: Source) -> SourceView:
    return SourceView(source.artefact, source.offset, source.length)


def _plain_payload(payload: Raw) -> Raw:
    """Give a payload as JSON; one with a lone surrogate is stored as the text of its JSON."""
    data = bytes(payload)
    return Raw(msgspec.json.decode(data, type=str)) if data[:1] == b'"' else payload


def read_source(store: Store, row: SessionRow) -> Iterator[bytes]:
    """Yield the session's main source, byte for byte, in parts.

    Raises:
        UsageError: the session was stored without a source.
        TamperError: a part does not match its digest.
    """
    if not row.sources:
        raise UsageError(f"{row.session_id} has no stored source")
    mains = [digest for role, digest, _ in row.sources if role == "main"]
    digest = mains[0] if mains else row.sources[0][1]
    with store.open_artefact(digest) as file:
        while part := file.read(_PART_BYTES):
            yield part
