import json

import pytest
from msgspec import Raw

from redrive.errors import UsageError
from redrive.record.pairing import pair_path
from redrive.replay.exchange import ServedCall, Turn
from redrive.replay.ports import CallAsked, Override
from redrive.replay.rebuild import (
    FullTurn,
    apply_overrides,
    arguments_text,
    read_messages,
    read_turns,
    rebuild_body,
    result_text,
)
from tests.recordings import call, decide, record, result, user


def served(value, status="ok"):
    return ServedCall(1, "r", "t", status, Raw(value), 3)


FULL = FullTurn(
    Turn(
        2,
        "look",
        (
            CallAsked("t", Raw(b'{"a": 1}'), call_id="c9"),
            CallAsked("u", arguments_text='{"b":'),
            CallAsked("v"),
        ),
        (served(b'"text"'), served(b'{"n":1.0}', "error"), served(b"null")),
    ),
    ("go on",),
)


def added(api, body, *turns, **options):
    rebuilt = rebuild_body(api, body, turns or (FULL,), **options)
    key = "input" if "input" in json.loads(body) else "messages"
    return json.loads(rebuilt)[key]


def test_a_chat_request_is_rebuilt_in_its_form():
    body = '{"model": "m",  "messages": [ {"role":"user","content":"hi"} ], "temperature":1.0}'
    assert rebuild_body("openai.chat", body, (FULL,)).startswith(body[:60])
    first, answer, *results, told = added("openai.chat", body)
    assert first == {"role": "user", "content": "hi"}
    assert answer["content"] == "look"
    assert answer["tool_calls"] == [
        {"id": "c9", "type": "function", "function": {"name": "t", "arguments": '{"a": 1}'}},
        {"id": "call_2_2", "type": "function", "function": {"name": "u", "arguments": '{"b":'}},
        {"id": "call_2_3", "type": "function", "function": {"name": "v", "arguments": "{}"}},
    ]
    assert [(r["tool_call_id"], r["content"]) for r in results] == [
        ("c9", "text"),
        ("call_2_2", '{"n":1.0}'),
        ("call_2_3", "null"),
    ]
    assert told == {"role": "user", "content": "go on"}


def test_a_chat_answer_without_text_or_calls_has_neither():
    (answer,) = added("openai.chat", '{"messages":[]}', FullTurn(Turn(1, "")))
    assert answer == {"role": "assistant", "content": None}


def test_a_responses_request_is_rebuilt_in_its_form():
    first, answer, *items = added("openai.responses", '{"input":"hi"}')
    assert first == {"role": "user", "content": "hi"}
    assert answer == {"role": "assistant", "content": "look"}
    assert [i.get("type") for i in items] == [
        *["function_call"] * 3,
        *["function_call_output"] * 3,
        None,
    ]
    assert items[0] == {
        "type": "function_call",
        "call_id": "c9",
        "name": "t",
        "arguments": '{"a": 1}',
    }
    assert items[4]["output"] == '{"n":1.0}'
    assert items[-1] == {"role": "user", "content": "go on"}


def test_a_responses_list_keeps_its_bytes():
    body = '{"input":[ {"role":"user","content":"hi"} ],"seed":1}'
    rebuilt = rebuild_body("openai.responses", body, (FullTurn(Turn(1, "")),))
    assert rebuilt == body


def test_an_anthropic_request_is_rebuilt_in_its_form():
    answer, told = added("anthropic.messages", '{"messages":[]}')
    assert [block["type"] for block in answer["content"]] == ["text", *["tool_use"] * 3]
    assert [block["input"] for block in answer["content"][1:]] == [{"a": 1}, '{"b":', {}]
    assert told["role"] == "user"
    assert [(b["type"], b.get("is_error")) for b in told["content"]] == [
        ("tool_result", False),
        ("tool_result", True),
        ("tool_result", False),
        ("text", None),
    ]
    assert [b.get("tool_use_id") for b in told["content"]] == ["c9", "call_2_2", "call_2_3", None]


def test_an_anthropic_turn_without_content_adds_no_empty_message():
    assert added("anthropic.messages", '{"messages":[]}', FullTurn(Turn(1, ""))) == []
    assert len(added("anthropic.messages", '{"messages":[]}', FullTurn(Turn(1, "x")))) == 1


def test_under_json_content_the_decision_travels_as_text():
    items = added("openai.chat", '{"messages":[]}', mode="json_content")
    assert [item["role"] for item in items] == ["assistant", *["user"] * 4]
    assert items[0] == {"role": "assistant", "content": "look"}
    assert items[2]["content"] == '{"n":1.0}'


def test_half_an_emoji_travels_as_its_escape():
    rebuilt = rebuild_body("openai.chat", '{"messages":[]}', (FullTurn(Turn(1, "\ud83d")),))
    assert "\\ud83d" in rebuilt


@pytest.mark.parametrize(
    ("api", "body", "message"),
    [
        ("gopher", "{}", "no request can be rebuilt for 'gopher'"),
        ("openai.chat", "{}", "not one of openai.chat: the body has no list 'messages'"),
        ("openai.chat", "torn", "not one of openai.chat"),
        ("openai.responses", "[]", "not one of openai.responses"),
        ("openai.responses", '{"input":{}}', "the body has no list 'input'"),
    ],
)
def test_a_body_that_is_not_of_its_api_is_refused(api, body, message):
    with pytest.raises(UsageError, match=message):
        rebuild_body(api, body, (FULL,))


def test_overrides_change_their_own_values_and_no_other_byte():
    body = '{ "temperature" : 0.70, "nested":{"temperature":9}, "seed":1 }'
    changed = apply_overrides(body, [Override("temperature", 0), Override("top_p", 1.0)])
    assert changed == ('{ "temperature" : 0, "nested":{"temperature":9}, "seed":1 ,"top_p":1.0}')
    assert apply_overrides(body, []) == body


def test_a_body_that_cannot_be_overridden_is_refused_with_a_way_out():
    with pytest.raises(UsageError, match="cannot be overridden") as caught:
        apply_overrides("torn", [Override("seed", 1)])
    assert "--sampling recorded" in caught.value.hint


def test_arguments_and_results_are_written_as_they_were():
    assert arguments_text(CallAsked("t", arguments_text="")) == ""
    assert result_text(Raw(b'"a\\u00e9\\ud83d"')) == "aé\ud83d"
    assert result_text(Raw(b"[1.0]")) == "[1.0]"


def test_the_neutral_history_holds_the_record_and_then_the_turns():
    recording = record(
        user("hi"),
        decide(call("t", {"a": 1}, "c1"), call("gone", {}, "c2"), text="look"),
        result("c1", {"n": [1]}),
        user("go on"),
        decide(text="done"),
    )
    pairing = pair_path(recording.index, recording.trajectory, recording.reader)
    (told,) = read_turns(
        [Turn(2, "more", users=(recording.trajectory.steps[1].before))], recording.reader
    )
    assert told.users == ("go on",)
    history = read_messages(recording.trajectory, pairing, recording.reader, 2, [told, FULL])
    assert [message["role"] for message in history] == [
        *("user", "assistant", "tool", "user"),
        *("assistant", "user"),
        *("assistant", "tool", "tool", "tool", "user"),
    ]
    assert history[1]["tool_calls"][0] == {"call_id": "c1", "name": "t", "arguments": {"a": 1}}
    assert history[2] == {"role": "tool", "call_id": "c1", "content": {"n": [1]}, "status": "ok"}
    assert history[6]["tool_calls"][1]["call_id"] == "call_2_2"
    assert history[8]["status"] == "error"
    first = read_messages(recording.trajectory, pairing, recording.reader, 1)
    assert first == ({"role": "user", "content": "hi"},)
    beyond = read_messages(recording.trajectory, pairing, recording.reader, 9)
    assert beyond[-1] == {"role": "assistant", "content": "done"}


def test_a_result_without_a_value_is_no_content():
    recording = record(
        decide(call("t", {}, "c1")),
        {"type": "tool_result", "call_id": "c1", "name": "t"},
        {"type": "model_error", "status": 500},
        decide(text="x"),
    )
    pairing = pair_path(recording.index, recording.trajectory, recording.reader)
    history = read_messages(recording.trajectory, pairing, recording.reader, 2)
    assert history[-1]["content"] is None
