"""The shape of a Codex rollout line, old and new, and where a copied history ends.

Knows line and item types. Must not know drafts or counts.

Since 0.44 a line is `{timestamp, type, payload}`. Before that an item lay bare on its line, and the
first line held the session's fields without any type.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from redrive.canonical import get_field
from redrive.importers.timestamps import parse_rfc3339

CALL_ITEMS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
OUTPUT_ITEMS = frozenset(f"{name}_output" for name in CALL_ITEMS)
_LINE_TYPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_BARE_ITEMS = CALL_ITEMS | OUTPUT_ITEMS | {"message", "reasoning", "web_search_call"}
_LINE_HEAD = re.compile(
    rb'\{"timestamp":"[^"]{1,40}",(?:"ordinal":\d{1,20},)?"type":"(?:%s)","payload":\{'
    % b"|".join(sorted(name.encode() for name in _LINE_TYPES))
)
_UUID7 = re.compile(
    r"([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE
)


class RolloutLine(msgspec.Struct, frozen=True, gc=False):
    """One line in today's shape.

    Attributes:
        kind: `session_meta`, `turn_context`, `response_item`, `event_msg`, `compacted`, or any
            other word that the line gives as its type; empty if it gives none.
        item: the payload's own type; empty if it has none.
        payload: the payload's fields; empty if it is no object.
        ts_ns: UTC nanoseconds.
    """

    kind: str
    item: str
    payload: Mapping[str, Any]
    ts_ns: int | None = None

    @property
    def is_model_item(self) -> bool:
        """Whether the model made this item: reasoning, an assistant message, or any call."""
        if self.item == "message":
            return self.payload.get("role") == "assistant"
        return self.item == "reasoning" or self.item.endswith("_call")


def parse_line(value: Mapping[str, Any]) -> RolloutLine:
    """Read one JSON object of a rollout; whatever has another type than documented is absent."""
    ts_ns = parse_rfc3339(value.get("timestamp"))
    kind = get_field(value, "type", str) or ""
    payload = get_field(value, "payload", dict)
    if payload is not None:
        return RolloutLine(kind, get_field(payload, "type", str) or "", payload, ts_ns)
    if kind in _BARE_ITEMS:
        return RolloutLine("response_item", kind, value, ts_ns)
    if _is_bare_meta(value):
        return RolloutLine("session_meta", "", value, ts_ns)
    return RolloutLine(kind or get_field(value, "record_type", str) or "", "", {}, ts_ns)


def _is_bare_meta(value: Mapping[str, Any]) -> bool:
    has_fields = isinstance(value.get("id"), str) and isinstance(value.get("timestamp"), str)
    return has_fields and "type" not in value and ("instructions" in value or "git" in value)


def is_torn_rollout_line(data: bytes) -> bool:
    """Say whether the beginning of a line that goes on beyond `data` is that of a rollout line."""
    return _LINE_HEAD.match(data) is not None


def rollout_confidence(value: Mapping[str, Any]) -> int:
    """Say how sure one object makes it that its file is a rollout, 0 to 95."""
    if isinstance(value.get("payload"), dict):
        kind = get_field(value, "type", str)
        if kind == "session_meta":
            return 95
        return 85 if kind in _LINE_TYPES and isinstance(value.get("timestamp"), str) else 0
    if _is_bare_meta(value) and "instructions" in value:
        return 70
    is_bare_call = get_field(value, "type", str) in CALL_ITEMS and "call_id" in value
    return 40 if is_bare_call or value.get("record_type") == "state" else 0


@dataclass(slots=True)
class CopiedPrefix:
    """Tells a forked session's copied history from its own turns, line by line.

    A fork begins with its own `session_meta`, followed by the lines of its parent, the parent's
    `session_meta` first. Its own history begins at the first line whose `turn_id` (a UUIDv7) is not
    older than its own id. Without such an id nothing here tells the two apart, and nothing is taken
    for a copy.

    Attributes:
        is_copy: whether the last line seen belongs to the copied history.
        has_own_turn: whether a line of a turn of its own has been seen.
    """

    is_copy: bool = False
    has_own_turn: bool = False
    _own_id: str | None = None
    _born: str | None = None
    _has_items: bool = False

    def see(self, line: RolloutLine) -> None:
        """Take the next line."""
        if line.kind == "session_meta":
            self._see_meta(get_field(line.payload, "id", str) or "")
        turn = _uuid7_time(line.payload.get("turn_id"))
        if self._born is not None and turn is not None and turn >= self._born:
            self.has_own_turn, self.is_copy = True, False
        self._has_items = self._has_items or line.kind == "response_item"

    def _see_meta(self, session: str) -> None:
        if self._own_id is None:
            self._own_id = session
            self._born = _uuid7_time(session)
            return
        is_first_content = not self.has_own_turn and not self._has_items
        if session != self._own_id and is_first_content and self._born is not None:
            self.is_copy = True


def _uuid7_time(value: object) -> str | None:
    """Give the 48 bits of time of a UUIDv7, as twelve hex digits."""
    match = _UUID7.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else "".join(match.groups()).lower()
