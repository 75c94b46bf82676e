"""Answers of the Anthropic Messages API, streamed or not.

Knows the shape of a message and of its stream. Must not know HTTP nor who asked.

Source: the Anthropic API reference, "Messages" and "Streaming Messages".
"""

from typing import Any

from redrive.canonical import get_field
from redrive.record.event import raw_of
from redrive.replay.answers import (
    Answer,
    count_tokens,
    decode_answer,
    error_reason,
    get_required,
    is_stream,
    objects_in,
    parse_sse,
)
from redrive.replay.ports import CallAsked

MESSAGES = "anthropic.messages"
_DELTA_TEXTS = {
    "text_delta": "text",
    "input_json_delta": "partial_json",
    "thinking_delta": "thinking",
}


def parse_message(data: bytes) -> Answer:
    """Parse a message, or the stream of one.

    Raises:
        ValueError: it is malformed, ends before its end, or reports an error.
    """
    answer = _assemble(data) if is_stream(data) else decode_answer(data)
    if answer.get("type") == "error":
        raise ValueError("the model reported an error")
    blocks = objects_in(get_required(answer, "content", list))
    return Answer(
        text=_join(blocks, "text"),
        calls=tuple(_call(block) for block in _of_type(blocks, "tool_use")),
        served=get_field(answer, "model", str),
        usage=count_tokens(answer.get("usage")),
        stop_reason=get_field(answer, "stop_reason", str),
        reasoning=_join(blocks, "thinking") or None,
    )


def _join(blocks: tuple[dict[str, Any], ...], kind: str) -> str:
    return "".join(get_field(block, kind, str) or "" for block in _of_type(blocks, kind))


def _of_type(blocks: tuple[dict[str, Any], ...], kind: str) -> list[dict[str, Any]]:
    return [block for block in blocks if block.get("type") == kind]


def _call(block: dict[str, Any]) -> CallAsked:
    """Read a tool use: `input`, or in a stream the joined text of its pieces."""
    name = get_required(block, "name", str)
    call_id = get_field(block, "id", str)
    if block.get("partial_json"):
        return CallAsked(name, arguments_text=block["partial_json"], call_id=call_id)
    if "input" in block:
        return CallAsked(name, arguments=raw_of(block["input"]), call_id=call_id)
    return CallAsked(name, call_id=call_id)


def _assemble(data: bytes) -> dict[str, Any]:
    """Build the message that a stream spells out."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in parse_sse(data):
        value = decode_answer(event.encode())
        match value.get("type"):
            case "message_start":
                message = dict(get_required(value, "message", dict))
            case "content_block_start":
                index = get_required(value, "index", int)
                blocks[index] = dict(get_required(value, "content_block", dict))
            case "content_block_delta":
                _add_delta(blocks, value)
            case "message_delta":
                _add_end(message, value)
            case "message_stop":
                return message | {"content": [blocks[index] for index in sorted(blocks)]}
            case "error":
                reason = error_reason(event.encode())
                raise ValueError(f"the model reported an error: {reason}")
    raise ValueError("the stream ended before its end")


def _add_delta(blocks: dict[int, dict[str, Any]], event: dict[str, Any]) -> None:
    delta = get_required(event, "delta", dict)
    block = blocks.get(get_required(event, "index", int))
    key = _DELTA_TEXTS.get(str(delta.get("type")))
    if block is None:
        raise ValueError("a piece of a content block that never began")
    if key is not None:
        block[key] = (get_field(block, key, str) or "") + get_required(delta, key, str)


def _add_end(message: dict[str, Any], event: dict[str, Any]) -> None:
    """Take the stop reason and the final counts: the first usage is what was known at the start."""
    message["stop_reason"] = (get_field(event, "delta", dict) or {}).get("stop_reason")
    usage = get_field(message, "usage", dict) or {}
    message["usage"] = usage | (get_field(event, "usage", dict) or {})
