"""What a request to a model says of the conversation that it belongs to.

Knows the bodies of the three APIs as far as messages, tools and tool results go. Must not know
flows, nor who sent what.

Two requests belong together where the later one repeats the earlier one's messages and goes on, or
where model, instructions and tools are the same. Messages are compared by digests of their bytes,
less what clients move from message to message (`cache_control`).

Source: the API references of OpenAI ("Chat", "Responses") and Anthropic ("Messages").
"""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.canonical import get_field
from redrive.record.event import raw_of
from redrive.replay.answers import objects_in

_MOVING = re.compile(rb'\s*,?\s*"cache_control"\s*:\s*(?:null|\{[^{}]*\})')
_INSTRUCTING = frozenset({"system", "developer"})


class SeenResult(msgspec.Struct, frozen=True):
    """A tool's result in a request: its call's id, JSON, and whether it is an error."""

    call_id: str
    result: Raw
    is_error: bool = False


class Conversation(msgspec.Struct, frozen=True):
    """What one request says.

    Attributes:
        opening: digest of model, instructions and tools; empty where the body is not understood.
        messages: a digest per message after the instructions, in order.
        follows: id of the response that the API itself is asked to go on from.
    """

    opening: bytes = b""
    messages: tuple[bytes, ...] = ()
    follows: str | None = None

    def continues(self, earlier: "Conversation") -> bool:
        """Say whether this repeats all messages of an earlier request, and goes on."""
        count = len(earlier.messages)
        return 0 < count < len(self.messages) and self.messages[:count] == earlier.messages


class _Body(msgspec.Struct, frozen=True, gc=False):
    """The fields of a body that matter here, of any of the three APIs."""

    model: Raw | UnsetType = UNSET
    system: Raw | UnsetType = UNSET
    instructions: Raw | UnsetType = UNSET
    tools: Raw | UnsetType = UNSET
    messages: list[Raw] | UnsetType = UNSET
    input: Raw | UnsetType = UNSET
    previous_response_id: str | None = None


class _Role(msgspec.Struct, frozen=True, gc=False):
    role: str | None = None


_decode_body = msgspec.json.Decoder(_Body).decode
_decode_role = msgspec.json.Decoder(_Role).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode


def read_conversation(body: bytes) -> Conversation:
    """Read what a request's body says; an empty `Conversation` where it is not understood."""
    try:
        fields = _decode_body(body)
        messages = _message_bytes(fields)
        n_leading = _count_leading(messages)
    except msgspec.DecodeError:
        return Conversation()
    parts = (fields.model, fields.system, fields.instructions, fields.tools)
    opening = [b"" if isinstance(part, UnsetType) else _still(bytes(part)) for part in parts]
    opening += [_still(message) for message in messages[:n_leading]]
    return Conversation(
        opening=_digest(b"\0".join(opening)),
        messages=tuple(_digest(_still(message)) for message in messages[n_leading:]),
        follows=fields.previous_response_id,
    )


def _message_bytes(fields: _Body) -> list[bytes]:
    if not isinstance(fields.messages, UnsetType):
        return [bytes(message) for message in fields.messages]
    if isinstance(fields.input, UnsetType):
        return []
    data = bytes(fields.input)
    return [bytes(item) for item in _decode_list(data)] if data.startswith(b"[") else [data]


def _count_leading(messages: list[bytes]) -> int:
    """Count the instructing messages that a list begins with."""
    for number, message in enumerate(messages):
        is_object = message.startswith(b"{")
        if not is_object or _decode_role(message).role not in _INSTRUCTING:
            return number
    return len(messages)


def _still(data: bytes) -> bytes:
    return _MOVING.sub(b"", data) if b"cache_control" in data else data


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


def find_results(body: bytes, start: int = 0) -> Iterator[SeenResult]:
    """Yield the tool results in the messages of a body, from message `start` on.

    Args:
        body: of any of the three APIs; nothing is found in another.
        start: counts the messages after the instructions, as `Conversation.messages` does.
    """
    for message in _objects_from(body, start):
        role, kind = message.get("role"), message.get("type")
        if role == "tool":
            yield from _seen(message.get("tool_call_id"), message.get("content"))
        elif kind in ("function_call_output", "custom_tool_call_output"):
            yield from _seen(message.get("call_id"), message.get("output"))
        elif role == "user":
            for block in objects_in(message.get("content")):
                if block.get("type") == "tool_result":
                    is_error = block.get("is_error") is True
                    call_id = block.get("tool_use_id")
                    yield from _seen(call_id, block.get("content"), is_error=is_error)


def find_user_texts(body: bytes, start: int = 0) -> Iterator[str]:
    """Yield the texts of user messages from message `start` on; what holds no text is left out."""
    for message in _objects_from(body, start):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            yield content
            continue
        kinds = ("text", "input_text")
        blocks = [block for block in objects_in(content) if block.get("type") in kinds]
        text = "\n".join(get_field(block, "text", str) or "" for block in blocks)
        if text:
            yield text


def _objects_from(body: bytes, start: int) -> Iterator[dict[str, Any]]:
    try:
        fields = _decode_body(body)
        messages = _message_bytes(fields)
        listed = messages[_count_leading(messages) + start :]
        values = [canonical.decode_value(message) for message in listed]
    except (msgspec.DecodeError, ValueError):
        return
    for value in values:
        if isinstance(value, dict):
            yield value
        elif isinstance(value, str):  # the whole input of the Responses API may be one text
            yield {"role": "user", "content": value}


def _seen(call_id: object, content: object, *, is_error: bool = False) -> Iterator[SeenResult]:
    if isinstance(call_id, str):
        yield SeenResult(call_id, raw_of(content), is_error)
