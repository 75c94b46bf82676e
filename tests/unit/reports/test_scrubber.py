"""What is about to be stored, batch by batch."""

import gzip
import json

import pytest

from redrive import canonical
from redrive.audit.closure import audit
from redrive.capture.exchanges import decode_content
from redrive.record.event import (
    Custom,
    Kind,
    ModelResponse,
    Source,
    ToolCall,
    Wire,
    dump_payload,
    payload_of,
    raw_of,
)
from redrive.record.session import MemoryReader, build_index
from redrive.record.trajectory import build_trajectory
from redrive.reports.scrubber import Scrubber, list_encodings
from tests.planted_secrets import chat_stream, plant
from tests.planted_sessions import record_planted
from tests.unit.reports.test_scrub import SECRET, event


@pytest.fixture
def scrub():
    return Scrubber(b"k" * 32, decode_content)


def answer(data, *, encoding=(), **fields):
    """A response event whose bytes these are."""
    digest = canonical.digest(data)
    wire = Wire("x1", sha256=digest, encoding=encoding)
    payload = ModelResponse(wire=wire, **fields)
    return event(Kind.MODEL_RESPONSE, payload, source=Source(digest, 0, len(data)))


def test_a_session_without_a_secret_comes_out_as_it_went_in(scrub):
    batches = record_planted(["nothing to see", "a sort_key=name and tokens: 12"])
    for events, artefacts in batches.batches:
        new_events, new_artefacts = scrub(events, artefacts)
        assert all(new is old for new, old in zip(new_events, events, strict=True))
        assert all(new is old for new, old in zip(new_artefacts, artefacts, strict=True))
    assert scrub.known.secrets == {}


@pytest.mark.parametrize("is_zipped", [False, True])
def test_an_answer_in_pieces_gives_way_to_a_mark(scrub, is_zipped):
    data = chat_stream(f"it is {SECRET}", "{}", "c1", 4)
    data = gzip.compress(data) if is_zipped else data
    old = answer(data, encoding=("gzip",) if is_zipped else (), chosen_tokens=(1,))
    (new,), (stored,) = scrub([old], [data])
    assert set(json.loads(stored)) == {"redacted"}
    assert new.source == Source(canonical.digest(stored), 0, len(stored))
    response = payload_of(new)
    assert response.wire.sha256 == new.source.artefact
    assert response.chosen_tokens is None
    assert [one.path for one in response.redactions] == ["source"]


def test_encoded_bytes_without_a_name_for_it_are_told_by_their_beginning(scrub):
    data = gzip.compress(SECRET.encode())
    _, (stored,) = scrub([answer(data)], [data])
    assert b"redacted" in stored


@pytest.mark.parametrize("encoding", ["br", "gzip"])
def test_a_body_that_cannot_be_read_is_not_kept(scrub, encoding):
    data = b"\x8b\x00\x80who knows"
    (new,), (stored,) = scrub([answer(data, encoding=(encoding,))], [data])
    assert b"[redacted:unreadable:" in stored
    assert payload_of(new).redactions[0].rule == "unreadable"


def test_bytes_whose_event_was_masked_are_not_kept_either(scrub):
    data = b"what nobody can read a secret in"
    (new,), (stored,) = scrub([answer(data, text=SECRET)], [data])
    assert stored != data
    assert new.source.artefact == canonical.digest(stored)
    again, kept = scrub([answer(data)], [data])  # the same bytes, of an event without a secret
    assert kept == [stored]
    assert again[0].source == new.source


def test_a_secret_is_found_before_and_after_the_event_that_told_of_it(scrub):
    password = "Zq7" + "fakefake01xY"
    told = event(Kind.CUSTOM, Custom("x", raw_of({"password": password})), node_id="n2")
    bare = event(Kind.CUSTOM, Custom("x", raw_of({"text": f"a {password} b"})))
    events, _ = scrub([bare, told, bare], [])
    assert not any(password in bytes(one.payload).decode() for one in events)
    (later,), _ = scrub([bare], [])
    assert later.payload == events[0].payload


def test_token_ids_of_an_answer_whose_call_was_masked_are_dropped(scrub):
    data = b"{}"
    response = answer(data, text="hm", chosen_tokens=(1, 2))
    call = event(Kind.TOOL_CALL, ToolCall("t", raw_of([SECRET])), source=response.source)
    events, _ = scrub([response, call], [data])
    assert payload_of(events[0]).chosen_tokens is None


def test_the_encodings_of_bodies_are_read_from_events():
    fields = {
        "request_sha256": "r",
        "headers": {"content-encoding": "gzip, identity"},
        "wire": {"encoding": ["zstd"]},
    }
    exchange = event(Kind.CUSTOM, Custom("http.exchange", raw_of(fields)), source=Source("a", 0, 1))
    other = event(Kind.CUSTOM, Custom("x", raw_of({"wire": 1})))
    bare = event(Kind.CUSTOM, Custom("x"))
    assert list_encodings([exchange, other, bare]) == {"a": ("zstd",), "r": ("gzip",)}


def test_each_touched_step_is_named_open_and_each_other_one_stays_closed(scrub):
    planted = next(iter(plant(13)))
    batches = record_planted(["all is well", planted.text, "all is well again"])
    pairs = [scrub(events, artefacts) for events, artefacts in batches.batches]
    events = [one for new, _ in pairs for one in new]
    started = payload_of(events[0])
    index = build_index("redrive:planted", lambda: iter(events))
    report = audit(
        index,
        build_trajectory(index),
        MemoryReader(events),
        session_started=started,
        renderers={},
    )
    status = [step.status for step in report.steps]
    assert status == ["closed", "open", "open"]  # the third follows what the second left behind
    causes = {gap.cause for gap in report.steps[1].missing}
    assert {"masked_request", "masked_answer", "masked_result", "incomplete_arguments"} <= causes
    assert {gap.cause for gap in report.steps[2].missing} == {"masked_event", "masked_custom"}


def test_equal_secrets_keep_equal_marks_over_events_and_scrubbers(scrub):
    first, _ = scrub([event(Kind.TOOL_CALL, ToolCall("t", raw_of([SECRET])))], [])
    again = Scrubber(b"k" * 32, decode_content)
    second, _ = again([event(Kind.TOOL_CALL, ToolCall("t", raw_of([SECRET])))], [])
    assert first[0].payload == second[0].payload
    assert dump_payload(payload_of(first[0]))
