import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from redrive.errors import ModelError
from redrive.models.anthropic import open_model
from redrive.models.options import ModelOptions
from redrive.replay.anthropic_answers import parse_message
from redrive.replay.ports import CallAsked, ModelQuery, ModelReply, Override

BODY = '{"model":"c-1", "max_tokens":64,"messages":[{"role":"user","content":"é"}]}'
ANSWER = {
    "type": "message",
    "model": "c-1-2026",
    "content": [
        {"type": "thinking", "thinking": "hm"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "t1", "name": "read", "input": {"n": 1.0}},
        {"type": "tool_use", "id": "t2", "name": "list", "input": {}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 9, "output_tokens": 4, "cache_read_input_tokens": 0},
}


def asked(
    server: Any, answer: bytes, *, name: str = "", path: str = "", **options: Any
) -> ModelReply:
    server.answers = [(200, answer)]
    model = open_model(f"{name}@{server.url}{path}", ModelOptions(**options))
    try:
        return model.decide(ModelQuery(1, api="anthropic.messages", body=BODY))
    finally:
        model.close()


def sse(*events: dict[str, Any]) -> bytes:
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


START = {
    "type": "message_start",
    "message": {
        "model": "c-1-2026",
        "content": [],
        "usage": {"input_tokens": 9, "output_tokens": 1},
    },
}
STREAM = (
    START,
    *block(0, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "x"}),
    {"type": "ping"},
    *block(
        1,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "I "},
        {"type": "text_delta", "text": "look."},
    ),
    *block(
        2,
        {"type": "tool_use", "id": "t1", "name": "read", "input": {}},
        {"type": "input_json_delta", "partial_json": ""},
        {"type": "input_json_delta", "partial_json": '{"n": '},
        {"type": "input_json_delta", "partial_json": "1.0}"},
    ),
    *block(3, {"type": "tool_use", "id": "t2", "name": "list", "input": {}}),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 4}},
    {"type": "message_stop"},
)


@pytest.mark.parametrize("path", ["", "/v1"])
def test_the_recorded_body_is_sent_byte_for_byte(server: Any, path: str) -> None:
    asked(server, json.dumps(ANSWER).encode(), path=path, environment={"ANTHROPIC_API_KEY": "k"})
    sent = server.received[0]
    assert sent.body == BODY.encode()
    assert sent.path == "/v1/messages"
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert sent.headers["x-api-key"] == "k"


def test_a_message_becomes_text_and_calls(server: Any) -> None:
    reply = asked(server, json.dumps(ANSWER).encode())
    assert "x-api-key" not in server.received[0].headers
    assert reply.calls == (
        CallAsked("read", Raw(b'{"n":1.0}'), None, "t1"),
        CallAsked("list", Raw(b"{}"), None, "t2"),
    )
    assert (reply.text, reply.is_final) == ("I look.", False)
    assert reply.model is not None
    assert (reply.model.requested, reply.model.served) == ("c-1", "c-1-2026")
    assert reply.usage["cache_read_input_tokens"] == 0


def test_a_stream_is_assembled_with_its_argument_text_verbatim(server: Any) -> None:
    reply = asked(server, sse(*STREAM))
    assert reply.calls == (
        CallAsked("read", UNSET, '{"n": 1.0}', "t1"),
        CallAsked("list", Raw(b"{}"), None, "t2"),
    )
    assert (reply.text, reply.is_final) == ("I look.", False)
    assert reply.usage == {"input_tokens": 9, "output_tokens": 4}


def test_another_name_is_an_override(server: Any) -> None:
    reply = asked(server, json.dumps(ANSWER).encode(), name="c-2")
    assert server.received[0].body == BODY.replace('"c-1"', '"c-2"').encode()
    assert reply.overrides == (Override("model", "c-2"),)


def test_a_call_without_input_has_no_arguments() -> None:
    answer = parse_message(b'{"content":[{"type":"tool_use","name":"a"}]}')
    assert answer.calls == (CallAsked("a"),)


@pytest.mark.parametrize("n_events", range(1, len(STREAM)))
def test_a_stream_cut_after_any_event_is_a_model_error(server: Any, n_events: int) -> None:
    with pytest.raises(ModelError, match="ended before its end"):
        asked(server, sse(*STREAM[:n_events]))


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"type":"error","error":{"message":"overloaded"}}',
        sse({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        sse(START, {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}}),
        sse(START, *block(0, {"type": "text"}, {"type": "text_delta"})),
        sse({"type": "message_start"}),
        b'{"content":[{"type":"tool_use"}]}',
    ],
)
def test_an_error_or_a_malformed_message_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"answer|error|piece"):
        parse_message(answer)
