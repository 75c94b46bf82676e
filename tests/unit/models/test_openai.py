import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from redrive.errors import ModelError, UsageError
from redrive.models.openai import OpenAiModel, open_model
from redrive.models.options import ModelOptions
from redrive.replay.openai_answers import parse_chat, parse_responses
from redrive.replay.ports import CallAsked, ModelQuery, ModelReply, Override

BODY = '{"model": "m-1",  "messages":[],"temperature":0.7, "seed":7,"x":1e0}'
ANSWER = {
    "model": "m-1-2026",
    "system_fingerprint": "fp_a",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "message": {
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "a", "arguments": '{"x": 1.0}'},
                    },
                    {"id": "c2", "type": "function", "function": {"name": "b", "arguments": ""}},
                ],
            },
        }
    ],
    "usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}, "cost": 0.1},
}


def asked(
    server: Any, answer: object, body: str = BODY, *, name: str = "", **options: Any
) -> ModelReply:
    server.answers = [(200, answer if isinstance(answer, bytes) else json.dumps(answer).encode())]
    model = open_model(f"{name}@{server.url}", ModelOptions(**options))
    try:
        return model.decide(ModelQuery(1, api="openai.chat", body=body))
    finally:
        model.close()


def chat_text(content: object) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}


def sse(*events: object, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def test_the_recorded_body_is_sent_byte_for_byte_with_temperature_and_seed(server: Any) -> None:
    reply = asked(server, ANSWER)
    sent = server.received[0]
    assert sent.body == BODY.encode()
    assert (json.loads(sent.body)["temperature"], json.loads(sent.body)["seed"]) == (0.7, 7)
    assert sent.path == "/v1/chat/completions"
    assert "authorization" not in sent.headers
    assert reply.overrides == ()


def test_an_answer_becomes_calls_with_their_argument_text_verbatim(server: Any) -> None:
    reply = asked(server, ANSWER)
    assert reply.calls == (
        CallAsked("a", UNSET, '{"x": 1.0}', "c1"),
        CallAsked("b", UNSET, "", "c2"),
    )
    assert (reply.text, reply.is_final) == ("", False)
    assert reply.usage == {"prompt_tokens": 5, "prompt_tokens_details.cached_tokens": 0}
    assert reply.model is not None
    assert (reply.model.requested, reply.model.served) == ("m-1", "m-1-2026")
    assert reply.model.fingerprint == "fp_a"
    assert reply.latency_s is not None


def test_an_answer_without_calls_is_final(server: Any) -> None:
    reply = asked(server, chat_text("done"))
    assert (reply.text, reply.calls, reply.is_final) == ("done", (), True)


def test_another_name_replaces_the_bytes_of_model_alone_and_is_reported(server: Any) -> None:
    reply = asked(server, chat_text("x"), name="m-2")
    assert server.received[0].body == BODY.replace('"m-1"', '"m-2"').encode()
    assert reply.overrides == (Override("model", "m-2"),)
    assert reply.model is not None
    assert reply.model.requested == "m-2"


def test_the_recorded_name_given_again_changes_nothing(server: Any) -> None:
    assert asked(server, chat_text("x"), name="m-1").overrides == ()
    assert server.received[0].body == BODY.encode()


def test_the_key_comes_from_the_given_environment(server: Any) -> None:
    asked(server, chat_text("x"), environment={"OPENAI_API_KEY": "sk-1"})
    assert server.received[0].headers["authorization"] == "Bearer sk-1"


def test_a_decision_in_json_content_is_a_call(server: Any) -> None:
    text = '{"tool": "look_up", "arguments": {"code": "E08"}}'
    reply = asked(server, chat_text(text), decisions="json_content")
    assert reply.calls == (CallAsked("look_up", Raw(b'{"code": "E08"}')),)
    assert (reply.text, reply.is_final) == (text, False)
    assert asked(server, chat_text(text)).is_final, "without the declaration it is a text"
    assert asked(server, chat_text("plain"), decisions="json_content").is_final


@pytest.mark.parametrize("path", ["", "/v1", "/v1/", "/proxy/openai"])
def test_a_url_works_with_and_without_its_version(server: Any, path: str) -> None:
    server.answers = [(200, json.dumps(chat_text("x")).encode())]
    model = open_model(f"@{server.url}{path}", ModelOptions())
    model.decide(ModelQuery(1, api="openai.chat", body=BODY))
    model.close()
    base = path.rstrip("/") or "/v1"
    assert server.received[0].path == f"{base}/chat/completions"


@pytest.mark.parametrize(
    ("api", "body", "message"),
    [
        ("openai.chat", None, "no recorded request"),
        (None, "{}", "no recorded request"),
        ("anthropic.messages", "{}", "for anthropic.messages"),
        ("openai.chat", "{", "not JSON"),
    ],
)
def test_a_query_that_cannot_be_sent_is_a_usage_error_naming_the_decision(
    server: Any, api: str | None, body: str | None, message: str
) -> None:
    model = OpenAiModel("openai:@x", "m-2", server.url, ModelOptions())
    with pytest.raises(UsageError, match=message) as caught:
        model.decide(ModelQuery(3, api=api, body=body))
    assert caught.value.where == "decision 3"
    assert server.received == []


def test_a_body_that_is_no_object_names_no_model(server: Any) -> None:
    server.answers = [(200, json.dumps(chat_text("x")).encode())]
    model = open_model(f"@{server.url}", ModelOptions())
    reply = model.decide(ModelQuery(1, api="openai.chat", body="[]"))
    model.close()
    assert reply.model is not None
    assert reply.model.requested is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"choices":[{"message":{"content":"ha',
        b'{"choices":[]}',
        b'{"choices":[{}]}',
        b'{"choices":[{"message":{"tool_calls":[{"id":"c1"}]}}]}',
        b'{"choices":[{"message":{"tool_calls":[{"function":{"name":1}}]}}]}',
        b'{"error":{"message":"overloaded"}}',
        sse({"choices": [{"delta": {"content": "ha"}}]}, done=False),
        sse(),
        sse({"error": {"message": "overloaded"}}),
        b"data: {half\n\n",
        b"data: \xff\n\n",
        sse({"choices": [{"delta": {"tool_calls": [{"id": "c"}]}}]}),
    ],
)
def test_a_malformed_or_half_answer_is_a_model_error(server: Any, answer: bytes) -> None:
    with pytest.raises(ModelError, match="malformed answer, or half of one"):
        asked(server, answer)


def test_a_streamed_answer_equals_the_whole_one(server: Any) -> None:
    def delta(**fields: object) -> dict[str, Any]:
        return {"model": "m-1-2026", "choices": [{"index": 0, "delta": fields}]}

    def piece(index: int, arguments: str, **fields: object) -> dict[str, Any]:
        function = {"arguments": arguments} | fields.pop("function", {})  # type: ignore[operator]
        return {"index": index, "function": function, **fields}

    stream = sse(
        delta(role="assistant", content=None),
        delta(tool_calls=[piece(0, "", id="c1", type="function", function={"name": "a"})]),
        delta(tool_calls=[piece(1, "", id="c2", type="function", function={"name": "b"})]),
        delta(tool_calls=[piece(0, '{"x"')]),
        delta(tool_calls=[piece(0, ": 1.0}")]),
        {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "system_fingerprint": "fp_a", "usage": ANSWER["usage"]},
    )
    streamed, whole = asked(server, stream), asked(server, ANSWER)
    for field in ("text", "calls", "is_final", "model", "usage"):
        assert getattr(streamed, field) == getattr(whole, field)


def test_streamed_text_is_joined() -> None:
    stream = sse(*({"choices": [{"delta": {"content": c}}]} for c in ("he", "llo")))
    assert parse_chat(stream).text == "hello"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({"content": None, "refusal": "no"}, "no"),
        ({"content": 5}, ""),
    ],
)
def test_text_in_parts_and_refusals_are_read(message: dict[str, Any], text: str) -> None:
    answer = {"choices": [{"message": message}]}
    assert parse_chat(json.dumps(answer).encode()).text == text


def test_custom_tools_and_argument_objects_are_kept_as_they_are() -> None:
    calls = [
        {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}},
        {"id": "c2", "function": {"name": "f", "arguments": {"n": 18446744073709551617}}},
        {"id": "c3", "function": {"name": "g"}},
    ]
    answer = parse_chat(json.dumps({"choices": [{"message": {"tool_calls": calls}}]}).encode())
    assert answer.calls == (
        CallAsked("sql", UNSET, "select 1", "c1"),
        CallAsked("f", Raw(b'{"n":18446744073709551617}'), None, "c2"),
        CallAsked("g", UNSET, None, "c3"),
    )


RESPONSE = {
    "model": "m-1-2026",
    "error": None,
    "output": [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}]},
        {"type": "function_call", "call_id": "c1", "name": "a", "arguments": '{"x":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "select 1"},
    ],
    "usage": {"input_tokens": 3},
}


def test_a_response_object_is_read_whole_and_from_its_stream(server: Any) -> None:
    server.answers = [
        (200, json.dumps(RESPONSE).encode()),
        (
            200,
            sse(
                {"type": "response.output_text.delta", "delta": "Let"},
                {"type": "response.completed", "response": RESPONSE},
                done=False,
            ),
        ),
    ]
    model = open_model(f"@{server.url}", ModelOptions())
    query = ModelQuery(1, api="openai.responses", body='{"model":"m-1","stream":true}')
    whole, streamed = model.decide(query), model.decide(query)
    model.close()
    assert server.received[0].path == "/v1/responses"
    assert whole.calls == (
        CallAsked("a", UNSET, '{"x":1}', "c1"),
        CallAsked("sql", UNSET, "select 1", "c2"),
    )
    assert (whole.text, whole.is_final, whole.usage) == ("Let me see.", False, {"input_tokens": 3})
    assert (streamed.text, streamed.calls, streamed.model) == (whole.text, whole.calls, whole.model)


@pytest.mark.parametrize(
    "answer",
    [
        b"{}",
        b'{"output":[],"error":{"message":"boom"}}',
        b'{"output":[{"type":"function_call"}]}',
        sse({"type": "response.created"}),
        sse({"type": "error", "message": "boom"}),
        sse({"type": "response.completed"}),
        sse({"type": "response.failed", "response": {"error": {"message": "boom"}}}),
    ],
)
def test_a_response_without_its_end_or_with_an_error_is_refused(answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"answer|error|stream"):
        parse_responses(answer)
