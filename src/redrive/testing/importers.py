"""Holds an importer to what every importer promises, on one file and on damaged copies of it.

Knows drafts, tallies and the index that is built from them. Must not know any format.

Source: DESIGN.md §3; `docs/write-an-importer.md`.
"""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from redrive import canonical
from redrive.importers.draft import Draft, FileTally, Importer, event_of
from redrive.importers.lines import Record, read_records
from redrive.record.event import Kind, dump_payload, payload_of, payload_type
from redrive.record.session import build_index
from redrive.record.trajectory import build_trajectory

MAIN_ROLE = "main"
_MUTATED_BYTES = 1024 * 1024
_CALL_KINDS = frozenset({Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.TOOL_PERMISSION, Kind.CUSTOM})
_GROUP_KINDS = frozenset({Kind.MODEL_REQUEST, Kind.MODEL_RESPONSE, Kind.TOOL_CALL})
_INT64 = range(-(2**63), 2**63)


class ConformanceError(AssertionError):
    """An importer broke a promise; the message names the importer, the file and the promise."""


class MemorySource(msgspec.Struct, frozen=True):
    """A source whose bytes are held in memory; satisfies `SourceFile`."""

    path: str
    data: bytes

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.data)

    @property
    def sha256(self) -> str:
        """Digest of the bytes, hex."""
        return hashlib.sha256(self.data).hexdigest()

    def head(self, size: int = 65536) -> bytes:
        """Give the first bytes."""
        return self.data[:size]

    def open(self) -> BinaryIO:
        """Open a fresh stream."""
        return io.BytesIO(self.data)


def check_importer(
    importer: Importer,
    path: str | Path,
    *,
    records_are_lines: bool = False,
    n_mutations: int = 64,
) -> None:
    """Check an importer on one file of its format, and on damaged copies of it.

    Args:
        importer: what is checked.
        path: a file that it claims.
        records_are_lines: whether the format is one JSON object per line; `tally.records` must then
            be the number of lines that are exactly one object.
        n_mutations: how many damaged copies to try; the same ones each time. Of a file beyond
            1 MiB only that much is damaged.

    Raises:
        ConformanceError: the first promise that is broken. On a damaged copy the message holds its
            number.

    Cost: 2 projections of the file and of each copy.
    """
    data = Path(path).read_bytes()
    whole = MemorySource(str(path), data)
    where = f"{importer.name} on {path}"
    _require(1 <= importer.sniff(whole) <= 100, where, "sniff() does not claim the file")
    _check_source(importer, whole, where, records_are_lines=records_are_lines)
    for number, mutated in enumerate(mutations(data[:_MUTATED_BYTES], n_mutations), start=1):
        source = MemorySource(str(path), mutated)
        _check_source(
            importer, source, f"{where}, damaged copy {number}", records_are_lines=records_are_lines
        )


def _require(condition: object, where: str, promise: str) -> None:
    if not condition:
        raise ConformanceError(f"{where}: {promise}")


def _check_source(
    importer: Importer, source: MemorySource, where: str, *, records_are_lines: bool
) -> None:
    try:
        confidence, role = importer.sniff(source), importer.role(source)
        drafts, tally = _project(importer, source)
        again, tally_again = _project(importer, source)
    except Exception as error:
        raise ConformanceError(f"{where}: raised {type(error).__name__}: {error}") from error
    _require(0 <= confidence <= 100, where, f"sniff() gives {confidence}, not 0 to 100")
    _require(role, where, "role() gives an empty text")
    _require(drafts == again, where, "the same bytes gave other drafts the second time")
    _require(tally == tally_again, where, "the same bytes gave another tally the second time")
    _check_damage(drafts, tally, where)
    for draft in drafts:
        _check_draft(draft, source.size, f"{where}, draft {draft.id!r}")
    _check_ids(drafts, where, is_companion=role != MAIN_ROLE)
    _check_sessions(drafts, where)
    if records_are_lines:
        n_lines = count_strict_lines(source)
        found = f"tally.records is {tally.records} for {n_lines} strict lines"
        _require(tally.records == n_lines, where, found)


def _project(importer: Importer, source: MemorySource) -> tuple[list[Draft], FileTally]:
    tally = FileTally()
    return list(importer.project(source, tally)), tally


def _check_damage(drafts: list[Draft], tally: FileTally, where: str) -> None:
    """Check that each bad stretch is told twice; a file without any session gives no drafts."""
    told = [draft.payload for draft in drafts if draft.kind is Kind.DAMAGE]
    is_told = told == tally.damage or not drafts
    _require(is_told, where, "damage drafts and tally.damage differ")


def _check_draft(draft: Draft, size: int, where: str) -> None:
    wanted = payload_type(draft.kind)
    _require(type(draft.payload) is wanted, where, f"payload is no {wanted.__name__}")
    is_inside = 0 <= draft.offset <= draft.offset + draft.length <= size
    _require(is_inside, where, f"bytes {draft.offset}+{draft.length} lie outside {size} bytes")
    _require(draft.session and draft.id, where, "session and id must not be empty")
    for name in ("session", "id", "node_id", "parent_id", "actor", "call_id", "group"):
        _require(_is_utf8(getattr(draft, name)), where, f"{name} holds a lone surrogate")
    _require(draft.ts_ns is None or draft.ts_ns in _INT64, where, "ts_ns is beyond 64 bits")
    has_node = bool(draft.node_id)
    _require(has_node or draft.parent_id is None, where, "a parent_id without a node_id")
    is_own_parent = has_node and draft.parent_id == draft.node_id
    _require(not is_own_parent, where, "a node that is its own parent")
    is_call = draft.kind in _CALL_KINDS
    _require(is_call or draft.call_id is None, where, f"a call_id on {draft.kind}")
    is_grouped = draft.kind in _GROUP_KINDS
    _require(is_grouped or draft.group is None, where, f"a group on {draft.kind}")
    _check_payload(draft, where)


def _is_utf8(text: str | None) -> bool:
    return text is None or not canonical.has_lone_surrogate(text)


def _check_payload(draft: Draft, where: str) -> None:
    """Check that a payload can be stored and read back."""
    try:
        event = event_of(draft, draft.session, 0, "")
        restored = payload_of(event)
        _require(dump_payload(restored) == event.payload, where, "payload changes when stored")
    except (ValueError, TypeError, OverflowError) as error:
        raise ConformanceError(f"{where}: payload cannot be stored: {error}") from error


def _check_ids(drafts: list[Draft], where: str, *, is_companion: bool) -> None:
    """Check ids; a companion may replace what the session's main source gave."""
    seen: set[tuple[str, str]] = set()
    for draft in drafts:
        key = (draft.session, draft.id)
        _require(key not in seen, where, f"two drafts have the id {draft.id!r}")
        is_known = draft.supersedes is None or (draft.session, draft.supersedes) in seen
        _require(
            is_known or is_companion,
            where,
            f"{draft.id!r} supersedes {draft.supersedes!r}, never given",
        )
        seen.add(key)


def _check_sessions(drafts: list[Draft], where: str) -> None:
    """Check that each session can be indexed, and each of its flows walked."""
    sessions: dict[str, list[Draft]] = {}
    for draft in drafts:
        sessions.setdefault(draft.session, []).append(draft)
    for session, own in sessions.items():
        events = [event_of(draft, draft.session, seq, "") for seq, draft in enumerate(own)]
        index = build_index(session, lambda events=events: events)  # type: ignore[misc]
        for actor in index.actors:
            path = build_trajectory(index, actor=actor)
            _require(path.actor == actor, where, f"the path of {actor!r} is another actor's")


def count_strict_lines(source: MemorySource) -> int:
    """Count the lines that are exactly one JSON object."""
    with source.open() as file:
        return sum(isinstance(item, Record) and item.is_strict for item in read_records(file))


def mutations(data: bytes, count: int) -> Iterator[bytes]:
    """Give damaged copies of a file; the same file gives the same copies each time.

    Yields:
        `count` copies, cycling through: cut short, some bytes replaced, and one line removed,
        doubled, cut in half, run into the next one, moved to the front, or put behind NUL bytes.
    """
    dice = canonical.stream(canonical.digest(data), "mutations")
    for number in range(count):
        change = _CHANGES[number % len(_CHANGES)]
        yield change(data, dice)


def _cut(data: bytes, dice: Iterator[int]) -> bytes:
    return data[: next(dice) % (len(data) + 1)]


def _replace_bytes(data: bytes, dice: Iterator[int]) -> bytes:
    changed = bytearray(data)
    odd = b'\x00\n\r"{}[]:,\\\xff\xed09aZ'
    for _ in range(1 + next(dice) % 16 if changed else 0):
        changed[next(dice) % len(changed)] = odd[next(dice) % len(odd)]
    return bytes(changed)


def _change_line(data: bytes, dice: Iterator[int]) -> bytes:
    lines = data.split(b"\n")
    at = next(dice) % len(lines)
    line, rest = lines[at], lines[at + 1 :]
    middle: tuple[list[bytes], ...] = (
        [],
        [line, line],
        [line[: len(line) // 2]],
        [line + rest[0]] if rest else [line],
        [line],
        [b"\x00" * 64 + line],
    )
    choice = next(dice) % len(middle)
    before = [line, *lines[:at]] if choice == 4 else lines[:at]
    after = rest[1:] if choice == 3 else rest
    return b"\n".join([*before, *middle[choice], *after])


_CHANGES = (_cut, _replace_bytes, _change_line, _change_line)
