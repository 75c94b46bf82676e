"""Reads messages of the Model Context Protocol: JSON-RPC, one message or an older batch of them.

Pure: bytes in, values out. Knows JSON-RPC's four shapes, and no method. What a message holds stays
the bytes that came; nothing is decoded further than it must be.

Source: JSON-RPC 2.0; Model Context Protocol 2024-11-05 to 2026-07-28 (batches: 2024-11-05 and
2025-03-26 alone).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Raw

from redrive import canonical

NOTHING = Raw(b"null")
_split_fast = msgspec.json.Decoder(dict[str, Raw]).decode
_split_list = msgspec.json.Decoder(list[Raw]).decode
Id = tuple[str, Any, str]
"""A request's id as it is compared: its type's name, its value, and where it holds, which is empty
for the whole connection. `1` and `"1"` are two."""


class Shape(StrEnum):
    """What a message is."""

    REQUEST = "request"
    NOTIFICATION = "notification"
    RESULT = "result"
    ERROR = "error"


class Message(msgspec.Struct, frozen=True):
    """One JSON-RPC message.

    Attributes:
        shape: what it is.
        id: absent on notifications, and on an error that answers nothing that could be read.
        method: of requests and notifications; else empty.
        body: `params`, `result` or `error`, as it came; `null` where there is none.
    """

    shape: Shape
    id: Id | None
    method: str
    body: Raw


def parse_messages(data: bytes, scope: str = "") -> tuple[Message, ...]:
    """Read one line, or the body of one request or answer.

    Args:
        data: one JSON text; lone surrogate escapes are allowed where it is no batch.
        scope: where its ids hold.

    Returns:
        One message, or those of a batch in order.

    Raises:
        ValueError: it is no JSON-RPC message, or a batch that holds something else.
    """
    if not canonical.is_utf8(data):
        raise ValueError("not UTF-8")
    if data.lstrip()[:1] != b"[":
        return (_parse_one(data, scope),)
    return tuple(_parse_one(bytes(part), scope) for part in list_items(data))


def _parse_one(data: bytes, scope: str) -> Message:
    fields = members(data)
    identity = _find_id(fields.get("id"), scope)
    if "method" in fields:
        method = text_in(fields, "method")
        if method is None:
            raise ValueError("a method that is no text")
        shape = Shape.NOTIFICATION if identity is None else Shape.REQUEST
        return Message(shape, identity, method, fields.get("params", NOTHING))
    if "result" in fields:
        return Message(Shape.RESULT, identity, "", fields["result"])
    if "error" in fields:
        return Message(Shape.ERROR, identity, "", fields["error"])
    raise ValueError("JSON, and no message of JSON-RPC")


def _find_id(raw: Raw | None, scope: str) -> Id | None:
    if raw is None or bytes(raw) == b"null":
        return None
    return id_of(canonical.decode_value(bytes(raw)), scope)


def id_of(value: object, scope: str = "") -> Id:
    """Give a decoded id as it is compared.

    Raises:
        ValueError: it is neither text nor number.
    """
    if isinstance(value, str):
        return ("text", value, scope)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return ("number", value, scope)
    raise ValueError("an id that is neither text nor number")


def members(data: bytes | Raw) -> Mapping[str, Raw]:
    """Split a JSON object into its members, each as it came; of a repeated key, the last.

    Raises:
        ValueError: it is no JSON object, or nested too deeply.
    """
    try:
        return _split_fast(data)
    except (msgspec.MsgspecError, RecursionError):
        # Lone surrogates: JSON that a strict decoder refuses.
        return {key: Raw(value) for key, value in canonical.split_object(bytes(data))}


def find_members(raw: Raw | None) -> Mapping[str, Raw]:
    """Split what may be an object; whatever else it is has no members."""
    try:
        return {} if raw is None else members(raw)
    except ValueError:
        return {}


def list_items(data: bytes | Raw) -> list[Raw]:
    """Split a JSON array into its items.

    Raises:
        ValueError: it is none that a strict decoder takes.
    """
    try:
        return _split_list(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"no JSON array: {error}") from error


def text_in(fields: Mapping[str, Raw], name: str) -> str | None:
    """Find the text that a member holds."""
    raw = fields.get(name)
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    value = canonical.decode_value(bytes(raw))
    return value if isinstance(value, str) else None


def is_true(fields: Mapping[str, Raw], name: str) -> bool:
    """Say whether a member is `true`."""
    return bytes(fields.get(name, NOTHING)) == b"true"
