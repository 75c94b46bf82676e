"""Reads JSON attributes, and one message in any shape that a tracer writes, to one neutral form.

Knows messages, their parts, tool calls and answers. Must not know attribute names (that is
`otel_messages`), files, or events of redrive. No value makes a reader here fail.

Source: docs/opentelemetry.md "Message conventions".
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.otel_spans import is_too_deep


class CallPart(msgspec.Struct, frozen=True):
    """A tool call in a message; `arguments` is text or a JSON value, `UNSET` if not recorded."""

    tool: str
    call_id: str | None = None
    arguments: Any = UNSET


class ResultPart(msgspec.Struct, frozen=True):
    """A tool's answer in a message; `value` is `UNSET` if it was not recorded."""

    call_id: str | None = None
    value: Any = UNSET
    tool: str | None = None


class Message(msgspec.Struct, frozen=True):
    """One message in neutral form.

    Attributes:
        role: as written; `assistant` for `model`.
        text: its text parts, joined without a separator.
        reasoning: its reasoning parts, joined likewise.
        calls: tool calls, in order.
        results: tool answers, in order.
        other: parts that are none of these, as written.
        stop_reason: why the model stopped, where the message says it.
    """

    role: str
    text: str = ""
    reasoning: str | None = None
    calls: tuple[CallPart, ...] = ()
    results: tuple[ResultPart, ...] = ()
    other: tuple[Any, ...] = ()
    stop_reason: str | None = None


class Exchange(msgspec.Struct, frozen=True):
    """What one span or log group says was asked and answered.

    `None` is *not recorded*, the empty tuple a recorded empty list. `is_input_cut` and
    `is_output_cut` say that something was recorded and cannot be read whole.
    """

    inputs: tuple[Message, ...] | None = None
    outputs: tuple[Message, ...] | None = None
    is_input_cut: bool = False
    is_output_cut: bool = False

    def over(self, other: "Exchange") -> "Exchange":
        """Give this exchange, completed by another where it has nothing."""
        has_input = self.inputs is not None or self.is_input_cut
        has_output = self.outputs is not None or self.is_output_cut
        first, last = (self if has_input else other), (self if has_output else other)
        return Exchange(first.inputs, last.outputs, first.is_input_cut, last.is_output_cut)


# --- JSON attributes


class _Unreadable(msgspec.Struct, frozen=True):
    """Stands for a JSON attribute that cannot be read whole."""


UNREADABLE = _Unreadable()


def parse_json(value: Any) -> Any:
    """Decode a JSON attribute; structured values are given as they are.

    Returns:
        The value; `UNREADABLE` for text that is not one whole JSON value, nests too deeply, or
        holds a number that cannot be represented.
    """
    if not isinstance(value, str):
        return value
    try:
        decoded = canonical.decode(value)
    except ValueError:
        return UNREADABLE
    is_whole = decoded.is_exact and not is_too_deep(decoded.value)
    return decoded.value if is_whole else UNREADABLE


def parse_json_or_text(value: Any, role: str) -> Any:
    """Decode an attribute that is JSON by its first character, else one message's plain text."""
    if isinstance(value, str) and value.lstrip()[:1] not in ("[", "{", '"'):
        return [{"role": role, "content": value}]
    return parse_json(value)


Side = tuple[tuple[Message, ...] | None, bool]
_ABSENT: Side = (None, False)
CUT: Side = (None, True)


def side_of(value: Any, role: str) -> Side:
    """Give (messages, is cut) of one decoded attribute: a list of messages, one message or text."""
    if value is UNSET or value is None:
        return _ABSENT
    if isinstance(value, (dict, str)):
        value = [value]
    if not isinstance(value, list):
        return CUT
    return tuple(parse_message(item, role) for item in value), False


# --- one message, in any of its shapes


def parse_message(value: Any, role: str) -> Message:
    """Read one message: OpenAI form, `parts` form, content lists, a bare text; never fails."""
    if isinstance(value, str):
        return Message(role, value)
    if not isinstance(value, dict):
        return Message(role, other=(value,))
    named = get_field(value, "role", str) or role
    building = _Building(named)
    for key in ("parts", "content", "text"):
        building.add_content(value.get(key), value)
    calls = value.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        building.add_call(call)
    reasoning = get_field(value, "reasoning_content", str)
    if reasoning is not None:
        building.reasoning.append(reasoning)
    stop = get_field(value, "finish_reason", str)
    return building.build("assistant" if named == "model" else named, stop)


class _Building:
    """Collects the parts of one message."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.texts: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[CallPart] = []
        self.results: list[ResultPart] = []
        self.other: list[Any] = []

    def build(self, role: str, stop: str | None) -> Message:
        return Message(
            role=role,
            text="".join(self.texts),
            reasoning="".join(self.reasoning) if self.reasoning else None,
            calls=tuple(self.calls),
            results=tuple(self.results),
            other=tuple(self.other),
            stop_reason=stop,
        )

    def add_content(self, content: Any, message: Mapping[str, Any]) -> None:
        """Add a message's content: for a tool's message it is the answer itself."""
        answered = _text_id(message.get("tool_call_id")) or _text_id(message.get("id"))
        if content is None:
            return
        if self.role == "tool" and not _has_result_parts(content):
            name = get_field(message, "name", str)
            self.results.append(ResultPart(answered, content, name))
        elif isinstance(content, str):
            self.texts.append(content)
        elif isinstance(content, list):
            for part in content:
                self.add_part(part)
        else:
            self.other.append(content)

    def add_part(self, part: Any) -> None:
        """Add one part by its type; a part without a type is told by its keys (convention e)."""
        if isinstance(part, str):
            self.texts.append(part)
            return
        if not isinstance(part, dict):
            self.other.append(part)
            return
        kind = _PART_KINDS.get(str(part.get("type"))) or _kind_by_keys(part)
        text = _first_text(part)
        if kind == "call":
            self.add_call(part)
        elif kind == "result":
            self.results.append(_parse_result(part))
        elif kind == "reasoning" and text is not None:
            self.reasoning.append(text)
        elif kind == "text" and text is not None:
            self.texts.append(text)
        else:
            self.other.append(part)

    def add_call(self, call: Any) -> None:
        """Add a call written as {id, name, arguments} or {id, function: {name, arguments}}."""
        if not isinstance(call, dict):
            self.other.append(call)
            return
        inner = next((call[k] for k in _CALL_BODIES if isinstance(call.get(k), dict)), call)
        name = _first_of(inner, ("name", "toolName", "tool_name"))
        arguments = _first_of(inner, ("arguments", "args", "input"))
        call_id = _first_of(call, _CALL_IDS)
        if call_id is UNSET:
            call_id = _first_of(inner, _CALL_IDS)
        self.calls.append(
            CallPart(
                tool=name if isinstance(name, str) else "",
                call_id=_text_id(call_id),
                arguments=arguments,
            )
        )


_CALL_BODIES = ("function", "functionCall", "function_call")
_CALL_IDS = ("id", "toolCallId", "tool_call_id", "tool_use_id", "call_id")
_RESULT_VALUES = ("response", "result", "output", "content")
_PART_KINDS = {
    "text": "text", "input_text": "text", "output_text": "text",
    "tool_call": "call", "tool-call": "call", "tool_use": "call", "function_call": "call",
    "tool_call_response": "result", "tool-result": "result", "tool_result": "result",
    "reasoning": "reasoning", "thinking": "reasoning",
}  # fmt: skip


def _kind_by_keys(part: Mapping[str, Any]) -> str | None:
    """Tell an untyped part (Gemini writes {text}, {functionCall}, {functionResponse})."""
    if "type" in part:
        return None
    if "functionCall" in part or "function_call" in part:
        return "call"
    if "functionResponse" in part or "function_response" in part:
        return "result"
    return "reasoning" if part.get("thought") is True else "text"


def _first_text(part: Mapping[str, Any]) -> str | None:
    for key in ("content", "text", "thinking"):
        if isinstance(part.get(key), str):
            return str(part[key])
    return None


def _first_of(part: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((part[key] for key in keys if key in part), UNSET)


def _text_id(value: Any) -> str | None:
    return canonical.safe_text(value) if isinstance(value, str) and value else None


def _has_result_parts(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(part, dict)
        and (_PART_KINDS.get(str(part.get("type"))) or _kind_by_keys(part)) == "result"
        for part in content
    )


def _parse_result(part: Mapping[str, Any]) -> ResultPart:
    inner = part.get("functionResponse", part.get("function_response", part))
    inner = inner if isinstance(inner, dict) else part
    name = _first_of(inner, ("name", "toolName", "tool_name"))
    call_id = _first_of(inner, _CALL_IDS)
    return ResultPart(
        call_id=_text_id(call_id),
        value=_first_of(inner, _RESULT_VALUES),
        tool=name if isinstance(name, str) else None,
    )


# --- the neutral form, written


def dump_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Write messages as a neutral list of {role, content, tool_calls?, results?, other?}."""
    return [_dump_message(message) for message in messages]


def _dump_message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.reasoning is not None:
        plain["reasoning"] = message.reasoning
    if message.calls:
        plain["tool_calls"] = [
            _present(id=c.call_id, name=c.tool, arguments=c.arguments) for c in message.calls
        ]
    if len(message.results) == 1 and not message.text:
        (result,) = message.results
        plain |= _present(call_id=result.call_id, content=result.value)
    elif message.results:
        plain["results"] = [_present(call_id=r.call_id, content=r.value) for r in message.results]
    if message.other:
        plain["other"] = list(message.other)
    return plain


def _present(**fields: Any) -> dict[str, Any]:
    """Give the fields that were recorded; an absent id is left out, a `null` value is not."""
    ids = ("id", "call_id")
    return {k: v for k, v in fields.items() if v is not UNSET and not (k in ids and v is None)}
