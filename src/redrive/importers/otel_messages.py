"""Reads the prompt and the answer of a model call, in every convention that tracers wrote.

Knows eight message conventions, one small function each, in the table `CONVENTIONS`. Must not know
files, spans' places in a trace, or events of redrive.

A JSON attribute that does not parse was cut by an exporter's length limit: its stump is never read
as a shorter prompt; the exchange says that it is cut.

Source: docs/opentelemetry.md "Message conventions".
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from redrive.canonical import get_field
from redrive.importers.otel_parts import (
    CUT,
    UNREADABLE,
    Exchange,
    Message,
    Side,
    parse_json,
    parse_json_or_text,
    parse_message,
    side_of,
)
from redrive.importers.otel_spans import CHOICE_EVENT, Telemetry

_MAX_SEGMENTS = 16
_MAX_INDEX_DIGITS = 6


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
            role = name.split(".")[1] if is_message_event(name) else "unknown"
            inputs.append(parse_message(body, role))
    return Exchange(tuple(inputs) if inputs else None, tuple(outputs) if outputs else None)


def _parse_numbered(record: Telemetry) -> Exchange:
    """(b) OpenLLMetry up to 0.4x: gen_ai.prompt.N.*, gen_ai.completion.N.tool_calls.M.*."""
    prompts, has_hole = unflatten(record.attributes, "gen_ai.prompt")
    answers, has_answer_hole = unflatten(record.attributes, "gen_ai.completion")
    inputs, _ = side_of(prompts or None, "user")
    outputs, _ = side_of(answers or None, "assistant")
    return Exchange(inputs, outputs, has_hole, has_answer_hole)


def _parse_current(record: Telemetry) -> Exchange:
    """(c) gen_ai.input.messages, gen_ai.output.messages, gen_ai.system_instructions as JSON."""
    attributes = record.attributes
    inputs, is_input_cut = _side_of_attribute(attributes, "gen_ai.input.messages", "user")
    outputs, is_output_cut = _side_of_attribute(attributes, "gen_ai.output.messages", "assistant")
    instructions = attributes.get("gen_ai.system_instructions")
    if instructions is not None:
        parts = parse_json_or_text(instructions, "system")
        is_input_cut |= parts is UNREADABLE
        if parts is not UNREADABLE:
            system = parse_message({"role": "system", "parts": parts}, "system")
            inputs = (system, *(inputs or ()))
    return Exchange(None if is_input_cut else inputs, outputs, is_input_cut, is_output_cut)


def _side_of_attribute(attributes: Mapping[str, Any], name: str, role: str) -> Side:
    value = parse_json(attributes.get(name))
    return CUT if value is UNREADABLE else side_of(value, role)


def _parse_pydantic(record: Telemetry) -> Exchange:
    """(d) pydantic-ai: `events` or `all_messages_events` (v1), pydantic_ai.all_messages (v2)."""
    for name in ("events", "all_messages_events"):
        value = parse_json(record.attributes.get(name))
        if value is UNREADABLE:
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
    if calls is UNREADABLE:
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
        sides.append((side_of(plain or None, role)[0], has_hole))
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
        value = parse_json_or_text(written, role)
        sides.append(CUT if value is UNREADABLE else side_of(value, role))
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
