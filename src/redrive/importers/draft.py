"""What an importer gives: drafts of events, and a tally of the file as it lies.

Knows the event kinds. Must not know stores, sequence numbers or session revisions: the import
pipeline (`redrive.importers.pipeline`) adds those.

Source: DESIGN.md §3 "Names", §8 `import`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

import msgspec

from redrive.record.event import (
    MAIN_ACTOR,
    Damage,
    Event,
    Kind,
    Payload,
    Source,
    dump_payload,
)


class Draft(msgspec.Struct, frozen=True, gc=False):
    """An event before it has a place in a store.

    Attributes:
        session: the format's own session id, without prefix.
        id: unique in the session for one projection of one source.
        kind: event kind.
        payload: the struct of that kind.
        offset: where the record begins in the source, in bytes.
        length: the record's length in bytes.
        node_id: DAG node; empty for a fact outside the DAG.
        parent_id: parent node; absent at a root.
        actor: `main` or a sub-agent.
        ts_ns: UTC nanoseconds.
        call_id: on calls, results and permissions.
        group: the provider's response id, on requests, responses and calls.
        supersedes: id of a draft that this one replaces: an earlier one of this source, or one that
            a companion source of the session may have given, before or after.
        flags: see `Event.flags`.
    """

    session: str
    id: str
    kind: Kind
    payload: Payload
    offset: int
    length: int
    node_id: str = ""
    parent_id: str | None = None
    actor: str = MAIN_ACTOR
    ts_ns: int | None = None
    call_id: str | None = None
    group: str | None = None
    supersedes: str | None = None
    flags: tuple[str, ...] = ()


def event_of(draft: Draft, session_id: str, seq: int, artefact: str) -> Event:
    """Give a draft its place: the event that a store keeps.

    Args:
        draft: what the importer gave.
        session_id: the id that the session has in the store.
        seq: its order in the session.
        artefact: sha256 of the source, hex.
    """
    return Event(
        id=draft.id,
        session_id=session_id,
        seq=seq,
        kind=draft.kind,
        node_id=draft.node_id,
        source=Source(artefact, draft.offset, draft.length),
        payload=dump_payload(draft.payload),
        parent_id=draft.parent_id,
        actor=draft.actor,
        ts_ns=draft.ts_ns,
        call_id=draft.call_id,
        group=draft.group,
        supersedes=draft.supersedes,
        flags=draft.flags,
    )


@dataclass(slots=True)
class FileTally:
    """Counts of one file as it lies: strictly parsed records only, before any joining.

    `called` and `answered` are id sets over the file; a missing id is `None`, one id. The
    definitions per format are those of the counts that tests compare with. `has_opening` says that
    a record of its own begins the session, which is then one even if nothing but notes follows.
    """

    records: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    tool_results: int = 0
    branches: int = 1
    called: set[str | None] = field(default_factory=set)
    answered: set[str | None] = field(default_factory=set)
    damage: list[Damage] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    extra: dict[str, int | str] = field(default_factory=dict)
    has_opening: bool = False

    @property
    def orphan_calls(self) -> int:
        """Ids called and never answered."""
        return len(self.called - self.answered)

    @property
    def orphan_results(self) -> int:
        """Ids answered and never called."""
        return len(self.answered - self.called)


class SourceFile(Protocol):
    """One file to import, as it was when it was opened."""

    @property
    def path(self) -> str:
        """Where it lies, as the user named it."""
        ...

    @property
    def size(self) -> int:
        """Bytes that count; a file that grows meanwhile is read up to here."""
        ...

    @property
    def sha256(self) -> str:
        """Digest of these bytes, hex."""
        ...

    def head(self, size: int = 65536) -> bytes:
        """Give the first bytes."""
        ...

    def open(self) -> BinaryIO:
        """Open a fresh stream over exactly `size` bytes."""
        ...


class Importer(Protocol):
    """Projects one recorded format to drafts; same bytes and same version, same drafts."""

    name: str
    version: int

    def sniff(self, source: SourceFile) -> int:
        """Say how sure it is, 0 (no) to 100, from content first and the name last."""
        ...

    def role(self, source: SourceFile) -> str:
        """Name the source's part in its session: `main`, or a companion such as `logs`."""
        ...

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        """Yield the drafts in source order and fill the tally on the way.

        Damage never stops it: each bad stretch is a `damage` draft and an entry of the tally.
        """
        ...
