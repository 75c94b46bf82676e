"""Reads the interchange line format: the documented way in for any framework without an importer.

Knows ids, parents and copies of lines, and what a file counts. What a line holds is in
`interchange_lines`, what it becomes in `interchange_parts`. Must not know stores.

Source: DESIGN.md §8 "Interchange", §10.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

from msgspec.structs import replace

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.interchange_faults import find_faults
from redrive.importers.interchange_lines import (
    PLACING,
    SHAPES,
    DecisionLine,
    DerivedLine,
    Line,
    OtherLine,
    ReadLine,
    ResultLine,
    SessionLine,
)
from redrive.importers.interchange_parts import Part, parts_of
from redrive.importers.lines import read_head, read_records
from redrive.importers.timestamps import parse_rfc3339
from redrive.importers.typed_lines import Fault, Placed, members_of, read_typed_lines
from redrive.record.decisions import JSON_CONTENT, TOOL_CALLS
from redrive.record.event import FLAG_MALFORMED, FLAG_NO_ANSWER, MAIN_ACTOR, Damage, Kind


class InterchangeImporter:
    """Projects interchange lines to drafts."""

    name = "interchange"
    version = 1

    def sniff(self, source: SourceFile) -> int:
        """Claim files whose first object is a `session` line, or any known line with an `id`."""
        objects = read_head(source)
        return _confidence(objects[0]) if objects else 0

    def role(self, source: SourceFile) -> str:  # noqa: ARG002 - the protocol's signature
        """Give `main`: a session in this format is one file."""
        return "main"

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        """Yield the drafts of one file, in file order."""
        with source.open() as file, source.open() as again:
            reading = _Reading(tally, _session_name(source), again)
            for item in read_typed_lines(file, SHAPES):
                if isinstance(item, Damage):
                    yield reading.damage(item)
                else:
                    yield from reading.record(item)
        yield from reading.finish()
        tally.branches = 1 + sum(count - 1 for count in reading.children.values() if count > 1)


def _confidence(value: Mapping[str, Any]) -> int:
    kind = get_field(value, "type", str)
    if kind == "session" and "payload" not in value:
        return 95 if _is_id(value.get("id")) and "task" in value else 40
    is_line = kind in SHAPES.tags and _is_id(value.get("id"))
    return 60 if is_line and "message" not in value and "payload" not in value else 0


def _is_id(value: object) -> bool:
    return type(value) in (str, int)


def _session_name(source: SourceFile) -> str:
    """Find the session's own id; without one, 16 hex digits of the first record's hash."""
    with source.open() as file:
        for item in read_records(file):
            if isinstance(item, Damage):
                continue
            if item.value.get("type") == "session" and _is_id(item.value.get("id")):
                return canonical.safe_text(str(item.value["id"]))
            file.seek(item.offset)
            return canonical.digest(file.read(item.length))[:16]
    return source.sha256[:16]


class _Seen(NamedTuple):
    """Where the line lies that an id was first read from, and its parent."""

    offset: int
    length: int
    parent: str | None
    n_parts: int


@dataclass(slots=True)
class _Reading:
    """What is remembered from line to line: about 200 bytes per line.

    `again` is a second stream over the file, in which an earlier line is looked up where its id
    comes again.
    """

    tally: FileTally
    session: str
    again: BinaryIO
    decisions: str = TOOL_CALLS
    children: dict[str, int] = field(default_factory=dict)
    seen: dict[str, _Seen] = field(default_factory=dict)
    opening: bytes | None = None
    waiting: list[Placed[Line]] = field(default_factory=list)

    def finish(self) -> Iterator[Draft]:
        """Tell of reads and derived values below a line that never came: no step holds them."""
        for placed in self.waiting:
            parent = canonical.safe_text(placed.line.parent or "")
            if parent not in self.seen:
                yield self._refuse(placed, f"no line has the parent's id {parent!r}", "hanging")

    def damage(self, item: Damage, word: str = "damage") -> Draft:
        """Turn unreadable bytes into a draft and an entry of the report."""
        self.tally.damage.append(item)
        name = f"{word}:{item.offset}"
        return Draft(self.session, name, Kind.DAMAGE, item, item.offset, item.bytes)

    def record(self, placed: Placed[Line]) -> Sequence[Draft]:
        """Turn one line into its drafts."""
        line, faults = placed.line, find_faults(placed)
        if placed.is_strict:
            self.tally.records += 1
        if isinstance(line, OtherLine):
            return (self._refuse(placed, _unknown_type(line.type)),)
        doubts: Sequence[str] = ()
        if isinstance(line, SessionLine):
            if self.opening is not None:
                return self._further_session(placed)
            self._open(line, placed)
        if faults:
            unplaced = [str(one) for one in faults if one.field in _PLACING]
            if unplaced and not isinstance(line, SessionLine):
                return (self._refuse(placed, "; ".join(unplaced)),)
            doubts, faults = self._weigh(placed, faults)
        ts_ns = parse_rfc3339(line.ts)
        if ts_ns is None and line.ts is not None:
            doubts = (*doubts, "ts is no time")
        parts = parts_of(placed, self.decisions)
        if placed.is_strict:
            self._count(line, parts)
        drafts = self._drafts(placed, parts, ts_ns, is_malformed=bool(faults))
        return [*drafts, self._refuse(placed, "; ".join(doubts))] if doubts else drafts

    def _open(self, line: SessionLine, placed: Placed[Line]) -> None:
        self.opening = placed.data
        self.tally.has_opening = True
        if line.decisions == JSON_CONTENT:
            self.decisions = JSON_CONTENT

    def _further_session(self, placed: Placed[Line]) -> Sequence[Draft]:
        """Leave out a session line that is not the first; if it says something else, tell."""
        if placed.data != self.opening:
            return (self._refuse(placed, "a second session line"),)
        self.tally.lost.append(f"line {placed.number}: a further copy of the session line")
        return ()

    def _refuse(self, placed: Placed[Line], reason: str, word: str = "fault") -> Draft:
        """Say that what a line holds, or a part of it, is unknown."""
        where = (placed.number, placed.offset, placed.length)
        return self.damage(Damage(*where, reason[:_REASON_CHARS]), word)

    def _weigh(
        self, placed: Placed[Line], faults: list[Fault]
    ) -> tuple[Sequence[str], list[Fault]]:
        """Say which faults of a line are damage, and which its step tells; these are told here too.

        An odd time may have made another line the head.
        """
        if not isinstance(placed.line, _OF_A_STEP):
            return [f"field {one}" for one in faults], []
        own = [one for one in faults if one.field != "ts"]
        self.tally.lost += [f"line {placed.number}: field {one}" for one in own[:_TOLD]]
        return [str(one) for one in faults if one.field == "ts"], own

    def _count(self, line: Line, parts: Sequence[Part]) -> None:
        tally = self.tally
        is_message = False
        for kind, _, call_id in parts:
            if kind is _CALL:
                tally.tool_calls += 1
                tally.called.add(call_id)
            elif kind is _RESULT:
                tally.tool_results += 1
                tally.answered.add(call_id)
            elif kind is _RESPONSE:
                tally.model_calls += 1
                is_message = True
            elif kind is _USER:
                is_message = True
        if is_message and line.parent is not None:
            self.children[line.parent] = self.children.get(line.parent, 0) + 1

    def _drafts(
        self,
        placed: Placed[Line],
        parts: Sequence[Part],
        ts_ns: int | None,
        *,
        is_malformed: bool,
    ) -> Sequence[Draft]:
        line = placed.line
        node = canonical.safe_text(line.id) if line.id else f"line:{placed.number}"
        parent = None if line.parent is None else canonical.safe_text(line.parent)
        name, superseded = node, _NOTHING
        seen = _Seen(placed.offset, placed.length, parent, len(parts))
        earlier = self.seen.setdefault(node, seen)
        if earlier is not seen:
            if is_malformed or not self._is_copy(placed, parent, earlier):
                return (self._refuse(placed, f"another line with id {node!r}"),)
            if earlier.parent is not None or parent is None:
                self.tally.lost.append(f"line {placed.number}: a further copy of id {node!r}")
                return ()
            self.seen[node] = seen
            name, superseded = f"{node}~2", _ids_of(node, earlier.n_parts)
        if parent is not None and parent not in self.seen and isinstance(line, _ATTACHED):
            self.waiting.append(placed)
        session, offset, length = self.session, placed.offset, placed.length
        flags = (*placed.flags, FLAG_MALFORMED) if is_malformed else placed.flags
        actor = canonical.safe_text(line.actor) if line.actor else MAIN_ACTOR
        drafts = []
        for number, (kind, payload, call_id) in enumerate(parts, start=1):
            draft = Draft(
                session=session,
                id=name if number == 1 else f"{name}/{number}",
                kind=kind,
                payload=payload,
                offset=offset,
                length=length,
                node_id="" if kind is _STARTED else node,
                parent_id=parent,
                actor=actor,
                ts_ns=ts_ns,
                call_id=None if call_id is None else canonical.safe_text(call_id),
                supersedes=superseded.get(number),
                flags=flags,
            )
            drafts.append(draft)
        if isinstance(line, DecisionLine) and not line.is_answered:
            drafts[1] = replace(drafts[1], flags=(*flags, FLAG_NO_ANSWER))
        return drafts

    def _is_copy(self, placed: Placed[Line], parent: str | None, earlier: _Seen) -> bool:
        """Say whether a line is an earlier one again, with the same parent or one of them without.

        Two lines of one id that say different things are not one fact: neither is known to hold.
        """
        if parent is not None and earlier.parent is not None and parent != earlier.parent:
            return False
        self.again.seek(earlier.offset)
        try:
            before = dict(members_of(self.again.read(earlier.length)))
        except ValueError:  # it was recovered out of bytes that are no JSON as they lie
            return False
        members = dict(members_of(placed.data))
        before.pop("parent", None)
        members.pop("parent", None)
        return before == members


def _unknown_type(name: object) -> str:
    return "no line type" if name in ("", None) else f"unknown line type {str(name)[:60]!r}"


def _ids_of(node: str, n_parts: int) -> Mapping[int, str]:
    """Give part number → draft id of a line."""
    return {1: node} | {number: f"{node}/{number}" for number in range(2, n_parts + 1)}


_ATTACHED = (ReadLine, DerivedLine)
_OF_A_STEP = (DecisionLine, ResultLine, ReadLine, DerivedLine)
_REASON_CHARS = 400
_TOLD = 20
_PLACING = PLACING | {"type"}
_NOTHING: Mapping[int, str] = {}
_CALL, _RESULT, _RESPONSE = Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.MODEL_RESPONSE
_USER, _STARTED = Kind.USER_MESSAGE, Kind.SESSION_STARTED


IMPORTER = InterchangeImporter()
