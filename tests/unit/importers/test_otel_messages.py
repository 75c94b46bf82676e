import json
from typing import Any

import pytest
from msgspec import UNSET

from redrive.importers.otel_messages import CONVENTIONS, read_exchange, unflatten
from redrive.importers.otel_parts import (
    CallPart,
    Exchange,
    Message,
    ResultPart,
    dump_messages,
    parse_message,
)
from redrive.importers.otel_spans import Telemetry, read_telemetry
from tests.helpers import source_of


def _record(attributes: dict[str, Any], **more: Any) -> Telemetry:
    data = json.dumps({"spans": [{"attributes": attributes, **more}]}).encode()
    (record,) = read_telemetry(source_of("made.json", data))
    assert isinstance(record, Telemetry)
    return record


def _exchange(attributes: dict[str, Any], **more: Any) -> Exchange:
    return read_exchange(_record(attributes, **more))


def test_every_convention_of_the_list_has_one_entry() -> None:
    assert sorted(convention.name for convention in CONVENTIONS) == list("abcdefgh")


def test_nothing_recorded_is_not_an_empty_message_list() -> None:
    assert _exchange({}) == Exchange()
    assert _exchange({"gen_ai.input.messages": "[]"}).inputs == ()


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.input.messages": '[{"role": "user", "pa'},
        {"gen_ai.system_instructions": '[{"type": "te'},
        {"gen_ai.prompt": '[{"role": "user"'},
        {"ai.prompt.messages": '[{"role": "user"'},
        {"pydantic_ai.all_messages": '[{"role": "user"'},
        {"events": '[{"content": "x"'},
        {"gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "hi"},
        {"gen_ai.input.messages": "[" * 300 + "]" * 300},
        {"gen_ai.input.messages": '[{"role": "user", "parts": [1e999]}]'},
        {"gen_ai.input.messages": "7"},
    ],
)
def test_what_cannot_be_read_whole_is_cut_and_no_shorter_prompt(attributes: dict[str, Any]) -> None:
    assert _exchange(attributes).is_input_cut


@pytest.mark.parametrize(
    "attributes",
    [
        {"gen_ai.output.messages": '[{"role": "assistant"'},
        {"gen_ai.completion": '{"text": "x'},
        {"ai.response.toolCalls": '[{"toolCallId"', "ai.response.text": "x"},
        {"events": "[{"},
        {"gen_ai.completion.1.content": "x"},
    ],
)
def test_an_answer_that_cannot_be_read_whole_is_cut(attributes: dict[str, Any]) -> None:
    exchange = _exchange(attributes)
    assert exchange.is_output_cut


def test_plain_text_in_a_deprecated_attribute_is_one_message() -> None:
    exchange = _exchange({"gen_ai.prompt": "Tell a joke", "gen_ai.completion": "No."})
    assert exchange.inputs == (Message("user", "Tell a joke"),)
    assert exchange.outputs == (Message("assistant", "No."),)


def test_deprecated_messages_may_stand_on_span_events() -> None:
    events = [
        {"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": '[{"content": "hi"}]'}},
        {"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": '"ho"'}},
    ]
    exchange = _exchange({}, events=events)
    assert exchange.inputs == (Message("user", "hi"),)
    assert exchange.outputs == (Message("assistant", "ho"),)


def test_message_events_may_stand_on_the_span() -> None:
    events = [
        {"name": "gen_ai.user.message", "attributes": {"content": "hi"}},
        {"name": "gen_ai.choice", "attributes": {"finish_reason": "stop", "message": "ho"}},
    ]
    exchange = _exchange({}, events=events)
    assert exchange.inputs == (Message("user", "hi"),)
    assert exchange.outputs == (Message("assistant", "ho", stop_reason="stop"),)


def test_all_messages_of_a_run_end_with_its_answer() -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    exchange = _exchange({"pydantic_ai.all_messages": json.dumps(messages)})
    assert exchange.inputs == (Message("user", "hi"),)
    assert exchange.outputs == (Message("assistant", "ho"),)
    assert _exchange({"pydantic_ai.all_messages": json.dumps(messages[:1])}).outputs is None


def test_structured_attributes_are_read_like_json_text() -> None:
    value = {"arrayValue": {"values": [{"kvlistValue": {"values": [
        {"key": "role", "value": {"stringValue": "user"}},
        {"key": "content", "value": {"stringValue": "hi"}},
    ]}}]}}  # fmt: skip
    exchange = read_exchange(
        _record([{"key": "gen_ai.input.messages", "value": value}])  # type: ignore[arg-type]
    )
    assert exchange.inputs == (Message("user", "hi"),)


def test_a_prompt_without_answer_of_the_vercel_sdk_is_no_empty_answer() -> None:
    assert _exchange({"ai.prompt.messages": "[]"}).outputs is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("hi", Message("user", "hi")),
        (7, Message("user", other=(7,))),
        ({"role": "model", "parts": [{"text": "a"}, {"text": "b"}]}, Message("assistant", "ab")),
        (
            {"content": [{"type": "thinking", "thinking": "hm"}, "x"]},
            Message("user", "x", reasoning="hm"),
        ),
        ({"parts": [{"text": "hm", "thought": True}]}, Message("user", reasoning="hm")),
        ({"content": "x", "reasoning_content": "hm"}, Message("user", "x", reasoning="hm")),
        ({"content": {"a": 1}}, Message("user", other=({"a": 1},))),
        ({"parts": [None, {"type": "audio"}]}, Message("user", other=(None, {"type": "audio"}))),
        (
            {"role": "assistant", "tool_calls": [7, {"id": "c", "function": {"name": "t"}}]},
            Message("assistant", calls=(CallPart("t", "c"),), other=(7,)),
        ),
        (
            {"content": [{"type": "tool_use", "id": "c", "name": "t", "input": {}}]},
            Message("user", calls=(CallPart("t", "c", {}),)),
        ),
        (
            {"parts": [{"functionCall": {"name": "t", "args": {"a": 1}}}]},
            Message("user", calls=(CallPart("t", None, {"a": 1}),)),
        ),
        (
            {"content": [{"type": "tool_result", "tool_use_id": "c", "content": None}]},
            Message("user", results=(ResultPart("c", None),)),
        ),
        (
            {"parts": [{"functionResponse": {"name": "t", "response": {"ok": 1}}}]},
            Message("user", results=(ResultPart(None, {"ok": 1}, "t"),)),
        ),
        (
            {"role": "tool", "tool_call_id": "c", "name": "t", "content": [{"type": "text"}]},
            Message("tool", results=(ResultPart("c", [{"type": "text"}], "t"),)),
        ),
        (
            {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c"}]},
            Message("tool", results=(ResultPart("c", UNSET),)),
        ),
        ({"content": "x", "finish_reason": "stop"}, Message("user", "x", stop_reason="stop")),
    ],
)
def test_a_message_is_read_in_every_shape(value: Any, expected: Message) -> None:
    assert parse_message(value, "user") == expected


def test_numbered_attributes_become_lists_in_the_order_of_their_numbers() -> None:
    attributes = {f"p.{n}.k": n for n in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9)} | {"p.x": 1, "pq.0": 1}
    assert unflatten(attributes, "p") == ([{"k": n} for n in range(11)], False)


def test_a_missing_number_is_a_hole() -> None:
    assert unflatten({"p.0": "a", "p.2": "b"}, "p") == (["a", "b"], True)


def test_numbered_names_that_contradict_each_other_keep_the_first() -> None:
    assert unflatten({"p.0": "a", "p.0.b.c": 1, f"p.{'9' * 9}": 1}, "p") == (["a"], False)


def test_the_neutral_form_leaves_out_what_was_not_recorded() -> None:
    messages = [
        Message("assistant", "x", "hm", (CallPart("t"), CallPart("t", "c", None)), stop_reason="s"),
        Message("tool", results=(ResultPart("c", None),)),
        Message("user", "y", results=(ResultPart(None, 1), ResultPart("d")), other=(1,)),
    ]
    assert dump_messages(messages) == [
        {
            "role": "assistant", "content": "x", "reasoning": "hm",
            "tool_calls": [{"name": "t"}, {"id": "c", "name": "t", "arguments": None}],
        },
        {"role": "tool", "content": None, "call_id": "c"},
        {
            "role": "user", "content": "y", "other": [1],
            "results": [{"content": 1}, {"call_id": "d"}],
        },
    ]  # fmt: skip
