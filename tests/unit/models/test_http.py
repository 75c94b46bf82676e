import json
import sys
from typing import Any

import pytest

from redrive.errors import ModelError, UsageError
from redrive.models import http
from redrive.models.http import (
    Endpoint,
    HttpClient,
    body_bytes,
    parse_endpoint,
    redact,
)
from redrive.replay.answers import decode_answer, error_reason, is_stream, parse_sse

KEY = "sk-live-9f8e7d6c5b4a"


def post(server: Any, body: str = "{}", timeout_s: float = 10.0) -> bytes:
    client = HttpClient({"authorization": f"Bearer {KEY}"}, KEY, timeout_s)
    try:
        return client.post(f"{server.url}/v1/x", body)
    finally:
        client.close()


def test_the_body_goes_out_byte_for_byte(server: Any) -> None:
    server.answers = [(200, b"{}")]
    body = '{ "a" : 0.30000000000000004,\n\t"b":"é \\ud83d","a":1}  '
    assert post(server, body) == b"{}"
    assert server.received[0].body == body.encode()
    assert server.received[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_body_with_a_lone_surrogate_cannot_be_sent_and_nothing_is(server: Any) -> None:
    with pytest.raises(UsageError, match=r"U\+D83D at character 1"):
        post(server, "a\ud83d")
    assert server.received == []
    assert body_bytes('"\\ud83d"') == b'"\\ud83d"'


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 429, 500, 503])
def test_another_status_is_a_model_error_with_the_providers_reason(
    server: Any, status: int
) -> None:
    server.answers = [(status, b'{"error":{"type":"some_type","message":"slow down"}}')]
    with pytest.raises(ModelError, match=f"answered {status}: some_type: slow down") as caught:
        post(server)
    assert caught.value.where.endswith("/v1/x")
    assert len(server.received) == 1, "an error is not retried"


def test_half_an_answer_is_a_model_error(server: Any) -> None:
    server.answers = [(200, b'{"half":')]
    server.promised = 100
    with pytest.raises(ModelError, match="half an answer"):
        post(server)


def test_no_server_is_a_model_error() -> None:
    client = HttpClient({}, "", 5.0)
    with pytest.raises(ModelError, match="no connection to the model"):
        client.post("http://127.0.0.1:1/v1", "{}")
    client.close()


def test_an_answer_that_takes_too_long_is_a_model_error(server: Any) -> None:
    server.answers = [(200, b"{}")]
    server.delay_s = 5.0
    with pytest.raises(ModelError, match=r"within 0\.1 s"):
        post(server, timeout_s=0.1)


def test_a_dripping_or_endless_answer_is_stopped(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers = [(200, b"{}" * 10), (200, b"{}")]
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(ModelError, match="more than 10 bytes"):
        post(server)
    ticks = iter([0.0, 100.0])
    monkeypatch.setattr(http.time, "monotonic", lambda: next(ticks))
    with pytest.raises(ModelError, match="no whole answer within 10 s"):
        post(server)


@pytest.mark.parametrize(
    "message",
    [
        f"Incorrect API key provided: {KEY}.",
        f"Incorrect API key provided: {KEY[:8]}********{KEY[-4:]}. Find it in your settings.",
        f"key ending in ...{KEY[-4:]} is disabled",
    ],
)
def test_a_key_or_half_of_it_never_stands_in_an_error(server: Any, message: str) -> None:
    server.answers = [(401, json.dumps({"error": {"message": message}}).encode())]
    with pytest.raises(ModelError, match="401") as caught:
        post(server)
    text = f"{caught.value.message} {caught.value.where} {caught.value.hint}"
    assert "[redacted]" in text
    assert KEY[:8] not in text
    assert KEY[-4:] not in text


def test_a_reason_is_one_short_line_without_control_characters() -> None:
    assert redact("two\nlines \x1b[31mred", "") == "two lines ?[31mred"
    assert redact("a task-list, sk-abc and key-1", "") == "a task-list, [redacted] and [redacted]"
    assert len(redact("long " * 200, "")) == http.MAX_REASON_CHARS


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"error":"plain"}', "plain"),
        (b'{"error":{"type":"t","code":"t","message":"m"}}', "t: m"),
        (b'{"message":"m"}', "m"),
        (b'{"error":[1]}', ""),
        (b"[1]", ""),
        (b"<html>", ""),
    ],
)
def test_a_providers_reason_is_found_where_there_is_one(data: bytes, reason: str) -> None:
    assert error_reason(data) == reason


def test_without_httpx2_the_hint_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(UsageError, match="httpx2") as caught:
        HttpClient({}, "", 1.0).post("http://127.0.0.1:1", "{}")
    assert caught.value.hint == "pip install 'redrive[http]'"


@pytest.mark.parametrize(
    ("argument", "endpoint"),
    [
        ("gpt-x@https://api.example.test/v1/", Endpoint("gpt-x", "https://api.example.test/v1")),
        ("@http://127.0.0.1:8080", Endpoint("", "http://127.0.0.1:8080")),
        ("org@team/m@http://[::1]:80", Endpoint("org@team/m", "http://[::1]:80")),
    ],
)
def test_an_endpoint_is_a_name_and_a_url(argument: str, endpoint: Endpoint) -> None:
    assert parse_endpoint("openai", argument) == endpoint


@pytest.mark.parametrize(
    "argument",
    [
        "gpt-x",
        "gpt-x@ftp://h",
        "gpt-x@http://",
        "gpt-x@httpx://h",
        "gpt-x@http://user:secret@h",
        "gpt-x@http://h?key=secret",
        "gpt-x@http://h#secret",
    ],
)
def test_a_bad_endpoint_is_a_usage_error_that_quotes_no_secret(argument: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_endpoint("openai", argument)
    assert "secret" not in caught.value.message + caught.value.hint


def test_an_answer_must_be_one_object() -> None:
    assert decode_answer(b'{"a":1}') == {"a": 1}
    with pytest.raises(ValueError, match="no JSON object"):
        decode_answer(b"[]")
    with pytest.raises(ValueError, match=r"."):
        decode_answer(b'{"a":')


def test_a_stream_gives_whole_events_only() -> None:
    data = b": comment\r\nevent: x\r\ndata: one\r\ndata:two\r\n\r\ndata: three\n\ndata: cut"
    assert is_stream(data)
    assert list(parse_sse(data)) == ["one\ntwo", "three"]
    assert not is_stream(b' {"a":1}')


def test_each_request_has_a_connection_of_its_own(server: Any) -> None:
    server.answers = [(200, b"{}"), (200, b"{}")]
    client = HttpClient({}, "", 10.0)
    client.post(server.url, "{}")
    client.post(server.url, "{}")
    client.close()
    client.close()
    assert len({request.client_port for request in server.received}) == 2
