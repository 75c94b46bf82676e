import random

import pytest
from rapidfuzz.distance import Levenshtein

from redrive.compare.divergence import (
    compare_run,
    diff_sessions,
    differing_fields,
    first_difference,
    sequence_edits,
)
from redrive.record.signature import CallSignature, DecisionSignature, ResultSignature
from redrive.replay.exchange import Stop
from tests.recordings import call, decide, record, replay, result

T = {"tool_calls": [{"name": "t", "args": {"x": 1}}]}
DONE = {"text": "done", "final": True}


@pytest.fixture
def session():
    return record(
        decide(call("t", {"x": 1}, "c1"), text="look"),
        result("c1", 1),
        decide(text="think"),
        decide(call("u", {}, "c2"), call("v", {}, "c3")),
        result("c2", 2),
        result("c3", 3),
        decide(text="done"),
    )


LINES = [
    {**T, "text": "look"},
    {"text": "think"},
    {"tool_calls": [{"name": "u"}, {"name": "v"}]},
    DONE,
]


def compared(session, lines, *, limit=100, **options):
    run = replay(session, lines, **options)
    return compare_run(session.run(), run, session.trajectory, session.reader, limit)


def test_equal_paths_have_no_divergence(session):
    found = compared(session, LINES)
    assert found.first_divergence is None
    assert found.decision_divergence is None
    assert (found.n_differences, found.text_only, found.tool_sequence_edits) == (0, 0, 0)
    assert found.tool_sequence_distance == 0.0


def test_the_first_divergence_shows_both_decisions_and_what_differs(session):
    found = compared(session, [LINES[0], {"tool_calls": [{"name": "v", "args_json": "{}"}]}, DONE])
    first = found.first_divergence
    assert first == found.decision_divergence
    assert (first.decision, first.node_id, first.fields) == (2, "e3", ("calls", "text"))
    assert (first.expected.text, first.expected.calls) == ("think", ())
    (asked,) = first.found.calls
    assert (asked.tool, asked.arguments, asked.call_id) == ("v", {}, None)
    assert len(first.found.signatures[1].argument_hash) == 64


def test_a_difference_in_text_alone_is_no_decision_divergence(session):
    found = compared(session, [LINES[0], {"text": "hm"}, *LINES[2:]])
    assert found.first_divergence.fields == ("text",)
    assert found.decision_divergence is None
    assert (found.text_only, found.n_differences) == (1, 1)


def test_both_divergences_are_reported_where_they_lie(session):
    found = compared(session, [{**T, "text": "hm"}, {"text": "think", "final": True}])
    assert (found.first_divergence.decision, found.first_divergence.fields) == (1, ("text",))
    assert found.decision_divergence.decision == 2
    assert found.decision_divergence.fields == ("termination",)
    assert [d.decision for d in found.differences] == [1, 2, 3, 4]
    assert found.differences[2].fields == ("decision",)


def test_swapped_parallel_calls_differ_in_their_order(session):
    swapped = {"tool_calls": [{"name": "v"}, {"name": "u"}]}
    found = compared(session, [*LINES[:2], swapped, DONE])
    assert found.decision_divergence.fields == ("order",)
    assert [c.call_id for c in found.decision_divergence.expected.calls] == ["c2", "c3"]
    assert (found.tool_sequence_edits, found.tool_sequence_distance) == (2, 2 / 3)


def test_a_model_that_keeps_going_diverges_where_the_record_ends(session):
    found = compared(session, [*LINES[:3], {"text": "done"}, {"text": "more"}, DONE])
    assert found.first_divergence.decision == 4
    assert found.first_divergence.fields == ("termination",)
    beyond = found.differences[1]
    assert (beyond.decision, beyond.node_id, beyond.fields) == (5, None, ("decision",))


def test_decisions_not_made_after_a_missing_answer_are_no_differences(session):
    found = compared(session, [{**LINES[0], "tool_calls": [{"name": "t", "args": {"x": 2}}]}])
    assert found.n_differences == 1
    assert found.first_divergence.fields == ("arguments",)
    assert found.tool_sequence_edits == 0


def test_a_run_that_begins_later_is_compared_from_there(session):
    found = compared(session, [{"text": "hm"}, *LINES[2:]], from_decision=2)
    assert (found.first_divergence.decision, found.first_divergence.expected.text) == (2, "think")


def test_the_list_of_differences_is_capped_and_their_number_is_not(session):
    lines = [{**T, "text": "a"}, {"text": "b"}, LINES[2] | {"text": "c"}, DONE | {"text": "d"}]
    found = compared(session, lines, limit=2)
    assert (len(found.differences), found.n_differences, found.text_only) == (2, 4, 4)
    assert compared(session, lines, limit=0).differences == ()


def test_ignored_differences_are_counted_by_rule():
    session = record(decide({"name": "t", "call_id": "c1", "args_json": ""}), result("c1", 1))
    line = {"tool_calls": [{"name": "t", "args": {}}]}
    found = compared(session, [line])
    assert found.n_differences == 0
    assert found.ignored == {"argument_bytes": 1}
    same = {"tool_calls": [{"name": "t", "args_json": ""}]}
    assert compared(session, [same]).ignored == {}


def test_a_difference_in_text_is_not_counted_as_ignored_too(session):
    found = compared(session, [LINES[0], {"text": "hm"}, *LINES[2:]])
    assert "decision_text_bytes" not in found.ignored


def test_under_json_content_white_space_in_a_decision_is_ignored_and_counted():
    session = record(
        decide(text='{"tool":"t","arguments":{}}'), result("e1", 5), decisions="json_content"
    )
    run = replay(session, [{"text": '{"tool": "t", "arguments": {}}'}], mode="json_content")
    recorded = session.run(mode="json_content")
    found = compare_run(recorded, run, session.trajectory, session.reader)
    assert found.first_divergence is None
    assert found.ignored == {"decision_text_bytes": 1}


# --- two records ------------------------------------------------------------------------------


def diffed(left, right, **options):
    sides = [(side.run(), side.trajectory, side.reader) for side in (left, right)]
    return diff_sessions(*sides, **options)


def test_equal_records_do_not_differ_and_their_call_ids_are_counted(session):
    def made(call_id):
        return record(decide(call("t", {}, call_id)), result(call_id, {"a": 1}), decide(text="x"))

    found = diffed(made("c1"), made("c9"))
    assert found.first_divergence is None
    assert found.ignored == {"call_id": 1}


@pytest.mark.parametrize(
    ("other", "fields"),
    [(result("c1", 2), ("result",)), (result("c1", 1, status="error"), ("status",))],
)
def test_records_that_differ_in_a_result_alone_decide_alike(other, fields):
    left, right = (
        record(decide(call("t", {}, "c1")), given, decide(text="x"))
        for given in (result("c1", 1), other)
    )
    found = diffed(left, right)
    assert (found.first_divergence.decision, found.first_divergence.fields) == (1, fields)
    assert found.decision_divergence is None
    assert found.text_only == 0
    first = found.first_divergence
    differing = [
        (ours.kind, ours.status, theirs.status)
        for ours, theirs in zip(first.expected.signatures, first.found.signatures, strict=True)
        if ours != theirs
    ]
    assert differing == [("tool.result", "ok", first.found.signatures[-1].status)]


@pytest.mark.parametrize("is_first_longer", [True, False])
def test_a_longer_record_diverges_where_the_shorter_ends(is_first_longer):
    short, long = record(decide(text="a"), decide(text="b")), record(*[decide(text="a")] * 3)
    sides = (long, short) if is_first_longer else (short, long)
    found = diffed(*sides)
    assert [d.decision for d in found.differences] == [2, 3]
    last = found.differences[-1]
    assert (last.node_id is None) is not is_first_longer


def test_a_divergence_beyond_one_side_shows_the_other_alone():
    short = record(decide(call("t", {}, "c1")), result("c1", 1))
    long = record(decide(call("t", {}, "c1")), result("c1", 1), decide(text="b"))
    found = diffed(short, long).first_divergence
    assert (found.node_id, found.expected, found.found.text) == (None, None, "b")
    found = diffed(long, short).first_divergence
    assert (found.node_id, found.expected.text, found.found) == ("e3", "b", None)


def test_arguments_that_were_not_recorded_have_no_hash():
    masked = [{"path": "args", "rule": "r"}]
    left = record(decide(call("t", {"a": 1}, "c1", redactions=masked)), result("c1", 1))
    right = record(decide(call("t", {"a": 1}, "c1")), result("c1", 1))
    found = diffed(left, right).first_divergence
    assert found.fields == ("arguments",)
    assert found.expected.signatures[1].argument_hash is None


def test_text_decisions_under_json_content_show_their_text():
    session = record(decide(text='{"tool":"t","arguments":{}}'), decide(text="x"))
    run = replay(session, [{"text": '{"tool":"u"}'}], mode="json_content")
    assert run.stop is Stop.NO_ANSWER
    found = compare_run(session.run(mode="json_content"), run, session.trajectory, session.reader)
    assert found.first_divergence.fields == ("tool",)
    assert found.first_divergence.found.calls[0].tool == "u"


# --- parts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 4095, 4096, 4097, 9000])
def test_the_first_difference_is_found_wherever_it_lies(n):
    left = list(range(n))
    assert first_difference(left, list(left)) is None
    assert first_difference(left, [*left, 0]) == n
    assert first_difference([*left, 0], left) == n
    for place in {0, n // 2, n - 1} - {-1}:
        if place < n:
            other = [*left[:place], -1, *left[place + 1 :]]
            assert first_difference(left, other) == place


@pytest.mark.parametrize("share", [0.0, 0.001, 0.02, 0.5, 1.0])
def test_edits_are_those_of_the_plain_distance(share):
    dice = random.Random(11)
    for n in (0, 3, 40, 3000):
        left = [dice.choice("abcdef") for _ in range(n)]
        right = [dice.choice("abcdef") if dice.random() < share else tool for tool in left]
        right = right[: n - n // 10] if dice.random() < 0.5 else [*right, "z"]
        assert sequence_edits(left, right) == Levenshtein.distance(left, right)


def test_every_field_that_differs_is_named_once_and_in_order():
    ours = DecisionSignature(
        b"a",
        (CallSignature("t", b"1"), CallSignature("u", b"2")),
        is_final=False,
        results=(ResultSignature("ok", b"1"), ResultSignature("ok", b"2")),
    )
    theirs = DecisionSignature(
        b"b",
        (CallSignature("x", b"1"), CallSignature("u", b"3"), CallSignature("w", b"4")),
        is_final=True,
        results=(ResultSignature("error", b"1"), ResultSignature("ok", b"9")),
    )
    assert differing_fields(ours, theirs) == (
        *("calls", "tool", "arguments", "termination", "text", "result", "status"),
    )
    assert differing_fields(ours, ours) == ()
    assert differing_fields(None, ours) == differing_fields(ours, None) == ("decision",)
