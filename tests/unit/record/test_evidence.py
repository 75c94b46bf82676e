import msgspec
import pytest
from msgspec import UNSET, Raw

from redrive.record.evidence import (
    Gap,
    arguments_value,
    build_evidence,
    find_nearest,
    open_evidence,
)
from redrive.record.pairing import pair_path
from redrive.record.session import MemoryReader
from redrive.record.signature import argument_digests
from tests.recordings import call, decide, record, result


def evidence(recording, **options):
    pairing = pair_path(recording.index, recording.trajectory, recording.reader)
    return build_evidence(recording.trajectory, pairing, recording.reader, **options)


def key(text):
    return argument_digests(UNSET, text).value


@pytest.fixture
def polled():
    return record(
        decide(call("poll", {"id": 1}, "c1")),
        result("c1", "STARTING"),
        decide(call("poll", {"id": 1}, "c2"), call("other", {}, "c3")),
        result("c3", None),
        result("c2", "RUNNING"),
        decide(text="done"),
    )


def test_the_cells_of_a_key_lie_in_recorded_order(polled):
    store = evidence(polled)
    assert [cell.call_id for cell in store.cells] == ["c1", "c2", "c3"]
    assert list(store.find_cells("poll", key('{"id":1}'))) == [0, 1]
    assert list(store.find_cells("poll", key('{"id":2}'))) == []
    assert list(store.find_cells("nobody", key("{}"))) == []
    assert [cell.step for cell in store.cells_of_step(2)] == [2, 2]


def test_parallel_calls_are_paired_by_their_id(polled):
    store = evidence(polled)
    served = [open_evidence(cell, polled.events[cell.result]) for cell in store.cells]
    assert [bytes(answer.result) for answer in served] == [b'"STARTING"', b'"RUNNING"', b"null"]


def test_what_earlier_decisions_consumed_is_counted_by_key(polled):
    store = evidence(polled)
    assert [store.count_before(step) for step in (1, 2, 3, 4)] == [0, 1, 3, 3]
    assert store.used_by(0) == {}
    assert store.used_by(1) == {0: 1}
    assert store.used_by(3) == {0: 2, 2: 1}


def test_unused_evidence_is_listed_in_recorded_order(polled):
    store = evidence(polled)
    assert [cell.call_id for cell in store.find_unused({})] == ["c1", "c2", "c3"]
    assert [cell.call_id for cell in store.find_unused({0: 1, 2: 1})] == ["c2"]


@pytest.mark.parametrize(
    ("lines", "gap"),
    [
        ([], Gap.NO_RESULT),
        ([result("c1", 1), result("c1", 2)], Gap.CONFLICTING),
        ([result("c1", "cut", result_truncated=True)], Gap.TRUNCATED),
        ([result("c1", "x", redactions=[{"path": "result", "rule": "r"}])], Gap.MASKED),
        ([{"type": "tool_result", "call_id": "c1", "name": "t"}], Gap.NO_RESULT),
        ([result("c1", 1), result("c1", 1)], None),
    ],
)
def test_a_cell_says_why_it_cannot_be_served(lines, gap):
    store = evidence(record(decide(call("t", {}, "c1")), *lines, decide(text="x")))
    assert store.cells[0].gap == gap
    assert [cell.gap for cell in store.find_unused({})] == ([] if gap else [None])


def test_a_redaction_mark_makes_a_cell_without_evidence():
    recording = record(decide(call("t", {}, "c1")), result("c1", "key [REDACTED]"))
    assert evidence(recording).cells[0].gap is None
    assert evidence(recording, has_mark=lambda data: b"[REDACTED]" in data).cells[0].gap == "masked"
    assert evidence(recording, has_mark=lambda _: False).cells[0].gap is None


def test_arguments_that_the_recorder_left_out_match_no_call():
    redactions = [{"path": "args", "rule": "r"}]
    recording = record(decide(call("t", {}, "c1", redactions=redactions)), result("c1", 1))
    store = evidence(recording)
    assert list(store.find_cells("t", key("{}"))) == []
    assert store.used_by(1) == {}
    assert store.candidates("t") == ()


def test_what_is_served_is_checked_against_its_digest(polled):
    store = evidence(polled)
    cell = store.cells[0]
    event = polled.events[cell.result]
    altered = msgspec.structs.replace(event, payload=Raw(b'{"result":"ALTERED"}'))
    assert open_evidence(cell, event) is not None
    assert open_evidence(cell, altered) is None
    assert open_evidence(cell, polled.events[0]) is None
    assert open_evidence(cell, None) is None


def test_a_cell_of_a_result_without_a_value_serves_nothing():
    recording = record(
        decide(call("t", {}, "c1")), {"type": "tool_result", "call_id": "c1", "name": "t"}
    )
    cell = evidence(recording).cells[0]
    assert open_evidence(cell, recording.events[cell.result]) is None


def test_two_servings_share_nothing_and_leave_the_record_as_it_was(polled):
    store = evidence(polled)
    before = bytes(polled.events[store.cells[0].result].payload)
    answers = [open_evidence(store.cells[0], polled.events[store.cells[0].result]) for _ in "ab"]
    assert answers[0] == answers[1]
    assert answers[0].result is not answers[1].result
    assert bytes(polled.events[store.cells[0].result].payload) == before


def test_half_an_emoji_is_served_as_it_was_recorded():
    recording = record(decide(call("t", {}, "c1")), result("c1", "cut \ud83d"))
    cell = evidence(recording).cells[0]
    answer = open_evidence(cell, recording.events[cell.result])
    assert bytes(answer.result) == b'"cut \\ud83d"'


def test_orphans_are_kept_apart():
    store = evidence(record(decide(call("t", {}, "c1")), result("c9", 1)))
    assert len(store.pairing.orphans) == 1
    assert len(store.pairing.unanswered) == 1


def test_a_recorded_call_is_found_by_its_step(polled):
    store = evidence(polled)
    assert store.find_step(store.cells[1].call) == 2
    assert store.find_step(0) is None


@pytest.mark.parametrize(
    ("arguments", "text", "shown"),
    [
        (UNSET, None, {}),
        (UNSET, "", {}),
        (UNSET, '{"x":1', '{"x":1'),
        (UNSET, '{"a":1,"a":2}', '{"a":1,"a":2}'),
        (Raw(b'{"a":[1]}'), None, {"a": [1]}),
        (UNSET, "null", None),
    ],
)
def test_arguments_are_shown_as_a_value_or_as_their_text(arguments, text, shown):
    assert arguments_value(arguments, text) == shown


def nearest_to(tool, arguments, *calls):
    recording = record(*(decide(one) for one in calls))
    store = evidence(recording)
    events = recording.reader.read_events(store.candidates(tool))
    return find_nearest(tool, arguments, events)


def test_the_nearest_call_is_of_the_same_tool_even_if_another_has_the_same_arguments():
    found = nearest_to("a", {"x": 1}, call("b", {"x": 1}, "c1"), call("a", {"y": 2}, "c2"))
    assert (found.call_id, found.differs) == ("c2", ("/y", "/x"))


def test_of_another_tool_the_nearest_has_the_fewest_differences():
    found = nearest_to("c", {"x": 1}, call("b", {"y": 1}, "c1"), call("a", {"x": 1}, "c2"))
    assert (found.call_id, found.differs) == ("c2", ("tool",))


def test_of_equally_many_differences_the_nearest_shares_the_most_text():
    found = nearest_to(
        "sh",
        {"command": "make test -v"},
        call("sh", {"command": "rm -rf build"}, "c1"),
        call("sh", {"command": "make test -q"}, "c2"),
        call("sh", {"command": "make test -q "}, "c3"),
    )
    assert (found.call_id, found.differs) == ("c2", ("/command",))


@pytest.mark.parametrize(
    ("asked", "recorded", "differs"),
    [
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, ("/a/1", "/a/2")),
        ({"a": {"b": 1}}, {"a": {"b": True}}, ("/a/b",)),
        ({"a": 1}, {"a": 1.0}, ()),
        ({"a": "aaa"}, {"a": "aaaa"}, ("/a",)),
        ("text", {"a": 1}, ("arguments",)),
        ({"a": []}, {"a": {}}, ("/a",)),
    ],
)
def test_differences_are_named_by_their_paths(asked, recorded, differs):
    assert nearest_to("t", asked, call("t", recorded, "c1")).differs == differs


def test_arguments_nested_too_deeply_are_shown_and_compared_as_their_text():
    deep = "[" * 900 + "]" * 900
    recording = record(decide({"name": "t", "args_json": deep, "call_id": "c1"}))
    value = arguments_value(UNSET, deep)
    seqs = evidence(recording).candidates("t")
    assert value == deep
    for asked, differs in ((value, ()), ({}, ("arguments",))):
        events = recording.reader.read_events(seqs)
        assert find_nearest("t", asked, events).differs == differs


def test_many_brackets_are_not_deep():
    wide = {"code": "{" * 500, "items": [[{}]] * 60}
    assert arguments_value(Raw(msgspec.json.encode(wide)), None) == wide


def test_without_recorded_calls_there_is_no_nearest():
    assert find_nearest("t", {}, MemoryReader([]).read_events(())) is None
