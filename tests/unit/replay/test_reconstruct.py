import json

import pytest

from redrive.errors import UsageError
from redrive.replay.reconstruct import Frame, reconstruct_body

HISTORY = (
    {"role": "user", "content": "go"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"call_id": "a", "name": "f", "arguments": {"x": 1}},
            {"call_id": "b", "name": "g", "arguments": "not json"},
        ],
    },
    {"role": "tool", "call_id": "a", "content": {"rows": 0}, "status": "ok"},
    {"role": "tool", "call_id": "b", "content": "boom", "status": "error"},
    {"role": "assistant", "content": "done"},
)
FRAME = Frame(model="m", system="be brief", tools=({"name": "f"},))


def built(api, frame=FRAME, history=HISTORY):
    return json.loads(reconstruct_body(api, frame, history))


def test_a_chat_body_carries_calls_and_results_in_its_own_form():
    body = built("openai.chat")
    assert body["model"] == "m"
    assert body["tools"] == [{"name": "f"}]
    assert body["messages"][0] == {"role": "system", "content": "be brief"}
    assert body["messages"][2] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "not json"}},
        ],
    }
    assert body["messages"][3] == {"role": "tool", "tool_call_id": "a", "content": '{"rows":0}'}
    assert body["messages"][5] == {"role": "assistant", "content": "done"}


def test_a_responses_body_is_a_list_of_items():
    body = built("openai.responses")
    assert body["instructions"] == "be brief"
    assert [item.get("type", item.get("role")) for item in body["input"]] == [
        "user",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "assistant",
    ]
    said = built("openai.responses", history=[{**HISTORY[1], "content": "I look"}])
    assert [item.get("type", item.get("role")) for item in said["input"]][:2] == [
        "assistant",
        "function_call",
    ]


def test_a_messages_body_gives_the_results_of_one_answer_back_together():
    body = built("anthropic.messages")
    assert (body["system"], body["max_tokens"]) == ("be brief", 4096)
    user, calls, results, last = body["messages"]
    assert user == {"role": "user", "content": "go"}
    assert [block["type"] for block in calls["content"]] == ["tool_use", "tool_use"]
    assert [block["tool_use_id"] for block in results["content"]] == ["a", "b"]
    assert results["content"][1]["is_error"] is True
    assert last["content"] == [{"type": "text", "text": "done"}]


def test_recorded_content_blocks_stay_blocks_and_other_values_become_text():
    blocks = [{"type": "text", "text": "hi"}]
    for content, wanted in ((blocks, blocks), ([], "[]"), ([1], "[1]"), (None, "null")):
        body = built(
            "anthropic.messages", Frame(), [{"role": "tool", "call_id": "a", "content": content}]
        )
        assert body["messages"][0]["content"][0]["content"] == wanted
    assert "model" not in body
    assert "system" not in body


def test_an_empty_frame_adds_nothing():
    assert built("openai.chat", Frame(), HISTORY[:1]) == {
        "messages": [{"role": "user", "content": "go"}]
    }
    assert built("openai.responses", Frame(), HISTORY[:1]) == {
        "input": [{"role": "user", "content": "go"}]
    }


def test_another_api_is_refused():
    with pytest.raises(UsageError, match="no request can be built"):
        reconstruct_body("other", FRAME, HISTORY)
