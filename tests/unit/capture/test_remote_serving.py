"""Every message of an agent is hostile: refused with 400, never a crash, nothing recorded."""

import asyncio
import base64
import http.client
import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlsplit

import pytest

from redrive.capture import remote_serving, remote_wire
from redrive.capture.proxy import Proxy
from redrive.capture.proxy_thread import ProxyThread
from redrive.capture.remote_serving import open_remote, serve_remote
from redrive.capture.remote_wire import Place
from redrive.errors import UsageError
from tests.recorded import Recorded

PLACE = {"id": "p", "thread": "t"}


def answers(messages: Sequence[tuple[str, Any]], recorded: Any = None) -> list[tuple[int, Any]]:
    """Send messages, objects or bytes, one after the other; give status and answer of each."""
    backend = (recorded or Recorded()).backend
    handlers = serve_remote(backend)

    async def send_all() -> list[tuple[int, Any]]:
        told = []
        for number, (route, message) in enumerate(messages):
            if isinstance(message, dict):
                message = json.dumps({"place": PLACE, "number": number} | message).encode()
            try:
                told.append((200, json.loads(await handlers[route](message))))
            except UsageError as error:
                told.append((400, error.message))
        return told

    return asyncio.run(send_all())


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


READ = {"kind": "clock.read", "name": b64(b"now"), "value": b64(b"1")}
CALL = {"tool": b64(b"t"), "effect": "pure", "arguments": b64(b"{}"), "is_unsafe": False}
REPORT = {"call_id": None, "tool": "", "arguments": b64(b"{}"), "result": b64(b"1"), "status": "ok"}
NOTE = {"name": "", "fields": b64(b"{}")}
EVENT = {"kind": "tool.permission", "payload": b64(b'{"decision":"allowed"}')}
DERIVE = {"name": "", "function": "", "version": None, "inputs": b64(b"[]"), "value": b64(b"1")}
REQUEST = {"method": "POST", "url": "u", "headers": [], "body": "", "at_ns": 1}

HOSTILE: list[tuple[str, Any]] = [
    *((route, body) for route in remote_wire.ROUTES for body in (b"", b"[]", b"null", b"\xff\xfe")),
    ("hello", b"{" * 100_000),
    ("hello", b'{"place":' * 100_000),
    ("hello", {"number": -1}),
    ("hello", {"number": 2**60}),
    ("hello", {"place": {"id": "x" * 1000, "thread": "t"}}),
    ("hello", {"place": {"id": 1, "thread": "t"}}),
    ("read", READ | {"kind": "tool.call"}),
    ("read", READ | {"kind": "no.kind"}),
    ("read", READ | {"value": "not base64!"}),
    ("read", READ | {"value": b64(b"not json")}),
    ("read", READ | {"value": b64(b"")}),
    ("read", READ | {"value": b64(b"[" * 200_000)}),
    ("read", READ | {"value": b64(b"\xff")}),
    ("read", READ | {"name": b64(b"\xff")}),
    ("read", READ | {"name": b64(b"x" * 2_000_000)}),
    ("call", CALL | {"arguments": b64(b"{} {}")}),
    ("call", CALL | {"tool": b64(b"\xc3")}),
    ("call", CALL | {"effect": "x" * 65}),
    ("call", CALL | {"is_unsafe": "yes"}),
    ("derive", DERIVE | {"inputs": b64(b"nope")}),
    ("read", READ | {"value": None}),
    ("derive", DERIVE | {"error": [b64(b"E"), ""]}),
    ("derive", DERIVE | {"value": b64(b"}")}),
    ("report", REPORT | {"seam": "x" * 65}),
    ("report", REPORT | {"seam": "hook", "result": b64(b"r")}),
    ("report", REPORT | {"seam": "hook", "call_id": b64(b"\xff")}),
    ("report", REPORT | {"seam": "hook", "result": b64(b"NaN")}),
    ("derive", DERIVE | {"inputs": b64(b"[Infinity]")}),
    ("note", NOTE | {"fields": b64(b"[]")}),
    ("note", NOTE | {"fields": b64(b"{")}),
    ("note", NOTE | {"fields": b64(b'{"a":' + b"[" * 200_000)}),
    ("event", EVENT | {"kind": "session.ended"}),
    ("event", EVENT | {"payload": b64(b"{}")}),
    ("event", EVENT | {"payload": b64(b"7")}),
    ("event", EVENT | {"payload": b64(b'"not an object"')}),
    ("derive", DERIVE | {"version": b64(b"\xff")}),
    ("returned", {"handle": 1, "result": b64(b"1")}),
    ("returned", {"handle": 1}),
    ("returned", {"handle": 1, "result": b64(b"1"), "unknown": ""}),
    ("returned", {"handle": 1, "error": [""]}),
    ("response", {"handle": 99}),
    ("response", {"handle": 1, "status": 10**6}),
    ("response", {"handle": 1, "message": b64(b"\xff")}),
    ("sent", {"request": REQUEST | {"at_ns": -1}}),
    ("sent", {"request": REQUEST | {"at_ns": 2**70}}),
    ("sent", {"request": REQUEST | {"body": "%"}}),
    ("sent", {"request": REQUEST | {"headers": [["a"]]}}),
    ("enter", {"name": b64(b"\xff")}),
]


@pytest.mark.parametrize(("route", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_message_is_refused_and_leaves_nothing(route, message):
    recorded = Recorded()
    before = list(recorded.sink.events)
    (bad, good) = answers([(route, message), ("hello", {})], recorded)
    assert bad[0] == 400
    assert "\n" not in bad[1]
    assert len(bad[1]) < 400
    assert good == (200, {"is_serving": False})
    assert recorded.sink.events == before
    assert recorded.faults == []


def test_the_recording_proxy_answers_400_and_goes_on():
    recorded, faults = Recorded(), []
    handlers = serve_remote(recorded.backend)
    proxy = Proxy(recorded.backend, control=handlers, on_fault=faults.append)
    with ProxyThread(proxy) as running:
        parts = urlsplit(running.url_for("redrive"))
        connection = http.client.HTTPConnection(parts.hostname, parts.port)
        statuses = []
        for route, message in HOSTILE:
            if isinstance(message, dict):
                message = json.dumps({"place": PLACE, "number": 1} | message).encode()
            connection.request("POST", f"{parts.path}/{route}", message)
            response = connection.getresponse()
            statuses.append(response.status)
            assert b"Traceback" not in response.read()
        connection.close()
    assert set(statuses) == {400}
    assert faults == []
    assert recorded.sink.events == []


def test_a_message_that_is_too_large_is_refused_unread(monkeypatch):
    monkeypatch.setattr(remote_wire, "MAX_MESSAGE_BYTES", 100)
    ((status, why),) = answers([("hello", b"x" * 101)])
    assert (status, why) == (400, "a message of 101 bytes is larger than 100")


def test_a_route_that_the_messages_do_not_know_is_refused():
    with pytest.raises(UsageError, match="no route"):
        remote_wire.parse_asked("nowhere", b"{}")


@pytest.mark.parametrize(
    ("route", "message", "what"),
    [("call", CALL, "call"), ("sent", {"request": REQUEST}, "exchange")],
)
def test_what_is_open_is_bounded(monkeypatch, route, message, what):
    monkeypatch.setattr(remote_serving, "MAX_OPEN", 3)
    told = answers(4 * [(route, message)])
    assert [status for status, _ in told] == [200, 200, 200, 400]
    assert told[3][1] == f"more than 3 {what}s are open"


def test_places_are_bounded_and_forgotten_ones_begin_anew(monkeypatch):
    monkeypatch.setattr(remote_serving, "MAX_PLACES", 3)
    messages = [("read", READ | {"place": {"id": f"p{n % 10}", "thread": "t"}}) for n in range(40)]
    messages += [
        ("enter", {"name": b64(b"f"), "place": {"id": f"e{n}", "thread": "t"}}) for n in range(10)
    ]
    messages += [("leave", {"place": {"id": "e0", "thread": "t"}})]
    assert {status for status, _ in answers(messages)} == {200}


def test_answers_are_remembered_for_so_many_threads(monkeypatch):
    monkeypatch.setattr(remote_serving, "MAX_OPEN", 2)
    recorded = Recorded()
    reads = [READ | {"place": {"id": t, "thread": t}, "number": 7} for t in "abcabcc"]
    answers([("read", message) for message in reads], recorded)
    recorded.backend.end(None)
    # The last one came again; the others' answers were forgotten.
    assert len(recorded.sink.of_kind("clock.read")) == 6


def test_an_ended_call_is_not_ended_again():
    told = answers(
        [
            ("call", CALL),
            ("returned", {"handle": 1, "result": b64(b"1")}),
            ("returned", {"handle": 1, "result": b64(b"2")}),
        ]
    )
    assert [status for status, _ in told] == [200, 200, 400]


def test_others_may_act_where_an_agents_message_comes_from() -> None:
    serving = open_remote(Recorded().backend, ("read", "note"))
    assert sorted(serving.handlers) == ["note", "read"]
    place = Place(id="1", thread="t")
    mark: ContextVar[int] = ContextVar("mark", default=0)
    serving.run_at(place, lambda: mark.set(1))
    assert serving.run_at(place, mark.get) == 1
    assert serving.run_at(Place(id="2", thread="t", parent="1"), mark.get) == 1
    assert serving.run_at(Place(id="3", thread="t"), mark.get) == 0
    assert mark.get() == 0
    serving.close()
