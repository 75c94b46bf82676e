import gzip
import json
import zlib
from typing import Any

import pytest
import zstandard
from msgspec import UNSET, Raw

from redrive.capture.exchanges import (
    answer_facts,
    decode_content,
    encodings_of,
    find_api,
    request_payload,
    usage_of,
)
from redrive.record.event import FLAG_MALFORMED, FLAG_UNREPRESENTABLE, Kind, Usage, Wire
from tests.recorded import asks, chat_answer

WIRE = Wire("x1", status=200, attempt=1, outcome="complete")


def facts(data: bytes, wire: Wire = WIRE, api: str = "openai.chat", **options: Any) -> Any:
    settings = {"decisions": "tool_calls", "engine": None} | options
    return answer_facts(api, data, wire, **settings)


@pytest.mark.parametrize(
    ("method", "url", "api"),
    [
        ("POST", "https://a/v1/chat/completions", "openai.chat"),
        ("POST", "https://a/openai/deployments/x/chat/completions?api-version=1", "openai.chat"),
        ("POST", "https://a/v1/responses/", "openai.responses"),
        ("POST", "https://a/v1/messages", "anthropic.messages"),
        ("POST", "https://a/v1/messages/count_tokens", None),
        ("GET", "https://a/v1/chat/completions", None),
        ("POST", "https://a/v1/embeddings", None),
        ("POST", "https://a/v1/threads/t1/messages", None),
    ],
)
def test_the_path_names_the_api(method: str, url: str, api: str | None) -> None:
    assert find_api(method, url) == api


def test_a_body_that_is_no_text_has_no_payload() -> None:
    assert request_payload("openai.chat", b"\xff", WIRE) is None


@pytest.mark.parametrize("body", [b"{", b"[1]", b'{"model": 3}'])
def test_a_body_that_names_no_model_is_kept_all_the_same(body: bytes) -> None:
    payload = request_payload("openai.chat", body, WIRE)
    assert payload is not None
    assert (payload.model, payload.body) == (None, body.decode())


def test_an_answer_is_its_text_and_its_calls_with_the_ids_of_the_api() -> None:
    answer = chat_answer("so", asks("c1", "look", '{"a": 1.0}'))
    response, call = facts(answer)
    assert (response.kind, response.payload.text, response.payload.model) == (
        Kind.MODEL_RESPONSE,
        "so",
        "m-1",
    )
    assert (call.kind, call.call_id) == (Kind.TOOL_CALL, "c1")
    assert call.payload.arguments_text == '{"a": 1.0}'


def test_a_call_without_an_id_is_named_by_its_exchange() -> None:
    call = {"type": "function", "function": {"name": "look", "arguments": {"n": 1}}}
    assert [fact.call_id for fact in facts(chat_answer("", call))[1:]] == ["x1:1"]


def test_a_number_without_an_exact_form_is_flagged_and_stays_text_where_it_was_text() -> None:
    digits = "1" * 5000
    function = '{"name": "look", "arguments": {"n": ' + digits + "}}"
    data = '{"choices": [{"message": {"tool_calls": [{"function": ' + function + "}]}}]}"
    assert facts(data.encode())[0].flags == (FLAG_UNREPRESENTABLE,)
    decided = chat_answer('{"tool": "look", "arguments": {"n": ' + digits + "}}")
    response, call = facts(decided, decisions="json_content")
    assert (response.flags, call.payload.arguments) == ((), UNSET)
    assert digits in call.payload.arguments_text


@pytest.mark.parametrize(("number", "flags"), [("0.5", ()), ("1" * 5000, (FLAG_UNREPRESENTABLE,))])
def test_a_streamed_answer_is_flagged_only_for_its_own_numbers(
    number: str, flags: tuple[str, ...]
) -> None:
    chunk = '{"choices":[{"index":0,"delta":{"content":"so"},"finish_reason":"stop","n":%s}]}'
    data = f"data: {chunk % number}\n\ndata: [DONE]\n\n".encode()
    (response,) = facts(data)
    assert (response.payload.text, response.flags) == ("so", flags)


def test_the_engine_that_the_recorder_started_is_named_before_what_the_server_says() -> None:
    assert facts(chat_answer("x"), engine="sha256:e")[0].payload.fingerprint == "sha256:e"


def test_a_decision_in_an_answer_text_is_a_call_where_that_was_declared() -> None:
    answer = chat_answer('{"tool": "look", "arguments": {"a": 1}}')
    assert len(facts(answer)) == 1
    response, call = facts(answer, decisions="json_content")
    assert (call.payload.tool, bytes(call.payload.arguments), call.call_id) == (
        "look",
        b'{"a": 1}',
        "x1",
    )
    assert len(facts(chat_answer("words"), decisions="json_content")) == 1
    assert response.payload.text.startswith("{")


def test_a_refusal_is_an_error_with_status_and_reason() -> None:
    body = json.dumps({"error": {"type": "overloaded", "message": "wait"}}).encode()
    (error,) = facts(body, Wire("x1", status=529, attempt=2, outcome="complete"))
    assert error.kind is Kind.MODEL_ERROR
    assert (error.payload.status, error.payload.attempt) == (529, 2)
    assert error.payload.message == "overloaded: wait"


def test_an_error_inside_a_stream_is_an_error() -> None:
    data = b'data: {"error": {"message": "no"}}\n\n'
    assert [fact.kind for fact in facts(data)] == [Kind.MODEL_ERROR]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [("cancelled", "cancelled by the agent after 5"), ("cut", "too early, after 5")],
)
def test_half_an_answer_is_an_error_that_says_who_ended_it(outcome: str, words: str) -> None:
    (error,) = facts(b"data:", Wire("x1", status=200, outcome=outcome))
    assert words in error.payload.message


def test_an_answer_that_is_whole_is_one_although_the_agent_closed_the_stream_behind_it() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "7"}, "finish_reason": "stop"}]}
    data = f"data: {json.dumps(chunk)}\n\n".encode()
    (response,) = facts(data, Wire("x1", status=200, outcome="cancelled"))
    assert (response.kind, response.payload.text) == (Kind.MODEL_RESPONSE, "7")
    assert response.payload.wire.outcome == "cancelled"


def test_no_answer_is_an_error_with_what_failed() -> None:
    (error,) = facts(b"", Wire("x1", outcome="failed"), message="ConnectError")
    assert (error.payload.status, error.payload.message) == (None, "ConnectError")


def test_an_error_in_an_unknown_encoding_has_no_reason() -> None:
    wire = Wire("x1", status=500, outcome="complete", encoding=("br",))
    assert facts(b"{}", wire)[0].payload.message is None


@pytest.mark.parametrize("data", [b"{}", b"data: {}\n\n", b"\xff", b""])
def test_an_answer_that_cannot_be_read_is_malformed_and_not_a_fault_of_the_agent(
    data: bytes,
) -> None:
    (response,) = facts(data)
    assert (response.kind, response.flags) == (Kind.MODEL_RESPONSE, (FLAG_MALFORMED,))


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("gzip", gzip.compress(b"words", mtime=0)),
        ("deflate", zlib.compress(b"words")),
        ("deflate", zlib.compress(b"words")[2:-4]),
        ("zstd", zstandard.compress(b"words")),
    ],
)
def test_content_encodings_are_undone(encoding: str, data: bytes) -> None:
    assert decode_content(data, (encoding,)) == b"words"


def test_encodings_are_undone_in_the_order_opposite_to_the_headers() -> None:
    headers = (("content-encoding", "gzip, ZSTD"), ("content-encoding", "identity"))
    assert encodings_of(headers) == ("gzip", "zstd")
    assert (
        decode_content(zstandard.compress(gzip.compress(b"a", mtime=0)), ("gzip", "zstd")) == b"a"
    )


@pytest.mark.parametrize(("encoding", "data"), [("gzip", b"x"), ("zstd", b"x"), ("br", b"")])
def test_what_is_not_in_its_encoding_is_refused(encoding: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=encoding):
        decode_content(data, (encoding,))


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_bomb_is_refused(compress: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redrive.capture.exchanges.MAX_ANSWER_BYTES", 1000)
    name = "gzip" if compress is gzip.compress else "zstd"
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        decode_content(compress(b"0" * 100_000), (name,))


def test_usage_is_read_by_the_names_of_every_api() -> None:
    assert usage_of({"prompt_tokens": 1, "prompt_tokens_details.cached_tokens": 0}) == Usage(
        input_tokens=1, cache_read_tokens=0
    )
    assert usage_of({"input_tokens": 2, "cache_creation_input_tokens": 3}) == Usage(
        input_tokens=2, cache_write_tokens=3
    )
    assert usage_of({}) is None


def test_raw_arguments_stay_the_bytes_that_the_model_wrote() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "look", "input": {"x": 1.0}}
    data = json.dumps({"type": "message", "content": [block]}).encode()
    call = facts(data, api="anthropic.messages")[1].payload
    assert call.arguments == Raw(b'{"x":1.0}')
