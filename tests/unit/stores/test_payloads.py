"""A stored line gives back the event that was packed, byte for byte, whatever it holds."""

import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from redrive.errors import RecordError, TamperError
from redrive.record.event import Event, Kind, ModelRequest, dump_payload, payload_of, raw_of
from redrive.stores.database import open_database
from redrive.stores.payloads import (
    Packer,
    TextRef,
    find_texts,
    unpack,
    unpack_envelope,
    unpack_without_texts,
)
from redrive.stores.schema import migrate
from redrive.stores.texts import TextStore
from tests.stored import event_at

BIG = "é" * 3000
HOSTILE = '{"$stored":[["body",0,"' + "0" * 64 + '"]],"rest":{}}'


@pytest.fixture
def texts(path: Path) -> TextStore:
    database = open_database(path, create=True, read_only=False)
    migrate(database)
    return TextStore(database)


def request(**fields: object) -> Raw:
    return dump_payload(ModelRequest(**fields))  # type: ignore[arg-type]


PAYLOADS = {
    "small": request(body="x"),
    "absent": request(),
    "body": request(body=BIG, model="m", step=3),
    "context": request(context=BIG, api="openai.chat"),
    "equal body and context": request(body=BIG, context=BIG),
    "parts": request(parts=raw_of([{"role": "user", "text": BIG}])),
    "all three": request(body=BIG + "1", context=BIG + "2", parts=raw_of([BIG])),
    "body again inside parts": request(body=BIG, parts=raw_of([{"body": BIG}])),
    "parts that look like structure": request(body="," * 3000, parts=raw_of(["a", "," * 3000])),
    "escapes": request(body='"\\' * 2000, context="\u2028\x00\n" * 900),
    "line breaks": request(body=BIG, parts=Raw(b'[1,\n "' + BIG.encode() + b'"]')),
    "small with line breaks": request(parts=Raw(b"[\n1]")),
    "lone surrogate": request(body="\ud800" + BIG),
    "small lone surrogate": request(body="\ud800"),
    "spaced by another writer": Raw(b'{"body" : "' + b"x" * 3000 + b'"}'),
    "nested deeply": request(parts=Raw(b"[" * 990 + b"]" * 990)),
    "nested deeply and big": request(body=BIG, parts=Raw(b"[" * 990 + b"]" * 990)),
    "many brackets in a text": request(body="]" * 900 + "[" * 900 + BIG),
    "hostile": Raw(HOSTILE.encode()),
    "hostile and big": Raw(HOSTILE.encode()[:-1] + b',"body":"' + b"x" * 3000 + b'"}'),
    "hostile value": request(body=HOSTILE + BIG, parts=Raw(HOSTILE.encode())),
}


def packed(texts: TextStore, *events: Event) -> list[bytes]:
    packer = Packer(texts, {})
    return [packer.pack(event) for event in events]


@pytest.mark.parametrize("kind", [Kind.MODEL_REQUEST, Kind.CUSTOM])
@pytest.mark.parametrize("name", PAYLOADS)
def test_every_payload_comes_back_byte_for_byte(texts: TextStore, name: str, kind: Kind) -> None:
    event = event_at("test:a", 0, kind, PAYLOADS[name])
    (line,) = packed(texts, event)
    assert b"\n" not in line
    back = unpack(line, texts)
    assert bytes(back.payload) == bytes(event.payload)
    assert back == event


@pytest.mark.parametrize("name", PAYLOADS)
def test_many_events_are_packed_as_each_alone(texts: TextStore, name: str) -> None:
    for kind in (Kind.MODEL_REQUEST, Kind.CUSTOM):
        events = [
            event_at("test:a", 0, Kind.NOTE, Raw(b'{"label":"costs $5"}')),
            event_at("test:a", 1, kind, PAYLOADS[name]),
        ]
        for several in (events, events[:1], events[1:], []):
            assert Packer(texts, {}).pack_all(several) == packed(texts, *several)


@pytest.mark.parametrize("name", PAYLOADS)
def test_without_its_texts_a_payload_is_still_one_of_its_kind(texts: TextStore, name: str) -> None:
    event = event_at("test:a", 0, Kind.MODEL_REQUEST, PAYLOADS[name])
    (line,) = packed(texts, event)
    short = unpack_without_texts(line)
    refs = find_texts(line)
    if refs is None and unpack_envelope(line) == event:
        assert short == event
    elif not refs[1]:
        assert short == event, "it was only written as a string"
    else:
        assert len(bytes(short.payload)) < len(bytes(event.payload)) - 2000
        assert msgspec.json.decode(short.payload, type=object) is not None
    assert msgspec.structs.replace(short, payload=event.payload) == event


def test_large_fields_of_a_request_leave_the_line(texts: TextStore) -> None:
    event = event_at("test:a", 0, Kind.MODEL_REQUEST, PAYLOADS["all three"])
    (line,) = packed(texts, event)
    assert len(line) < 1000
    found = find_texts(line)
    assert found is not None
    assert [ref.field for ref in found[1]] == ["body", "context", "parts"]


def test_a_request_with_a_lone_surrogate_leaves_the_line_whole(texts: TextStore) -> None:
    event = event_at("test:a", 0, Kind.MODEL_REQUEST, PAYLOADS["lone surrogate"])
    (line,) = packed(texts, event)
    assert len(line) < 1000
    assert payload_of(unpack(line, texts)).body == "\ud800" + BIG


def test_what_is_small_or_no_request_stays_in_the_line(texts: TextStore) -> None:
    lines = packed(
        texts,
        event_at("test:a", 0, Kind.MODEL_REQUEST, PAYLOADS["small"]),
        event_at("test:a", 1, Kind.CUSTOM, PAYLOADS["body"]),
    )
    assert [find_texts(line) for line in lines] == [None, None]
    assert BIG.encode() in lines[1]


def test_words_that_name_the_mark_are_no_mark(texts: TextStore) -> None:
    payload = request(parts=raw_of({"payload": {"$stored": [1]}}))
    event = event_at("test:a", 0, Kind.MODEL_REQUEST, payload)
    (line,) = packed(texts, event)
    assert unpack(line, texts) == event
    assert find_texts(line) is None


def test_every_field_of_an_event_comes_back(texts: TextStore) -> None:
    event = msgspec.structs.replace(
        event_at("test:a", 0, Kind.TOOL_CALL, Raw(b'{"tool":"t"}')),
        actor="sub\u2028",
        ts_ns=None,
        call_id="",
        group="g",
        supersedes="e0",
        flags=("inherited", "recovered"),
    )
    assert unpack(packed(texts, event)[0], texts) == event


def test_an_id_that_is_no_utf8_is_refused(texts: TextStore) -> None:
    event = msgspec.structs.replace(event_at("test:a", 0, Kind.NOTE, Raw(b"{}")), id="\ud800")
    with pytest.raises(RecordError, match="event 0 has an id that is no UTF-8 text"):
        packed(texts, event)
    with pytest.raises(RecordError, match="event 0 has an id that is no UTF-8 text"):
        Packer(texts, {}).pack_all([event])


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b"[1]", b"\xff", b'{"id":1}', b"[" * 5000],
)
def test_a_line_that_is_no_event_is_damage(texts: TextStore, line: bytes) -> None:
    with pytest.raises(TamperError, match="a stored line is no event"):
        unpack(line, texts)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"$stored":1,"rest":{}}',
        b'{"$stored":[]}',
        b'{"$stored":[["body",0,"xyz"]],"rest":{}}',
        b'{"$stored":[["body",0,"' + b"0" * 64 + b'"]],"rest":{}}',
        b'{"$stored":[["body",-1,"' + b"0" * 64 + b'"]],"rest":""}',
    ],
)
def test_a_stored_payload_that_cannot_be_read_is_damage(texts: TextStore, payload: bytes) -> None:
    line = msgspec.json.encode(event_at("test:a", 0, Kind.MODEL_REQUEST, Raw(payload)))
    with pytest.raises(TamperError):
        unpack(line, texts)


def test_a_hole_says_where_it_is(texts: TextStore) -> None:
    payload = request(model="m", body=BIG)
    (line,) = packed(texts, event_at("test:a", 0, Kind.MODEL_REQUEST, payload))
    found = find_texts(line)
    assert found is not None
    (ref,) = found[1]
    assert ref == TextRef("body", len(b'{"model":"m","body":'), ref.sha256)
    assert sys.getsizeof(line) < 1000
