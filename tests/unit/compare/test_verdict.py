import inspect
import typing

import msgspec
import pytest

from redrive.audit.closure import ClosedTrajectory
from redrive.compare import verdict as verdicts
from redrive.compare.verdict import (
    NOTES,
    TABLE,
    Attribution,
    Basis,
    Findings,
    Outcome,
    Verdict,
    find_model_change,
    find_outcome,
    judge_run,
)
from redrive.record.session import MemoryReader
from redrive.record.trajectory import build_trajectory
from redrive.replay.exchange import Stop
from redrive.replay.ports import ModelFingerprint, Override
from tests.helpers import index_of
from tests.recordings import MODEL, call, decide, end, record, replay, result, script, shadow

T = {"tool_calls": [{"name": "t"}]}
SAME = [T, {"text": "done", "final": True}]
OTHER_TEXT = [T, {"text": "finished", "final": True}]
OTHER_DECISION = [T, T, {"text": "done", "final": True}]


def session(*more, status="success", model=None):
    lines = (
        decide(call("t", {}, "c1"), model=model),
        result("c1", 1),
        *more,
        decide(text="done", model=model),
    )
    return record(*lines, *([end(status)] if status else []))


def replies(lines, model):
    return [msgspec.structs.replace(reply, model=model) for reply in script(lines)]


# --- the table, row by row --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ("success", Verdict.IDENTICAL_REPLAY),
        ("failure", Verdict.DETERMINISTIC_CORROBORATION),
        (None, Verdict.IDENTICAL_REPLAY),
        ("whatever", Verdict.IDENTICAL_REPLAY),
    ],
)
def test_an_equal_run_is_judged_by_the_recorded_outcome(status, word):
    document = shadow(session(status=status), SAME)
    assert document.verdict is word
    assert document.attribution is Attribution.ONE_RUN
    assert NOTES["one_run"] in document.notes


def test_an_open_trajectory_is_not_judged_whatever_the_run_shows():
    recording = record(
        decide(call("t", {}, "c1"), context=None, sampling=None), result("c1", 1), decide(text="x")
    )
    document = shadow(recording, [T, {"text": "x", "final": True}], is_reconstruction=True)
    assert document.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert document.attribution is Attribution.PROVENANCE_GAP
    assert document.runs[0].first_divergence is None
    assert document.runs[0].reason == "provenance_gap"


def test_a_call_without_a_recorded_answer_is_insufficient_evidence():
    document = shadow(session(), [T, T, T, T])
    assert document.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert document.attribution is None
    assert document.runs[0].reason == "no_recorded_answer"


def test_a_difference_by_the_recorded_model_is_a_stochastic_divergence():
    document = shadow(session(), [{"text": "x", "final": True}])
    assert document.verdict is Verdict.STOCHASTIC_MODEL_DIVERGENCE
    assert document.attribution is Attribution.ONE_RUN
    assert document.runs[0].reason == "different"


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (ModelFingerprint(served="m-2", fingerprint="fp"), "served"),
        (ModelFingerprint(served="m-1", fingerprint="fp2"), "fingerprint"),
    ],
)
def test_a_difference_by_another_model_is_not_put_down_to_chance(model, field):
    document = shadow(session(), replies([{"text": "x", "final": True}], model))
    assert document.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert document.attribution is Attribution.MODEL_CHANGED
    change = document.runs[0].model_change
    assert (change.decision, change.field) == (1, field)
    assert (change.recorded, change.replayed) == (MODEL[field], getattr(model, field))


def test_an_equal_run_by_another_model_is_still_equal():
    document = shadow(session(), replies(SAME, ModelFingerprint(served="m-2")))
    assert document.verdict is Verdict.IDENTICAL_REPLAY


def test_another_model_after_the_first_divergence_explains_nothing():
    recording = session(decide(text="think"))
    first, *rest = script([{"text": "x"}, {"text": "done", "final": True}])
    other = ModelFingerprint(served="m-2")
    made = [first, *(msgspec.structs.replace(reply, model=other) for reply in rest)]
    document = shadow(recording, made)
    assert document.attribution is Attribution.ONE_RUN


@pytest.mark.parametrize(
    ("recorded", "model", "side"),
    [
        (None, ModelFingerprint(served="m-1"), "fingerprint is stated by the record"),
        ({"served": "m-1"}, ModelFingerprint(served="m-1", fingerprint="x"), "by the replay"),
    ],
)
def test_a_model_stated_on_one_side_alone_is_a_note(recorded, model, side):
    document = shadow(session(model=recorded), replies(OTHER_TEXT, model))
    assert document.attribution is Attribution.ONE_RUN
    assert any(side in note for note in document.notes)


def test_beyond_the_record_there_is_no_model_to_compare_with():
    recording = session()
    lines = [T, {"text": "a"}, {"text": "b", "final": True}]
    run = replay(recording, replies(lines, ModelFingerprint(served="m-1")))
    assert find_model_change(recording.run(), run, 9) is None


def test_an_override_makes_every_word_unattributable():
    overrides = (Override("temperature", 0),)
    for lines in (SAME, [{"text": "x", "final": True}]):
        document = shadow(session(), lines, overrides=overrides)
        assert document.attribution is Attribution.SAMPLING_OVERRIDDEN
        assert NOTES["sampling_overridden"] in document.notes
        assert NOTES["one_run"] not in document.notes


def test_the_first_row_that_holds_decides():
    found = Findings(
        is_closed=False, stop=Stop.NO_ANSWER, is_equal=True, has_failed=True, is_model_changed=True
    )
    order = []
    for change in (
        {"is_closed": True},
        {"stop": Stop.UNFAITHFUL},
        {"stop": Stop.TERMINAL},
        {"has_failed": False},
        {"is_equal": False},
        {"is_model_changed": False},
        {},
    ):
        order.append(next(row.reason for row in TABLE if row.holds(found)))
        found = msgspec.structs.replace(found, **change)
    assert order == [row.reason for row in TABLE]


# --- exit codes -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "code"),
    [(SAME, 0), (OTHER_TEXT, 0), ([{"text": "x", "final": True}], 1), (OTHER_DECISION, 3)],
)
def test_exit_codes_follow_the_decision(lines, code):
    assert shadow(session(), lines).exit_code == code


def test_a_difference_in_text_alone_keeps_its_word_and_exits_with_0():
    document = shadow(session(), OTHER_TEXT)
    assert document.verdict is Verdict.STOCHASTIC_MODEL_DIVERGENCE
    assert document.runs[0].text_only == 1
    assert document.runs[0].decision_divergence is None


# --- outcome ----------------------------------------------------------------------------------


def outcome_of(recording, stated=None):
    return find_outcome(recording.index, recording.trajectory, recording.reader, stated)


def test_the_source_has_the_last_word_on_the_outcome():
    told = outcome_of(session(status="failure"), "success")
    assert told == Outcome("failure", Basis.SOURCE, not_taken="success")
    same = outcome_of(session(status="failure"), "failure")
    assert same == Outcome("failure", Basis.SOURCE)
    assert outcome_of(session(status=None), "failure") == Outcome("failure", Basis.USER)
    assert outcome_of(session(status=None)) == Outcome(None, Basis.UNKNOWN)
    wordless = record(decide(text="x"), {"type": "end"})
    assert outcome_of(wordless) == Outcome()


def test_what_is_not_known_of_the_outcome_is_said():
    assert NOTES["outcome_unknown"] in shadow(session(status=None), SAME).notes
    assert NOTES["outcome_word"] in shadow(session(status="whatever"), SAME).notes
    user = shadow(session(status=None), SAME, stated="failure")
    assert user.verdict is Verdict.DETERMINISTIC_CORROBORATION
    assert NOTES["outcome_user"] in user.notes
    ignored = shadow(session(status="success"), SAME, stated="failure")
    assert NOTES["outcome_not_taken"] in ignored.notes
    assert shadow(session(), SAME).notes == (NOTES["one_run"],)


def test_an_end_on_another_branch_is_not_this_paths_outcome():
    recording = record(decide(text="a"), decide(text="b"), end("failure"))
    other = build_trajectory(recording.index, path="e1")
    assert find_outcome(recording.index, other, recording.reader) == Outcome()


def test_an_end_outside_the_dag_is_the_outcome_of_the_main_path():
    recording = record(decide(text="a"), decide(text="s", actor="sub"), end("failure"))
    loose = [
        msgspec.structs.replace(event, node_id="", parent_id=None)
        if event.kind == "session.ended"
        else event
        for event in recording.events
    ]
    rebuilt = index_of(loose)
    reader = MemoryReader(loose)
    main = build_trajectory(rebuilt, path="e1")
    assert find_outcome(rebuilt, main, reader).status == "failure"
    sub = build_trajectory(rebuilt, actor="sub")
    assert find_outcome(rebuilt, sub, reader).status is None


# --- closure first ----------------------------------------------------------------------------


def test_attribution_accepts_a_closed_trajectory_and_nothing_else():
    hints = typing.get_type_hints(judge_run)
    assert hints["closed"] is ClosedTrajectory
    attributing = [
        name
        for name, function in inspect.getmembers(verdicts, inspect.isfunction)
        if name.startswith("judge_") and "closed" not in inspect.signature(function).parameters
    ]
    assert attributing == ["judge_open_run"]
