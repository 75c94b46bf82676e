"""Answers of OpenAI-compatible APIs: chat completions and responses, streamed or not.

Knows the shapes of both answers. Must not know HTTP nor who asked.

Source: the OpenAI API reference, "Chat" and "Responses".
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from redrive.canonical import get_field
from redrive.record.event import raw_of
from redrive.replay.answers import (
    DONE,
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

CHAT = "openai.chat"
RESPONSES = "openai.responses"
_TERMINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})


def parse_chat(data: bytes) -> Answer:
    """Parse a chat completion, or the stream of one.

    Raises:
        ValueError: it is malformed, ends before its end, or reports an error.
    """
    if is_stream(data):
        return _parse_chat_stream(data)
    answer = decode_answer(data)
    _refuse_error(answer, data)
    choices = objects_in(answer.get("choices"))
    if not choices:
        raise ValueError("no choices in the answer")
    message = get_required(choices[0], "message", dict)
    calls = tuple(_chat_call(call) for call in objects_in(message.get("tool_calls")))
    answer |= {"finish_reason": choices[0].get("finish_reason")}
    tokens = _token_ids(choices[:1])
    return _chat_answer(_text_of(message), _thought(message), calls, answer, tokens)


def _chat_answer(
    text: str,
    reasoning: str,
    calls: tuple[CallAsked, ...],
    stated: dict[str, Any],
    tokens: tuple[int, ...] | None = None,
) -> Answer:
    return Answer(
        text=text,
        calls=calls,
        served=get_field(stated, "model", str),
        fingerprint=get_field(stated, "system_fingerprint", str),
        usage=count_tokens(stated.get("usage")),
        stop_reason=get_field(stated, "finish_reason", str),
        reasoning=reasoning or None,
        chosen_tokens=tokens,
    )


def _thought(message: dict[str, Any]) -> str:
    """Give the reasoning of a message or delta, as servers that state it name it."""
    found = (get_field(message, key, str) for key in ("reasoning_content", "reasoning"))
    return next((text for text in found if text), "")


def _token_ids(choices: Iterable[dict[str, Any]]) -> tuple[int, ...] | None:
    """List the sampled token ids in the log-probabilities; `None` unless each token states its own.

    llama.cpp states `id` there; OpenAI does not.
    """
    tokens = [
        get_field(token, "id", int)
        for choice in choices
        for token in objects_in((get_field(choice, "logprobs", dict) or {}).get("content"))
    ]
    known = tuple(token for token in tokens if token is not None)
    return known if known and len(known) == len(tokens) else None


def _text_of(message: dict[str, Any]) -> str:
    """Give the text of a message or delta: its content, the text parts of it, or its refusal."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = "".join(get_field(part, "text", str) or "" for part in objects_in(content))
    return parts or get_field(message, "refusal", str) or ""


def _chat_call(call: dict[str, Any]) -> CallAsked:
    """Read a tool call; its arguments stay the text that the model wrote."""
    call_id = get_field(call, "id", str)
    if get_field(call, "type", str) == "custom":
        custom = get_required(call, "custom", dict)
        name = get_required(custom, "name", str)
        return CallAsked(name, arguments_text=get_field(custom, "input", str), call_id=call_id)
    function = get_required(call, "function", dict)
    name = get_required(function, "name", str)
    arguments = function.get("arguments")
    if arguments is None or isinstance(arguments, str):
        return CallAsked(name, arguments_text=arguments, call_id=call_id)
    return CallAsked(name, arguments=raw_of(arguments), call_id=call_id)


def _parse_chat_stream(data: bytes) -> Answer:
    texts: list[str] = []
    thoughts: list[str] = []
    chosen: list[dict[str, Any]] = []
    pieces: dict[int, dict[str, Any]] = {}
    stated: dict[str, Any] = {}
    is_complete = has_choice = False
    for event in parse_sse(data):
        if event == DONE:
            is_complete = True
            break
        chunk = decode_answer(event.encode())
        _refuse_error(chunk, event.encode())
        stated |= {key: value for key, value in chunk.items() if value is not None}
        for choice in objects_in(chunk.get("choices")):
            has_choice = True
            if choice.get("index", 0) == 0:
                delta = get_field(choice, "delta", dict) or {}
                texts.append(_text_of(delta))
                thoughts.append(_thought(delta))
                _add_pieces(pieces, objects_in(delta.get("tool_calls")))
                chosen.append(choice)
                if choice.get("finish_reason") is not None:
                    is_complete, stated["finish_reason"] = True, choice["finish_reason"]
    if not is_complete or not has_choice:
        raise ValueError("the stream ended before its end")
    calls = tuple(_chat_call(pieces[index]) for index in sorted(pieces))
    return _chat_answer("".join(texts), "".join(thoughts), calls, stated, _token_ids(chosen))


def _add_pieces(pieces: dict[int, dict[str, Any]], deltas: Iterable[dict[str, Any]]) -> None:
    """Join the pieces of tool calls: by index, texts appended, ids and names taken once."""
    for delta in deltas:
        index = get_required(delta, "index", int)
        call = pieces.setdefault(index, {"function": {}})
        for key in ("id", "type"):
            if get_field(delta, key, str):
                call[key] = delta[key]
        for part in ("function", "custom"):
            for key, value in (get_field(delta, part, dict) or {}).items():
                if isinstance(value, str):
                    fields = call.setdefault(part, {})
                    fields[key] = fields.get(key, "") + value


def parse_responses(data: bytes) -> Answer:
    """Parse a response object, or the stream whose last event carries one.

    Raises:
        ValueError: it is malformed, ends before its end, or reports an error.
    """
    answer = _last_response(data) if is_stream(data) else decode_answer(data)
    _refuse_error(answer, msgspec.json.encode(answer.get("error")))
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[CallAsked] = []
    for item in objects_in(get_required(answer, "output", list)):
        match item.get("type"):
            case "message":
                texts.append(_text_of(item))
            case "reasoning":
                parts = objects_in(item.get("summary"))
                thoughts += [get_field(part, "text", str) or "" for part in parts]
            case "function_call":
                calls.append(_response_call(item, "arguments"))
            case "custom_tool_call":
                calls.append(_response_call(item, "input"))
    answer |= {"finish_reason": answer.get("status")}
    return _chat_answer("".join(texts), "".join(thoughts), tuple(calls), answer)


def _response_call(item: dict[str, Any], key: str) -> CallAsked:
    return CallAsked(
        get_required(item, "name", str),
        arguments_text=get_field(item, key, str),
        call_id=get_field(item, "call_id", str),
    )


def _last_response(data: bytes) -> dict[str, Any]:
    for event in parse_sse(data):
        if event == DONE:
            break
        value = decode_answer(event.encode())
        if value.get("type") == "error":
            raise ValueError(f"the model reported an error: {error_reason(event.encode())}")
        if value.get("type") in _TERMINAL_EVENTS:
            response: dict[str, Any] = get_required(value, "response", dict)
            return response
    raise ValueError("the stream ended before its end")


def _refuse_error(answer: dict[str, Any], data: bytes) -> None:
    if answer.get("error") is not None:
        raise ValueError(f"the model reported an error: {error_reason(data)}")
