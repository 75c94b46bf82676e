"""Rebuilds a request where none is recorded, in the form of its API.

It is the last recorded body, what was decided since, and what the calls were served.

Knows the message forms of three APIs. Must not know who is asked. A rebuilt request is an
approximation, and is marked so wherever it counts: how the recorded harness wrote results into the
context is not part of the record.

Source: DESIGN.md §5 "Run"; the vendors' API references ("Chat", "Responses", "Messages").
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.canonical import get_field
from redrive.errors import UsageError
from redrive.record.decisions import JSON_CONTENT, TOOL_CALLS
from redrive.record.event import Event, ToolCall, ToolResult, UserMessage, payload_of
from redrive.record.evidence import arguments_value
from redrive.record.pairing import Pairing
from redrive.record.session import EventReader
from redrive.record.trajectory import Trajectory
from redrive.replay.body import append_items, replace_value
from redrive.replay.exchange import ServedCall, Turn
from redrive.replay.ports import CallAsked, Override

CHAT = "openai.chat"
RESPONSES = "openai.responses"
MESSAGES = "anthropic.messages"

Item = dict[str, Any]


class FullTurn(msgspec.Struct, frozen=True):
    """A turn with the texts of the user messages that followed it."""

    turn: Turn
    users: tuple[str, ...] = ()


def apply_overrides(body: str, overrides: Iterable[Override]) -> str:
    """Set values in a request body; every other byte stays.

    Raises:
        UsageError: the body is not the text of one JSON object.
    """
    try:
        for override in overrides:
            body = replace_value(body, override.name, override.value)
    except ValueError as error:
        raise UsageError(
            f"the recorded request cannot be overridden: {error}",
            hint="--sampling recorded keeps it as it is",
        ) from error
    return body


def read_turns(turns: Iterable[Turn], reader: EventReader) -> tuple[FullTurn, ...]:
    """Fetch the user messages that the record holds between turns."""
    return tuple(FullTurn(turn, _user_texts(reader.read_events(turn.users))) for turn in turns)


def _user_texts(events: Iterable[Event]) -> tuple[str, ...]:
    messages: list[UserMessage] = [payload_of(event) for event in events]
    return tuple(message.text for message in messages)


def rebuild_body(api: str, body: str, turns: Sequence[FullTurn], *, mode: str = TOOL_CALLS) -> str:
    """Rebuild a request body.

    Args:
        api: `openai.chat`, `openai.responses` or `anthropic.messages`.
        body: the last recorded body; its bytes stay, the messages are added at their list's end.
        turns: what was decided and served since, oldest first.
        mode: under `json_content` a decision travels as the answer's text.

    Raises:
        UsageError: another API, or a body that is not of this API.
    """
    form = _FORMS.get(api)
    if form is None:
        raise UsageError(f"no request can be rebuilt for {api!r}", hint=", ".join(_FORMS))
    key, write = form
    try:
        if key == "input":
            body = _as_list(body)
        plain = mode == JSON_CONTENT
        items = [item for turn in turns for item in (_plain(turn) if plain else write(turn))]
        return append_items(body, key, items)
    except ValueError as error:
        raise UsageError(f"the recorded request is not one of {api}: {error}") from error


def _as_list(body: str) -> str:
    """Write the text `input` of a Responses request as the list that it stands for."""
    fields = canonical.decode_value(body)
    text = get_field(fields, "input", str) if isinstance(fields, dict) else None
    if text is None:
        return body
    return replace_value(body, "input", [{"role": "user", "content": text}])


def _plain(full: FullTurn) -> list[Item]:
    """Write a turn whose decision is its text: results come back as user messages."""
    texts = [*(result_text(served.result) for served in full.turn.results), *full.users]
    answer = {"role": "assistant", "content": full.turn.text}
    return [answer, *({"role": "user", "content": text} for text in texts)]


def _chat(full: FullTurn) -> list[Item]:
    turn = full.turn
    message: Item = {"role": "assistant", "content": turn.text or None}
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": call.tool, "arguments": arguments_text(call)},
            }
            for call_id, call in _with_ids(turn)
        ]
    results = [
        {"role": "tool", "tool_call_id": call_id, "content": result_text(served.result)}
        for call_id, served in _served_with_ids(turn)
    ]
    return [message, *results, *({"role": "user", "content": text} for text in full.users)]


def _responses(full: FullTurn) -> list[Item]:
    turn = full.turn
    items: list[Item] = []
    if turn.text:
        items.append({"role": "assistant", "content": turn.text})
    items.extend(
        {
            "type": "function_call",
            "call_id": call_id,
            "name": call.tool,
            "arguments": arguments_text(call),
        }
        for call_id, call in _with_ids(turn)
    )
    items.extend(
        {"type": "function_call_output", "call_id": call_id, "output": result_text(served.result)}
        for call_id, served in _served_with_ids(turn)
    )
    return [*items, *({"role": "user", "content": text} for text in full.users)]


def _messages(full: FullTurn) -> list[Item]:
    turn = full.turn
    blocks: list[Item] = [{"type": "text", "text": turn.text}] if turn.text else []
    blocks.extend(
        {
            "type": "tool_use",
            "id": call_id,
            "name": call.tool,
            "input": arguments_value(call.arguments, call.arguments_text),
        }
        for call_id, call in _with_ids(turn)
    )
    answers: list[Item] = [
        {
            "type": "tool_result",
            "tool_use_id": call_id,
            "content": result_text(served.result),
            "is_error": served.status == "error",
        }
        for call_id, served in _served_with_ids(turn)
    ]
    answers.extend({"type": "text", "text": text} for text in full.users)
    items: list[Item] = [{"role": "assistant", "content": blocks}] if blocks else []
    return [*items, {"role": "user", "content": answers}] if answers else items


_FORMS: Mapping[str, tuple[str, Callable[[FullTurn], list[Item]]]] = {
    CHAT: ("messages", _chat),
    RESPONSES: ("input", _responses),
    MESSAGES: ("messages", _messages),
}


def _with_ids(turn: Turn) -> list[tuple[str, CallAsked]]:
    """Give each call an id: its own, else one made of its place."""
    return [
        (call.call_id or f"call_{turn.decision}_{place}", call)
        for place, call in enumerate(turn.calls, start=1)
    ]


def _served_with_ids(turn: Turn) -> list[tuple[str, ServedCall]]:
    pairs = zip(_with_ids(turn), turn.results, strict=False)
    return [(call_id, served) for (call_id, _), served in pairs]


def arguments_text(call: CallAsked) -> str:
    """Write a call's arguments as text: as the model wrote them, else as compact JSON."""
    if call.arguments_text is not None:
        return call.arguments_text
    return bytes(call.arguments).decode() if isinstance(call.arguments, Raw) else "{}"


def result_text(result: Raw) -> str:
    """Write a recorded result as message content: a text as it is, any other value as its JSON."""
    data = bytes(result)
    if not data.startswith(b'"'):
        return data.decode()
    return str(canonical.decode_value(data))


def read_messages(
    trajectory: Trajectory,
    pairing: Pairing,
    reader: EventReader,
    until: int,
    turns: Sequence[FullTurn] = (),
) -> tuple[Item, ...]:
    """Write the neutral history that a step function reads; every value is made anew.

    Args:
        trajectory: the recorded path.
        pairing: which result answers which call on it.
        reader: gives payloads.
        until: the recorded decisions before this ordinal are part of the history.
        turns: what a replay decided since, oldest first.

    Returns:
        Messages {role, content, tool_calls?, call_id?, status?}, oldest first.

    Cost: O(n) in the history, each time.
    """
    history: list[Item] = []
    for step in trajectory.steps[:until]:
        before = _recorded_users(step.before, reader)
        history.extend({"role": "user", "content": text} for text in before)
        if step.step == until:
            break
        responses = [payload_of(event) for event in reader.read_events(step.responses)]
        text = "".join(response.text for response in responses)
        calls = list(reader.read_events(step.calls))
        history.append(_neutral_answer(text, [_recorded_call(event) for event in calls]))
        for event in calls:
            answer = pairing.answers.get(event.seq)
            if answer is not None:
                result = payload_of(next(iter(reader.read_events((answer,)))))
                history.append(_neutral_result(event.call_id, result))
    for full in turns:
        history.extend(_neutral_turn(full))
    return tuple(history)


def _recorded_users(seqs: Sequence[int], reader: EventReader) -> tuple[str, ...]:
    payloads = (payload_of(event) for event in reader.read_events(seqs))
    return tuple(payload.text for payload in payloads if isinstance(payload, UserMessage))


def _recorded_call(event: Event) -> CallAsked:
    call: ToolCall = payload_of(event)
    return CallAsked(call.tool, call.arguments, call.arguments_text, event.call_id)


def _neutral_answer(text: str, calls: Sequence[CallAsked]) -> Item:
    message: Item = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "call_id": call.call_id,
                "name": call.tool,
                "arguments": arguments_value(call.arguments, call.arguments_text),
            }
            for call in calls
        ]
    return message


def _neutral_result(call_id: str | None, result: ToolResult) -> Item:
    content = (
        canonical.decode_value(bytes(result.result)) if isinstance(result.result, Raw) else None
    )
    return {"role": "tool", "call_id": call_id, "content": content, "status": result.status}


def _neutral_turn(full: FullTurn) -> list[Item]:
    turn = full.turn
    results: list[Item] = [
        {
            "role": "tool",
            "call_id": call_id,
            "content": canonical.decode_value(bytes(served.result)),
            "status": served.status,
        }
        for call_id, served in _served_with_ids(turn)
    ]
    users = [{"role": "user", "content": text} for text in full.users]
    calls = [msgspec.structs.replace(call, call_id=call_id) for call_id, call in _with_ids(turn)]
    return [_neutral_answer(turn.text, calls), *results, *users]
