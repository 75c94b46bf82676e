"""Reads messages of the Model Context Protocol: JSON-RPC, one message or an older batch of them.

Pure: bytes in, values out. Knows JSON-RPC's four shapes, and no method. What a message holds stays
the bytes that came; nothing is decoded further than it must be.

Source: JSON-RPC 2.0; Model Context Protocol 2024-11-05 to 2026-07-28 (batches: 2024-11-05 and
2025-03-26 alone).
"""

from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.capture.json_members import NOTHING, list_items, members, text_in

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
