import json

import pytest

from redrive.app.raw_events import dump_events, parse_kinds, read_source
from redrive.errors import UsageError
from redrive.record.event import Kind


def test_events_are_printed_with_time_envelope_and_payload(recorded, decision, result):
    store, row = recorded(
        decision("d1", ("t", {"big": 2**70}), parent="d0", ts="2026-01-02T00:00:00.000000001Z"),
        result("d1.1", "\ud800"),
    )
    lines = list(dump_events(store, row, parse_kinds(())))
    events = [json.loads(line) for line in lines]
    call = next(event for event in events if event["kind"] == "tool.call")
    assert call["ts"] == "2026-01-02T00:00:00.000000001Z"
    assert call["payload"]["arguments"] == {"big": 2**70}
    assert (call["parent_id"], call["call_id"], call["actor"]) == ("d0", "d1.1", "main")
    assert call["source"]["artefact"] == row.sources[0][1]
    answer = next(event for event in events if event["kind"] == "tool.result")
    assert answer["payload"]["result"] == "\ud800"
    assert b"\\ud800" in lines[-1]
    assert "ts" not in answer


def test_only_the_wanted_kinds_are_printed(recorded, decision, result):
    store, row = recorded(decision("d1", ("t", {})), result("d1.1"))
    lines = dump_events(store, row, parse_kinds(("tool.result",)))
    assert [json.loads(line)["kind"] for line in lines] == ["tool.result"]
    assert parse_kinds(()) == frozenset(Kind)


def test_an_unknown_kind_is_refused_with_those_that_exist():
    with pytest.raises(UsageError, match=r"no event kind 'tool\.calls'") as caught:
        parse_kinds(("tool.calls",))
    assert "tool.call" in caught.value.hint


def test_the_source_is_given_byte_for_byte(recorded, decision, tmp_path):
    store, row = recorded(decision("d1", text="ä\x1b"))
    assert b"".join(read_source(store, row)) == (tmp_path / "s.jsonl").read_bytes()


def test_a_session_without_a_source_has_none_to_give(recorded, decision):
    store, row = recorded(decision("d1"))
    without = type(row)(row.session_id, row.base_id, 1, row.format, 1, row.n_events, row.head)
    with pytest.raises(UsageError, match="no stored source"):
        list(read_source(store, without))
