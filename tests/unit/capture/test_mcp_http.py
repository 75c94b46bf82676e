import gzip
import json
from typing import Any

import pytest
from msgspec import Raw

from redrive.capture import mcp_http
from redrive.capture.mcp_http import EventSplitter, McpHttp
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer, ServedResult
from redrive.errors import StoreError
from tests.mcp_reporter import Connection, call, notification, request, result, text

JSON = (("content-type", "application/json; charset=utf-8"),)
EVENTS = (("content-type", "text/event-stream"),)


class Http:
    """An observed HTTP connection to a server."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.reporter = self.connection.reporter
        self.http = McpHttp(self.connection.observer)

    def send(self, message: Any = None, *, method: str = "POST", session: str = "") -> Any:
        headers: Headers = (("mcp-session-id", session),) if session else ()
        body = b"" if message is None else json.dumps(message).encode()
        return self.http.sent(SentRequest(method, "https://tools.example/mcp", headers, body, 1))

    def calls(self) -> list[Any]:
        return [entry[:3] for entry in self.reporter.calls() if entry[0] != "call"]


def answer(
    exchange: Any,
    data: bytes,
    headers: Headers = JSON,
    status: int = 200,
    outcome: Outcome = Outcome.COMPLETE,
) -> None:
    exchange.responded(status, headers, 2)
    for start in range(0, len(data), 7):
        exchange.received(data[start : start + 7])
    exchange.finished(outcome, 3, "broken")


def event(message: Any) -> bytes:
    return b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n"


def test_an_answer_in_json_ends_its_call():
    http = Http()
    exchange = http.send(call(1, "read"))
    assert http.reporter.calls()[0][:2] == ("call", "read")
    answer(exchange, json.dumps(result(1, content=[])).encode())
    assert http.calls() == [("returned", "read", b'{"content": []}')]


def test_an_event_of_a_stream_is_seen_when_its_last_byte_is_there():
    http = Http()
    exchange = http.send(call(1, "slow", _meta={"progressToken": 5}))
    exchange.responded(200, EVENTS, 2)
    exchange.received(event(notification("notifications/progress", progressToken=5, progress=1)))
    data = event(result(1, content=text("ä")))
    exchange.received(data[:-2])
    assert http.calls() == []
    exchange.received(data[-2:])
    assert http.calls()[0][:2] == ("returned", "slow")
    exchange.finished(Outcome.COMPLETE, 3)
    assert http.reporter.notes("progress")[0]["n"] == 1


def test_equal_ids_of_exchanges_without_a_session_are_apart():
    http = Http()
    first, second = http.send(call(1, "a")), http.send(call(1, "b"))
    answer(second, json.dumps(result(1, content=[])).encode())
    answer(first, json.dumps(result(1, content=[])).encode())
    assert [entry[1] for entry in http.calls()] == ["b", "a"]


def test_in_a_session_an_answer_may_come_on_another_stream():
    http = Http()
    exchange = http.send(call(1, "slow"), session="s")
    answer(exchange, b"", EVENTS, outcome=Outcome.CANCELLED)
    assert http.calls() == []
    stream = http.send(method="GET", session="s")
    answer(stream, event(request(9, "roots/list")) + event(result(1, content=[])), EVENTS)
    answer(http.send(result(9, roots=[]), session="s"), b"", (), status=202)
    assert http.calls() == [("returned", "slow", b'{"content": []}')]
    assert http.reporter.notes("client_answer")[0]["method"] == "roots/list"


def test_the_end_of_a_session_ends_what_was_asked_in_it():
    http = Http()
    answer(http.send(call(1, "slow"), session="s"), b"", EVENTS)
    http.send(call(1, "other"), session="t")
    answer(http.send(method="DELETE", session="s"), b"", ())
    assert http.calls() == [("raised", "slow", "ConnectionClosed")]


def test_a_client_that_leaves_an_exchange_without_a_session_has_cancelled():
    http = Http()
    answer(http.send(call(1, "slow")), b": ping\n\n", EVENTS, outcome=Outcome.CANCELLED)
    assert http.calls() == [("raised", "slow", "Cancelled")]
    assert http.reporter.notes("cancelled")[0]["reason"] == "the client closed its side"


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CUT])
def test_a_call_whose_server_broke_off_is_over(outcome: Outcome):
    http = Http()
    answer(http.send(call(1, "slow")), b'{"jso', outcome=outcome)
    assert ("raised", "slow", "ConnectionClosed") in http.calls()


def test_an_http_error_without_a_message_ends_the_call():
    http = Http()
    answer(http.send(call(1, "a")), b"Not Found", (("content-type", "text/plain"),), 404)
    assert http.reporter.calls()[-1] == ("raised", "a", "HTTP error", "status 404")


def test_an_http_error_that_carries_the_server_s_own_is_that_error():
    http = Http()
    body = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no"}}
    answer(http.send(call(1, "a")), json.dumps(body).encode(), status=404)
    assert http.calls() == [("raised", "a", "JSON-RPC error -32601")]


@pytest.mark.parametrize("headers", [JSON, EVENTS])
def test_an_encoded_answer_is_read(headers: Headers):
    http = Http()
    message = result(1, content=[])
    data = json.dumps(message).encode() if headers is JSON else event(message)
    encoded = (*headers, ("content-encoding", "gzip"))
    answer(http.send(call(1, "a")), gzip.compress(data), encoded)
    assert http.calls()[0][0] == "returned"


def test_an_encoding_that_cannot_be_read_is_noted():
    http = Http()
    answer(http.send(call(1, "a")), b"garbage", (*JSON, ("content-encoding", "gzip")))
    assert "an answer that" in http.reporter.notes("damage")[0]["reason"]


def test_a_recorder_that_must_not_fail_stops_the_request():
    connection = Connection(is_fail_closed=True)
    connection.reporter.error = StoreError("disk full")
    body = json.dumps(call(1, "a")).encode()
    with pytest.raises(StoreError, match="disk full"):
        McpHttp(connection.observer).sent(SentRequest("POST", "https://tools.example", (), body, 1))


def test_a_served_call_never_reaches_the_server():
    http = Http()
    http.reporter.is_serving = True
    http.reporter.served = ServedResult(Raw(b"{}"))
    assert http.http.is_serving
    answer = http.send(call(1, "a"))
    assert isinstance(answer, ServedAnswer)
    assert (answer.status, json.loads(answer.body)["result"]) == (200, {})
    http.reporter.served = ServedResult(error=("Cancelled", ""))
    assert http.send(call(2, "a")) == ServedAnswer(202, answer.headers, b"")


def test_what_is_too_long_is_counted_and_not_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_http, "MAX_MESSAGE_BYTES", 50)
    http = Http()
    answer(http.send(call(1, "a")), b"x" * 200)
    monkeypatch.setattr(EventSplitter.__init__, "__defaults__", (50,))
    answer(http.send(call(2, "b")), b"data: " + b"y" * 200 + b"\n\ndata: 1\n\n", EVENTS)
    sizes = [note["bytes"] for note in http.reporter.notes("damage")]
    assert sizes[0] == 200
    assert sizes[1] == 206


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_found_for_any_line_end_and_any_cut(end: bytes):
    lines = [b"id: 1", b"data: one", b"data:two", b"", b"", b": ping", b"", b"data", b"", b"x"]
    data = end.join(lines)
    for cut in range(len(data) + 1):
        events = EventSplitter()
        assert events.feed(data[:cut]) + events.feed(data[cut:]) == [b"one\ntwo", b""]
    one_by_one = EventSplitter()
    found = [event for n in range(len(data)) for event in one_by_one.feed(data[n : n + 1])]
    assert found == [b"one\ntwo", b""]
