"""One event, redacted: JSON stays JSON, what was masked is listed, nothing spells it elsewhere."""

import json

import msgspec
import pytest

from redrive import canonical
from redrive.record.event import (
    Custom,
    Damage,
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Read,
    Redaction,
    SessionStarted,
    Source,
    ToolCall,
    ToolResult,
    UserMessage,
    Wire,
    dump_payload,
    payload_of,
    raw_of,
    raw_value,
)
from redrive.reports.redact import MARK, Redactor
from redrive.reports.scrub import Moved, redact_event, settle
from tests.planted_secrets import plant

SECRET = "sk-" + "proj-fakefakefakefakefake01"
MOVED = {"a" * 64: Moved("b" * 64, 33, "openai")}


def event(kind, payload, **fields):
    base = {"id": "e1", "session_id": "s", "seq": 0, "node_id": "n1", "source": Source("", 0, 0)}
    return Event(kind=kind, payload=dump_payload(payload), **base | fields)


def redacted(kind, payload, **fields):
    return redact_event(event(kind, payload, **fields), Redactor(b"k" * 32))


@pytest.mark.parametrize(
    ("kind", "payload", "path"),
    [
        (Kind.USER_MESSAGE, UserMessage(f"use {SECRET}"), "text"),
        (Kind.MODEL_REQUEST, ModelRequest(context=f"use {SECRET}"), "context"),
        (Kind.MODEL_RESPONSE, ModelResponse(reasoning=SECRET), "reasoning"),
        (Kind.TOOL_CALL, ToolCall("t", raw_of({"a": {"b": SECRET}})), "arguments.a.b"),
        (
            Kind.TOOL_CALL,
            ToolCall("t", arguments_text='{"password": 1234567}'),
            "arguments_text.password",
        ),
        (Kind.TOOL_RESULT, ToolResult(result=raw_of([SECRET])), "result[0]"),
        (Kind.CLOCK_READ, Read("time.time", raw_of(SECRET)), "value"),
        (Kind.CUSTOM, Custom("harness.result", raw_of({"result": SECRET})), "data.result"),
        (Kind.SESSION_STARTED, SessionStarted(environment=raw_of({"a": SECRET})), "environment.a"),
    ],
)
def test_what_was_masked_is_listed_by_its_place(kind, payload, path):
    new, found = redacted(kind, payload)
    assert [one.path for one in found] == [path]
    assert payload_of(new).redactions == found
    assert SECRET.encode() not in bytes(new.payload)
    again, none = redact_event(new, Redactor(b"k" * 32))
    assert again is new
    assert none == ()


def test_an_event_without_a_secret_is_the_same_object():
    old = event(Kind.USER_MESSAGE, UserMessage("nothing to see"), call_id="call_1")
    assert redact_event(old, Redactor(b"k" * 32)) == (old, ())
    assert redact_event(old, Redactor(b"k" * 32))[0] is old
    assert settle(old, MOVED, {"n1"}) is old


def test_a_kind_without_a_list_is_masked_all_the_same():
    new, found = redacted(Kind.DAMAGE, Damage(1, 0, 9, f"no JSON: {SECRET}"))
    assert found == (Redaction("reason", "openai"),)
    assert MARK.search(payload_of(new).reason)


def test_earlier_redactions_stay_listed():
    earlier = Redaction("messages[0]", "own")
    new, found = redacted(Kind.MODEL_REQUEST, ModelRequest(context=SECRET, redactions=(earlier,)))
    assert payload_of(new).redactions == (earlier, *found)


def test_a_request_s_body_stays_json_and_hashes_to_its_digest():
    body = json.dumps({"messages": [{"content": f"x {SECRET}"}], "seed": 7})
    wire = Wire("x1", sha256=canonical.text_digest(body), size=len(body))
    new, _ = redacted(Kind.MODEL_REQUEST, ModelRequest(body=body, wire=wire))
    request = payload_of(new)
    assert json.loads(request.body)["seed"] == 7
    assert request.wire.sha256 == canonical.text_digest(request.body) != wire.sha256


def test_token_ids_go_with_the_text_that_they_spell():
    answer = ModelResponse(text=SECRET, chosen_tokens=(1, 2), has_logits=True, model="m")
    new, _ = redacted(Kind.MODEL_RESPONSE, answer)
    assert payload_of(new).chosen_tokens is None
    assert not payload_of(new).has_logits
    assert payload_of(new).model == "m"


def test_token_ids_go_too_where_a_call_of_the_answer_was_masked():
    answer = event(Kind.MODEL_RESPONSE, ModelResponse(text="hm", chosen_tokens=(1, 2)))
    assert settle(answer, {}, {"n2"}) is answer
    assert payload_of(settle(answer, {}, {"n1"})).chosen_tokens is None
    plain = event(Kind.MODEL_RESPONSE, ModelResponse(text="hm"))
    assert settle(plain, {}, {"n1"}) is plain


def test_an_answer_whose_bytes_moved_names_the_new_ones_and_says_so():
    wire = Wire("x1", sha256="a" * 64)
    old = event(
        Kind.MODEL_RESPONSE, ModelResponse(text="hm", wire=wire), source=Source("a" * 64, 0, 9)
    )
    new = settle(old, MOVED, set())
    assert new.source == Source("b" * 64, 0, 33)
    assert payload_of(new).wire.sha256 == "b" * 64
    assert payload_of(new).redactions == (Redaction("source", "openai"),)
    call = event(Kind.TOOL_CALL, ToolCall("t"), source=Source("a" * 64, 0, 9))
    assert payload_of(settle(call, MOVED, set())).redactions == ()


def test_an_exchange_names_the_new_bytes_of_both_its_bodies():
    fields = {"request_sha256": "a" * 64, "wire": {"sha256": "c" * 64}}
    old = event(Kind.CUSTOM, Custom("http.exchange", raw_of(fields)))
    new = payload_of(settle(old, MOVED, set()))
    assert raw_value(new.data)["request_sha256"] == "b" * 64
    assert raw_value(new.data)["wire"]["sha256"] == "c" * 64
    assert new.redactions == (Redaction("source", "openai"),)


def test_ids_that_hold_a_secret_stay_equal_to_each_other():
    first, _ = redacted(Kind.USER_MESSAGE, UserMessage("x"), node_id=f"n {SECRET}")
    second, _ = redacted(Kind.USER_MESSAGE, UserMessage("x"), parent_id=f"n {SECRET}")
    assert first.node_id == second.parent_id != f"n {SECRET}"
    assert MARK.search(first.node_id)
    assert (first.id, first.actor) == ("e1", "main")


def test_a_payload_with_a_lone_surrogate_stays_readable():
    new, found = redacted(Kind.TOOL_RESULT, ToolResult(result=raw_of(["\ud800", SECRET])))
    assert raw_value(payload_of(new).result)[0] == "\ud800"
    assert len(found) == len(payload_of(new).redactions) == 1
    nested = json.dumps({"a": "\ud800", "b": SECRET}, ensure_ascii=False)
    new, _ = redacted(Kind.TOOL_RESULT, ToolResult(result=raw_of(nested)))
    assert json.loads(raw_value(payload_of(new).result))["a"] == "\ud800"


def test_a_payload_that_is_nested_too_deeply_is_masked_without_a_list():
    deep = b'{"result":' + b"[" * 5000 + f'"{SECRET}"'.encode() + b"]" * 5000 + b"}"
    old = event(Kind.TOOL_RESULT, ToolResult())
    old = msgspec.structs.replace(old, payload=msgspec.Raw(deep))
    new, found = redact_event(old, Redactor(b"k" * 32))
    assert SECRET.encode() not in bytes(new.payload)
    assert found == (Redaction("", "openai"),)
    assert len(bytes(new.payload)) > 10_000


def spots(text):
    """Yield events that hold a text in every field that a recorded session has for one."""
    arguments = {"command": text, text: [text]}
    body = json.dumps({"messages": [{"content": text, "tool_calls": [json.dumps(arguments)]}]})
    yield Kind.MODEL_REQUEST, ModelRequest(body=body)
    yield Kind.MODEL_REQUEST, ModelRequest(context=text, parts=raw_of([{"content": text}]))
    yield Kind.MODEL_RESPONSE, ModelResponse(text=text, content=raw_of([{"text": text}]))
    yield Kind.TOOL_CALL, ToolCall("t", raw_of(arguments))
    yield Kind.TOOL_CALL, ToolCall("t", arguments_text=json.dumps(arguments))
    yield Kind.TOOL_RESULT, ToolResult(result=raw_of({"out": [json.dumps({"in": text})]}))
    yield Kind.CUSTOM, Custom("harness.call", raw_of({"arguments": arguments}))


def test_every_planted_secret_is_masked_in_every_field_and_json_stays_json():
    leaks = []
    for planted in plant(12):
        for kind, payload in spots(planted.text):
            new, found = redacted(kind, payload)
            raw = bytes(new.payload).decode()
            assert found, (kind, planted)
            if any(window in raw for window in planted.windows()):
                leaks.append((kind, planted.shape, planted.spelling))
            decoded = payload_of(new)
            texts = (getattr(decoded, name, None) for name in ("body", "arguments_text"))
            for text in filter(None, texts):
                json.loads(text)
    assert leaks == []
