"""Writes a model's reply as the bytes of an API's answer, so that an agent's own client reads it.

Knows the answers of three APIs, streamed and not. Must not know who replied, nor HTTP.

What a live model of another API said reaches the agent in the form that it asked for: ids are made
of the place in the run, times are 0, and a stream has one piece per text and per call.

Source: the vendors' API references ("Chat", "Responses", "Messages", and their streaming events).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from redrive import canonical
from redrive.errors import UsageError
from redrive.record.evidence import arguments_value
from redrive.replay.answers import DONE
from redrive.replay.anthropic_answers import MESSAGES
from redrive.replay.openai_answers import CHAT, RESPONSES
from redrive.replay.ports import CallAsked, ModelReply
from redrive.replay.rebuild import arguments_text

Item = dict[str, Any]
_INPUT_NAMES = ("prompt_tokens", "input_tokens")
_OUTPUT_NAMES = ("completion_tokens", "output_tokens")


class WrittenAnswer(msgspec.Struct, frozen=True):
    """An answer as it goes over the wire."""

    content_type: str
    body: bytes


class _Reply(msgspec.Struct, frozen=True):
    """A reply with everything that an answer must state."""

    name: str
    model: str
    text: str
    calls: tuple[tuple[str, CallAsked], ...]
    n_input: int
    n_output: int


def write_answer(
    api: str, reply: ModelReply, *, number: int, requested: str, is_streamed: bool
) -> WrittenAnswer:
    """Write a reply.

    Args:
        api: `openai.chat`, `openai.responses` or `anthropic.messages`.
        reply: what the model said.
        number: of the answer in its run; ids are made of it.
        requested: the model that the agent asked for, stated where the reply names none.
        is_streamed: whether the agent asked for a stream.

    Raises:
        UsageError: another API.
    """
    forms = _FORMS.get(api)
    if forms is None:
        raise UsageError(f"no answer can be written for {api!r}", hint=", ".join(_FORMS))
    whole, stream = forms
    stated = _Reply(
        name=f"redrive_{number}",
        model=(reply.model.served if reply.model is not None else None) or requested,
        text=reply.text,
        calls=tuple(
            (call.call_id or f"call_{number}_{place}", call)
            for place, call in enumerate(reply.calls, start=1)
        ),
        n_input=_count(reply.usage, _INPUT_NAMES),
        n_output=_count(reply.usage, _OUTPUT_NAMES),
    )
    if not is_streamed:
        return WrittenAnswer("application/json", canonical.encode(whole(stated)))
    return WrittenAnswer("text/event-stream", b"".join(stream(stated)))


def _count(usage: Mapping[str, int], names: Iterable[str]) -> int:
    return next((usage[name] for name in names if name in usage), 0)


def _event(data: Any, name: str | None = None) -> bytes:
    """Write one server-sent event."""
    head = b"" if name is None else f"event: {name}\n".encode()
    written = data.encode() if isinstance(data, str) else canonical.encode(data)
    return head + b"data: " + written + b"\n\n"


# --- chat completions


def _chat(reply: _Reply) -> Item:
    message: Item = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [_chat_call(*pair) for pair in reply.calls]
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return _chat_head(reply, "chat.completion") | {
        "choices": [choice],
        "usage": _chat_usage(reply),
    }


def _chat_head(reply: _Reply, kind: str) -> Item:
    return {"id": f"chatcmpl-{reply.name}", "object": kind, "created": 0, "model": reply.model}


def _chat_call(call_id: str, call: CallAsked) -> Item:
    function = {"name": call.tool, "arguments": arguments_text(call)}
    return {"id": call_id, "type": "function", "function": function}


def _chat_usage(reply: _Reply) -> Item:
    return {
        "prompt_tokens": reply.n_input,
        "completion_tokens": reply.n_output,
        "total_tokens": reply.n_input + reply.n_output,
    }


def _finish(reply: _Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _chat_stream(reply: _Reply) -> Iterable[bytes]:
    deltas: list[Item] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": reply.text}] if reply.text else []
    deltas += [
        {"tool_calls": [{"index": place} | _chat_call(*pair)]}
        for place, pair in enumerate(reply.calls)
    ]
    head = _chat_head(reply, "chat.completion.chunk")
    for delta in deltas:
        yield _event(head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    last = {"index": 0, "delta": {}, "finish_reason": _finish(reply)}
    yield _event(head | {"choices": [last]})
    yield _event(head | {"choices": [], "usage": _chat_usage(reply)})
    yield _event(DONE)


# --- responses


def _responses(reply: _Reply) -> Item:
    return _response_head(reply, "completed") | {
        "output": _output(reply),
        "usage": {
            "input_tokens": reply.n_input,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": reply.n_output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": reply.n_input + reply.n_output,
        },
    }


def _response_head(reply: _Reply, status: str) -> Item:
    return {
        "id": f"resp_{reply.name}",
        "object": "response",
        "created_at": 0,
        "status": status,
        "model": reply.model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _output(reply: _Reply) -> list[Item]:
    items: list[Item] = []
    if reply.text or not reply.calls:
        items.append(
            {
                "type": "message",
                "id": f"msg_{reply.name}",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": reply.text, "annotations": []}],
            }
        )
    items += [
        {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": call.tool,
            "arguments": arguments_text(call),
            "status": "completed",
        }
        for call_id, call in reply.calls
    ]
    return items


def _responses_stream(reply: _Reply) -> Iterable[bytes]:
    events: list[Item] = [
        {"type": "response.created", "response": _response_head(reply, "in_progress")}
    ]
    for place, item in enumerate(_output(reply)):
        events += _item_events(place, item)
    events.append({"type": "response.completed", "response": _responses(reply)})
    for number, event in enumerate(events):
        yield _event(event | {"sequence_number": number}, event["type"])


def _item_events(place: int, item: Item) -> Iterable[Item]:
    """Write the events of one output item: added, its text or arguments in one piece, done."""
    where = {"output_index": place, "item_id": item["id"]}
    is_call = item["type"] == "function_call"
    empty: Item = {"arguments": ""} if is_call else {"content": []}
    added = item | empty | {"status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": place, "item": added}
    if is_call:
        text, kind = item["arguments"], "response.function_call_arguments"
        yield where | {"type": f"{kind}.delta", "delta": text}
        yield where | {"type": f"{kind}.done", "arguments": text, "name": item["name"]}
    else:
        (part,) = item["content"]
        at = where | {"content_index": 0}
        kind = "response.output_text"
        yield at | {"type": "response.content_part.added", "part": part | {"text": ""}}
        yield at | {"type": f"{kind}.delta", "delta": part["text"], "logprobs": []}
        yield at | {"type": f"{kind}.done", "text": part["text"], "logprobs": []}
        yield at | {"type": "response.content_part.done", "part": part}
    yield {"type": "response.output_item.done", "output_index": place, "item": item}


# --- messages


def _messages(reply: _Reply) -> Item:
    return _message_head(reply) | {
        "content": _blocks(reply),
        "stop_reason": _stop_reason(reply),
        "usage": {"input_tokens": reply.n_input, "output_tokens": reply.n_output},
    }


def _message_head(reply: _Reply) -> Item:
    return {
        "id": f"msg_{reply.name}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": reply.n_input, "output_tokens": 0},
    }


def _blocks(reply: _Reply) -> list[Item]:
    blocks: list[Item] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [
        {
            "type": "tool_use",
            "id": call_id,
            "name": call.tool,
            "input": arguments_value(call.arguments, call.arguments_text),
        }
        for call_id, call in reply.calls
    ]
    return blocks


def _stop_reason(reply: _Reply) -> str:
    return "tool_use" if reply.calls else "end_turn"


def _messages_stream(reply: _Reply) -> Iterable[bytes]:
    events: list[Item] = [{"type": "message_start", "message": _message_head(reply)}]
    empty: Item
    for place, block in enumerate(_blocks(reply)):
        if block["type"] == "text":
            empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            written = canonical.encode(block["input"]).decode()
            empty, delta = {"input": {}}, {"type": "input_json_delta", "partial_json": written}
        events += [
            {"type": "content_block_start", "index": place, "content_block": block | empty},
            {"type": "content_block_delta", "index": place, "delta": delta},
            {"type": "content_block_stop", "index": place},
        ]
    stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    usage = {"output_tokens": reply.n_output}
    events.append({"type": "message_delta", "delta": stop, "usage": usage})
    events.append({"type": "message_stop"})
    for event in events:
        yield _event(event, event["type"])


_FORMS: Mapping[str, tuple[Callable[[_Reply], Item], Callable[[_Reply], Iterable[bytes]]]] = {
    CHAT: (_chat, _chat_stream),
    RESPONSES: (_responses, _responses_stream),
    MESSAGES: (_messages, _messages_stream),
}
