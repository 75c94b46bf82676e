"""Models behind the Anthropic Messages API, streamed or not.

Knows the shape of a message and of its stream. Must not know HTTP nor change what is sent.

Source: the Anthropic API reference, "Messages" and "Streaming Messages"; DESIGN.md §8 "Specs".
"""

from typing import Any

from redrive.canonical import get_field
from redrive.models.http import (
    HttpClient,
    decode_answer,
    error_reason,
    is_stream,
    parse_endpoint,
    parse_sse,
)
from redrive.models.options import ModelOptions
from redrive.models.resend import Answer, ask, count_tokens, get_required, objects_in, prepare
from redrive.record.event import raw_of
from redrive.replay.ports import CallAsked, ModelQuery, ModelReply

API_KEY = "ANTHROPIC_API_KEY"
API_VERSION = "2023-06-01"
MESSAGES = "anthropic.messages"
_DELTA_TEXTS = {"text_delta": "text", "input_json_delta": "partial_json"}


class AnthropicModel:
    """Re-sends recorded bodies to one server of the Messages API.

    Args:
        spec: as the user wrote it.
        name: the model to ask for; empty means the recorded one.
        url: base URL, with or without `/v1`.
        options: timeout, decisions and the environment that may hold `ANTHROPIC_API_KEY`.
    """

    reads_context = True
    apis: tuple[str, ...] = (MESSAGES,)

    def __init__(self, spec: str, name: str, url: str, options: ModelOptions) -> None:
        self.spec = spec
        self._name = name
        self._url = f"{url.removesuffix('/v1')}/v1/messages"
        self._decisions = options.decisions
        key = options.environment.get(API_KEY, "")
        headers = {"anthropic-version": API_VERSION} | ({"x-api-key": key} if key else {})
        self._client = HttpClient(headers, key, options.timeout_s)

    def decide(self, query: ModelQuery) -> ModelReply:
        """Send the query's body and read the answer; see `Model.decide`."""
        request = prepare(query, self.apis, self._name)
        return ask(self._client, self._url, request, parse_message, decisions=self._decisions)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def open_model(argument: str, options: ModelOptions) -> AnthropicModel:
    """Open `anthropic:NAME@URL`.

    Raises:
        UsageError: the spec has no usable URL.
    """
    endpoint = parse_endpoint("anthropic", argument)
    return AnthropicModel(f"anthropic:{argument}", endpoint.name, endpoint.url, options)


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
        text="".join(get_field(block, "text", str) or "" for block in _of_type(blocks, "text")),
        calls=tuple(_call(block) for block in _of_type(blocks, "tool_use")),
        served=get_field(answer, "model", str),
        usage=count_tokens(answer.get("usage")),
    )


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
                _add_usage(message, value)
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


def _add_usage(message: dict[str, Any], event: dict[str, Any]) -> None:
    """Take the final counts: a stream's first usage is what was known at its start."""
    usage = get_field(message, "usage", dict) or {}
    message["usage"] = usage | (get_field(event, "usage", dict) or {})
