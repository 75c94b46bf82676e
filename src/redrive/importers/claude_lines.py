"""Reads the lines of a Claude Code file, typed where they have the usual shape.

Knows the envelope of a line. Must not know what a line means; that is `claude_drafts`.

A line is decoded once, straight to `Line`: what no rule needs (the structured twins of results,
snapshots, hook output) is skipped without being built. A line that the typed decoder refuses is
parsed tolerantly, and a field of another type than documented counts as not recorded.

Source: docs/claude-code.md; seen in CLI versions 1.0.24 to 2.1.207.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, BinaryIO, TypeVar, get_args, get_type_hints

import msgspec

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.lines import (
    LINE_CAP_BYTES,
    damage_of_long_line,
    parse_line,
    read_lines,
)
from redrive.record.event import FLAG_RECOVERED, Damage

_MAX_DEPTH = 4
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The token counts of an answer; lines of one answer repeat them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """The API message of a `user` or `assistant` line; `content` is a text or a list of blocks."""

    id: str | None = None
    model: str | None = None
    content: Any = None
    stop_reason: str | None = None
    usage: Tokens | None = None


class Line(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The envelope of a line, as far as some rule reads it."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    message: Message | None = None
    is_sidechain: bool | None = None
    agent_id: str | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    forked_from: Any = None
    version: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    parent_tool_use_id: str | None = msgspec.field(default=None, name="parentToolUseID")
    leaf_uuid: str | None = None
    permission_mode: str | None = None
    summary: str | None = None
    compact_metadata: Any = None
    microcompact_metadata: Any = None
    retry_attempt: Any = None
    retry_in_ms: Any = None
    error: Any = None
    data: "Progress | None" = None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """List the message's content blocks; a plain text is one text block."""
        content = None if self.message is None else self.message.content
        if isinstance(content, list):
            return [block for block in content if type(block) is dict]
        return [{"type": "text", "text": content}] if isinstance(content, str) else []


class Progress(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a `progress` line carries; `message` is a sub-agent's line, embedded whole."""

    type: str | None = None
    agent_id: str | None = None
    message: Line | None = None


class Placed(msgspec.Struct, frozen=True, gc=False):
    """A line with its place: 1-based number, offset and length in bytes, and the record's flags."""

    line: Line
    number: int
    offset: int
    length: int
    flags: tuple[str, ...] = ()

    @property
    def is_strict(self) -> bool:
        """Whether its line was exactly this one object."""
        return FLAG_RECOVERED not in self.flags


_decode_line = msgspec.json.Decoder(Line).decode


def read_claude_lines(
    file: BinaryIO, *, cap_bytes: int = LINE_CAP_BYTES
) -> Iterator[Placed | Damage]:
    """Yield the lines and the damage of a file, in file order; empty lines yield nothing."""
    for raw in read_lines(file, cap_bytes):
        if raw.data is None:
            yield damage_of_long_line(raw, cap_bytes)
            continue
        line = _decode_usual(raw.data)
        if line is not None:
            yield Placed(line, raw.number, raw.offset, len(raw.data))
        else:
            yield from _parse_unusual(raw.number, raw.offset, raw.data)


def _decode_usual(data: bytes) -> Line | None:
    """Decode a line of the usual shape; `None` where the tolerant reader must look."""
    try:
        line = _decode_line(data)
        if not data.isascii():
            data.decode()  # the decoder does not look into what it skips
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return line


def _parse_unusual(number: int, offset: int, data: bytes) -> Iterator[Placed | Damage]:
    for record in parse_line(number, offset, data):
        if isinstance(record, Damage):
            yield record
        else:
            line = _line_of(record.value)
            yield Placed(line, record.line, record.offset, record.length, record.flags)


def _line_of(value: Mapping[str, Any]) -> Line:
    """Build a line from an object of any shape: what has the wrong type is not recorded."""
    return _fill(Line, value, depth=0)


def _fill(struct: type[_Shape], value: Mapping[str, Any], depth: int) -> _Shape:
    fields: dict[str, Any] = {}
    for name, key, kind in _fields_of(struct):
        if kind is Any:
            fields[name] = value.get(key)
        elif issubclass(kind, msgspec.Struct):
            inner = get_field(value, key, dict)
            if inner is not None and depth < _MAX_DEPTH:
                fields[name] = _fill(kind, inner, depth + 1)
        else:
            found = get_field(value, key, kind)
            fields[name] = canonical.safe_text(found) if isinstance(found, str) else found
    return struct(**fields)


@cache
def _fields_of(struct: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    """List a struct's fields as (name, key in JSON, type without `None`)."""
    hints = get_type_hints(struct)
    return tuple(
        (info.name, info.encode_name, (get_args(hints[info.name]) or (Any,))[0])
        for info in msgspec.structs.fields(struct)
    )
