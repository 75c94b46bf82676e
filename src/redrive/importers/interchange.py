"""Reads the interchange line format: the documented way in for any framework without an importer.

Knows ids, parents and copies of lines, and what a file counts. What a line holds is in
`interchange_lines`, what it becomes in `interchange_parts`. Must not know stores.

Source: DESIGN.md §8 "Interchange", §10.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.interchange_lines import SHAPES, Line, SessionLine
from redrive.importers.interchange_parts import Part, parts_of
from redrive.importers.lines import read_head, read_records
from redrive.importers.timestamps import parse_rfc3339
from redrive.importers.typed_lines import Placed, read_typed_lines
from redrive.record.decisions import TOOL_CALLS
from redrive.record.event import MAIN_ACTOR, Damage, Kind


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
        reading = _Reading(tally, _session_name(source))
        with source.open() as file:
            for item in read_typed_lines(file, SHAPES):
                if isinstance(item, Damage):
                    yield reading.damage(item)
                else:
                    yield from reading.record(item)
        tally.branches = 1 + sum(count - 1 for count in reading.children.values() if count > 1)


def _confidence(value: Mapping[str, Any]) -> int:
    kind = get_field(value, "type", str)
    if kind == "session" and "payload" not in value:
        return 95 if isinstance(value.get("id"), str) and "task" in value else 40
    is_line = kind in SHAPES.tags and isinstance(value.get("id"), str)
    return 60 if is_line and "message" not in value and "payload" not in value else 0


def _session_name(source: SourceFile) -> str:
    """Find the session's own id; without one, 16 hex digits of the first record's hash."""
    with source.open() as file:
        for item in read_records(file):
            if isinstance(item, Damage):
                continue
            if item.value.get("type") == "session" and isinstance(item.value.get("id"), str):
                return canonical.safe_text(item.value["id"])
            file.seek(item.offset)
            return canonical.digest(file.read(item.length))[:16]
    return source.sha256[:16]


@dataclass(slots=True)
class _Reading:
    """What is remembered from line to line: a few bytes per line."""

    tally: FileTally
    session: str
    decisions: str = TOOL_CALLS
    children: dict[str, int] = field(default_factory=dict)
    seen: dict[str, tuple[bool, int]] = field(default_factory=dict)

    def damage(self, item: Damage) -> Draft:
        """Turn unreadable bytes into a draft and an entry of the report."""
        self.tally.damage.append(item)
        name = f"damage:{item.offset}"
        return Draft(self.session, name, Kind.DAMAGE, item, item.offset, item.bytes)

    def record(self, placed: Placed[Line]) -> Sequence[Draft]:
        """Turn one line into its drafts."""
        if isinstance(placed.line, SessionLine):
            self.decisions = placed.line.decisions or TOOL_CALLS
            self.tally.has_opening = True
        parts = parts_of(placed, self.decisions)
        if placed.is_strict:
            self.tally.records += 1
            self._count(placed.line, parts)
        return self._drafts(placed, parts)

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

    def _drafts(self, placed: Placed[Line], parts: Sequence[Part]) -> Sequence[Draft]:
        line = placed.line
        node = canonical.safe_text(line.id) if line.id else f"line:{placed.number}"
        parent = None if line.parent is None else canonical.safe_text(line.parent)
        name, superseded = node, _NOTHING
        if node in self.seen:
            earlier = self._replace(node, has_parent=parent is not None, n_parts=len(parts))
            if earlier is None:
                self.tally.lost.append(f"line {placed.number}: a further copy of id {node!r}")
                return ()
            name, superseded = f"{node}~2", earlier
        else:
            self.seen[node] = (parent is not None, len(parts))
        session, offset, length, flags = self.session, placed.offset, placed.length, placed.flags
        actor = canonical.safe_text(line.actor) if line.actor else MAIN_ACTOR
        ts_ns = parse_rfc3339(line.ts)
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
        return drafts

    def _replace(self, node: str, *, has_parent: bool, n_parts: int) -> Mapping[int, str] | None:
        """Decide on a line whose id was seen: a copy with a parent wins.

        Returns:
            Part number → id of the draft that it replaces; `None` where the earlier line stays.
        """
        had_parent, n_earlier = self.seen[node]
        if had_parent or not has_parent or n_parts < n_earlier:
            return None
        self.seen[node] = (True, n_parts)
        return {1: node} | {number: f"{node}/{number}" for number in range(2, n_earlier + 1)}


_NOTHING: Mapping[int, str] = {}
_CALL, _RESULT, _RESPONSE = Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.MODEL_RESPONSE
_USER, _STARTED = Kind.USER_MESSAGE, Kind.SESSION_STARTED


IMPORTER = InterchangeImporter()
