"""Reads the prompt and the answer of a model call, in every convention that tracers wrote.

Knows eight message conventions, one small function each, in the table `CONVENTIONS`. Must not know
files, spans' places in a trace, or events of redrive.

A JSON attribute that does not parse was cut by an exporter's length limit: its stump is never read
as a shorter prompt; the exchange says that it is cut.

Source: docs/formats/otel.md "Message conventions".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.otel_spans import CHOICE_EVENT, Telemetry, is_too_deep

_MAX_SEGMENTS = 16
_MAX_INDEX_DIGITS = 6


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


class Convention(msgspec.Struct, frozen=True):
    """One way of writing messages: how to tell it, and how to read it."""

    name: str
    is_used: Callable[[Telemetry], bool]
    parse: Callable[[Telemetry], Exchange]


def read_exchange(record: Telemetry) -> Exchange:
    """Read the messages of a span; the first convention of the table that has a side wins."""
    exchange = Exchange()
    for convention in CONVENTIONS:
        if convention.is_used(record):
            exchange = exchange.over(convention.parse(record))
    if record.has_dropped:
        exchange = msgspec.structs.replace(exchange, is_input_cut=True, is_output_cut=True)
    return exchange


# --- JSON attributes


class _Unreadable(msgspec.Struct, frozen=True):
    """Stands for a JSON attribute that cannot be read whole."""


_UNREADABLE = _Unreadable()


def parse_json(value: Any) -> Any:
    """Decode a JSON attribute; structured values are given as they are.

    Returns:
        The value; `_UNREADABLE` for text that is not one whole JSON value, nests too deeply, or
        holds a number that cannot be represented.
    """
    if not isinstance(value, str):
        return value
    try:
        decoded = canonical.decode(value)
    except ValueError:
        return _UNREADABLE
    is_whole = decoded.is_exact and not is_too_deep(decoded.value)
    return decoded.value if is_whole else _UNREADABLE


def _parse_json_or_text(value: Any, role: str) -> Any:
    """Decode an attribute that is JSON by its first character, else one message's plain text."""
    if isinstance(value, str) and value.lstrip()[:1] not in ("[", "{", '"'):
        return [{"role": role, "content": value}]
    return parse_json(value)


Side = tuple[tuple[Message, ...] | None, bool]
_ABSENT: Side = (None, False)
_CUT: Side = (None, True)


def _side(value: Any, role: str) -> Side:
    """Give (messages, is cut) of one decoded attribute: a list of messages, one message or text."""
    if value is UNSET or value is None:
        return _ABSENT
    if isinstance(value, (dict, str)):
        value = [value]
    if not isinstance(value, list):
        return _CUT
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
        answered = get_field(message, "tool_call_id", str) or get_field(message, "id", str)
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


# --- numbered attributes


def unflatten(attributes: Mapping[str, Any], prefix: str) -> tuple[list[Any], bool]:
    """Collect `prefix.N.key.M.key…` attributes to a list of nested values.

    Returns:
        The values by ascending number, and whether a number is missing: an exporter that dropped
        attributes leaves a hole, which no reader may close.
    """
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        segments = name[len(prefix) + 1 :].split(".") if name.startswith(prefix + ".") else []
        if segments and len(segments) <= _MAX_SEGMENTS and _is_index(segments[0]):
            _put(root, segments, value)
    numbers = sorted(map(int, root))
    has_hole = numbers != list(range(len(numbers)))
    values = _listed(root)
    return (values if isinstance(values, list) else []), has_hole


def _is_index(segment: str) -> bool:
    return segment.isascii() and segment.isdigit() and len(segment) <= _MAX_INDEX_DIGITS


def _put(root: dict[str, Any], segments: list[str], value: Any) -> None:
    place = root
    for segment in segments[:-1]:
        inner = place.setdefault(segment, {})
        if not isinstance(inner, dict):
            return
        place = inner
    place.setdefault(segments[-1], value)


def _listed(value: Any) -> Any:
    """Turn maps whose keys are all numbers into lists; depth is bounded by `_MAX_SEGMENTS`."""
    if not isinstance(value, dict):
        return value
    if value and all(_is_index(key) for key in value):
        return [_listed(value[key]) for key in sorted(value, key=int)]
    return {key: _listed(child) for key, child in value.items()}


# --- the conventions


def _parse_events(record: Telemetry) -> Exchange:
    """(a) Events gen_ai.{system,user,assistant,tool}.message and gen_ai.choice."""
    return exchange_of_events(
        [(event.name, event.attributes) for event in record.events if is_message_event(event.name)]
    )


def is_message_event(name: str) -> bool:
    """Say whether an event of this name carries a message of convention (a)."""
    return name == CHOICE_EVENT or (name.startswith("gen_ai.") and name.endswith(".message"))


def exchange_of_events(events: Iterable[tuple[str, Any]]) -> Exchange:
    """Read (event name, body) pairs in order: a choice is an answer, the others are the prompt."""
    inputs: list[Message] = []
    outputs: list[Message] = []
    for name, body in events:
        if name == CHOICE_EVENT:
            choice = body if isinstance(body, dict) else {}
            message = parse_message(choice.get("message", body), "assistant")
            stop = get_field(choice, "finish_reason", str) or message.stop_reason
            outputs.append(msgspec.structs.replace(message, stop_reason=stop))
        else:
            inputs.append(parse_message(body, name.split(".")[1]))
    return Exchange(tuple(inputs) if inputs else None, tuple(outputs) if outputs else None)


def _parse_numbered(record: Telemetry) -> Exchange:
    """(b) OpenLLMetry up to 0.4x: gen_ai.prompt.N.*, gen_ai.completion.N.tool_calls.M.*."""
    prompts, has_hole = unflatten(record.attributes, "gen_ai.prompt")
    answers, has_answer_hole = unflatten(record.attributes, "gen_ai.completion")
    inputs, _ = _side(prompts or None, "user")
    outputs, _ = _side(answers or None, "assistant")
    return Exchange(inputs, outputs, has_hole, has_answer_hole)


def _parse_current(record: Telemetry) -> Exchange:
    """(c) gen_ai.input.messages, gen_ai.output.messages, gen_ai.system_instructions as JSON."""
    attributes = record.attributes
    inputs, is_input_cut = _side_of_attribute(attributes, "gen_ai.input.messages", "user")
    outputs, is_output_cut = _side_of_attribute(attributes, "gen_ai.output.messages", "assistant")
    instructions = attributes.get("gen_ai.system_instructions")
    if instructions is not None:
        parts = _parse_json_or_text(instructions, "system")
        is_input_cut |= parts is _UNREADABLE
        if parts is not _UNREADABLE:
            system = parse_message({"role": "system", "parts": parts}, "system")
            inputs = (system, *(inputs or ()))
    return Exchange(None if is_input_cut else inputs, outputs, is_input_cut, is_output_cut)


def _side_of_attribute(attributes: Mapping[str, Any], name: str, role: str) -> Side:
    value = parse_json(attributes.get(name))
    return _CUT if value is _UNREADABLE else _side(value, role)


def _parse_pydantic(record: Telemetry) -> Exchange:
    """(d) pydantic-ai: `events` or `all_messages_events` (v1), pydantic_ai.all_messages (v2)."""
    for name in ("events", "all_messages_events"):
        value = parse_json(record.attributes.get(name))
        if value is _UNREADABLE:
            return Exchange(is_input_cut=True, is_output_cut=True)
        if isinstance(value, list):
            events = [item for item in value if isinstance(item, dict)]
            return exchange_of_events((str(e.get("event.name", "")), e) for e in events)
    messages, is_cut = _side_of_attribute(record.attributes, "pydantic_ai.all_messages", "user")
    if messages and messages[-1].role == "assistant":
        return Exchange(messages[:-1], messages[-1:])
    return Exchange(messages, None, is_cut, is_cut)


def _parse_gemini(record: Telemetry) -> Exchange:
    """(e) Gemini CLI: untyped parts, and output.messages as one object instead of a list."""
    return _parse_current(record)


def _parse_vercel(record: Telemetry) -> Exchange:
    """(f) Vercel AI SDK: ai.prompt.messages, ai.response.text, ai.response.toolCalls."""
    attributes = record.attributes
    inputs, is_input_cut = _side_of_attribute(attributes, "ai.prompt.messages", "user")
    calls = parse_json(attributes.get("ai.response.toolCalls", UNSET))
    text = attributes.get("ai.response.text", attributes.get("ai.response.object"))
    if calls is _UNREADABLE:
        return Exchange(inputs, None, is_input_cut, is_output_cut=True)
    if calls is UNSET and text is None:
        return Exchange(inputs, None, is_input_cut)
    answer = {"role": "assistant", "content": text, "tool_calls": calls}
    reasoning = attributes.get("ai.response.reasoning")
    message = parse_message({**answer, "reasoning_content": reasoning}, "assistant")
    return Exchange(inputs, (message,), is_input_cut)


def _parse_openinference(record: Telemetry) -> Exchange:
    """(g) OpenInference: llm.input_messages.N.message.*, llm.output_messages.N.message.*."""
    sides = []
    for prefix, role in (("llm.input_messages", "user"), ("llm.output_messages", "assistant")):
        items, has_hole = unflatten(record.attributes, prefix)
        plain = [_unwrap_message(item) for item in items]
        sides.append((_side(plain or None, role)[0], has_hole))
    (inputs, is_input_cut), (outputs, is_output_cut) = sides
    return Exchange(inputs, outputs, is_input_cut, is_output_cut)


def _unwrap_message(item: Any) -> Any:
    """Strip the wrappers `message`, `tool_call` and `message_content` of OpenInference names."""
    message = item.get("message") if isinstance(item, dict) else None
    if not isinstance(message, dict):
        return item
    plain = dict(message)
    for key, wrapper, name in (
        ("tool_calls", "tool_call", "tool_calls"),
        ("contents", "message_content", "content"),
    ):
        values = plain.pop(key, None)
        if isinstance(values, list):
            inner = [v.get(wrapper, v) if isinstance(v, dict) else v for v in values]
            plain.setdefault(name, inner)
    return plain


def _parse_deprecated(record: Telemetry) -> Exchange:
    """(h) gen_ai.prompt and gen_ai.completion as single JSON strings, on the span or its events."""
    sides = []
    for name, role in (("gen_ai.prompt", "user"), ("gen_ai.completion", "assistant")):
        values = [record.attributes.get(name), *(e.attributes.get(name) for e in record.events)]
        written = next((value for value in values if value is not None), None)
        value = _parse_json_or_text(written, role)
        sides.append(_CUT if value is _UNREADABLE else _side(value, role))
    (inputs, is_input_cut), (outputs, is_output_cut) = sides
    return Exchange(inputs, outputs, is_input_cut, is_output_cut)


def _has_any(*names: str) -> Callable[[Telemetry], bool]:
    return lambda record: any(name in record.attributes for name in names)


def _has_numbered(*prefixes: str) -> Callable[[Telemetry], bool]:
    dotted = tuple(f"{prefix}." for prefix in prefixes)
    return lambda record: any(name.startswith(dotted) for name in record.attributes)


def _has_message_events(record: Telemetry) -> bool:
    return any(is_message_event(event.name) for event in record.events)


def _has_deprecated(record: Telemetry) -> bool:
    places = (record.attributes, *(event.attributes for event in record.events))
    return any("gen_ai.prompt" in p or "gen_ai.completion" in p for p in places)


def _is_gemini(record: Telemetry) -> bool:
    answer = record.attributes.get("gen_ai.output.messages")
    return isinstance(answer, dict) or (isinstance(answer, str) and answer.lstrip()[:1] == "{")


CONVENTIONS = (
    Convention("e", _is_gemini, _parse_gemini),
    Convention(
        "c",
        _has_any("gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions"),
        _parse_current,
    ),
    Convention(
        "g", _has_numbered("llm.input_messages", "llm.output_messages"), _parse_openinference
    ),
    Convention(
        "f",
        _has_any(
            "ai.prompt.messages", "ai.response.text", "ai.response.toolCalls", "ai.response.object"
        ),
        _parse_vercel,
    ),
    Convention("b", _has_numbered("gen_ai.prompt", "gen_ai.completion"), _parse_numbered),
    Convention(
        "d",
        _has_any("events", "all_messages_events", "pydantic_ai.all_messages"),
        _parse_pydantic,
    ),
    Convention("a", _has_message_events, _parse_events),
    Convention("h", _has_deprecated, _parse_deprecated),
)


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
