import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from redrive.app.trial_messages import Failure
from redrive.app.trial_outcome import find_fault, judge_run, one_line
from redrive.app.trial_state import RunEnd, RunState
from redrive.capture.ports import Outcome as ExchangeOutcome
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import Outcome
from redrive.sandbox.confinement import ConfinedResult

GONE = ConfinedResult(
    exit_code=0,
    signal=None,
    stdout=b"",
    stderr=b"",
    is_timeout=False,
    is_process_flood=False,
    is_output_cut=False,
    wall_s=1.0,
)


def _state(end: RunEnd | None = None) -> RunState:
    state = RunState(RunLimits())
    if end is not None:
        state.take_end(end)
    return state


DONE = RunEnd(Raw(b"1"))
FAILED = RunEnd(failure=Failure("ValueError", "no\nluck", "a.py:3"))


@pytest.mark.parametrize(
    ("end", "result", "expected"),
    [
        (DONE, GONE, (Outcome.COMPLETE, None)),
        (FAILED, GONE, (Outcome.FAILED, "ValueError: no luck (a.py:3)")),
        (RunEnd(failure=Failure("MemoryError", "")), GONE, (Outcome.LIMIT, "MemoryError:")),
        (None, None, (Outcome.FAILED, "it was not started")),
        (None, GONE, (Outcome.FAILED, "it ended without an output: it exited with 0")),
        (None, replace(GONE, signal=9), (Outcome.LIMIT, "signal 9 ended it")),
        (None, replace(GONE, signal=11), (Outcome.FAILED, None)),
        (None, replace(GONE, is_timeout=True), (Outcome.TIMEOUT, None)),
        (DONE, replace(GONE, is_process_flood=True), (Outcome.LIMIT, None)),
        (FAILED, replace(GONE, is_disk_full=True), (Outcome.LIMIT, None)),
    ],
)
def test_a_run_ended_as_the_first_thing_says_that_holds(
    end: RunEnd | None, result: ConfinedResult | None, expected: tuple[Outcome, str | None]
) -> None:
    outcome, error = judge_run(_state(end), result)
    assert outcome is expected[0]
    assert error == expected[1] or expected[1] is None


def test_a_refused_call_marks_the_run_but_for_one_that_is_made_again() -> None:
    for outcome in Outcome:
        state = _state()
        state.stop(outcome, "why")
        state.deny("mail", "not granted")
        is_again = outcome in (Outcome.CANCELLED, Outcome.CEILING)
        expected = (outcome, "why") if is_again else (Outcome.DENIED, "mail: not granted")
        assert judge_run(state, GONE) == expected


def test_a_refused_name_with_half_a_surrogate_pair_is_told_as_a_text() -> None:
    state = _state()
    state.deny("\ud800", "no \udfff")
    (denied,) = state.denied
    assert (denied.tool, denied.reason) == ("\ufffd\\ud800", "no \\udfff")
    msgspec.json.encode(denied)


def test_a_run_that_failed_behind_a_model_that_failed_says_nothing_of_its_workflow() -> None:
    state = _state(FAILED)
    state.model_fault = "the model small answered 503"
    expected = "the model small answered 503; ValueError: no luck (a.py:3)"
    assert judge_run(state, GONE) == (Outcome.MODEL, expected)
    state.deny("mail", "not granted")
    assert judge_run(state, GONE)[0] is Outcome.DENIED
    coped = _state(DONE)
    coped.model_fault = "the model small answered 503"
    assert judge_run(coped, GONE) == (Outcome.COMPLETE, None)


@pytest.mark.parametrize(
    ("status", "outcome", "fault"),
    [
        (200, ExchangeOutcome.COMPLETE, None),
        (200, ExchangeOutcome.CUT, "the model m gave half an answer"),
        (200, ExchangeOutcome.CANCELLED, None),
        (0, ExchangeOutcome.FAILED, "the model m gave no answer"),
        (0, ExchangeOutcome.CANCELLED, None),
        (400, ExchangeOutcome.COMPLETE, None),
        (413, ExchangeOutcome.COMPLETE, None),
        (401, ExchangeOutcome.COMPLETE, "the model m answered 401"),
        (429, ExchangeOutcome.COMPLETE, "the model m answered 429"),
        (500, ExchangeOutcome.COMPLETE, "the model m answered 500"),
        (503, ExchangeOutcome.CUT, "the model m answered 503"),
    ],
)
def test_what_the_request_is_not_to_blame_for_is_the_models_fault(
    status: int, outcome: ExchangeOutcome, fault: str | None
) -> None:
    assert find_fault("m", status, outcome) == fault


def test_the_first_end_counts_and_a_flood_of_refusals_is_bounded() -> None:
    state = _state(DONE)
    state.stop(Outcome.CANCELLED, "late")
    assert not state.take_end(FAILED)
    assert state.ending.is_set()
    assert judge_run(state, GONE) == (Outcome.COMPLETE, None)
    running = _state()
    assert [running.deny(str(number), "no") for number in range(1001)] == [True] * 1000 + [False]
    assert len(running.denied) == 1000
    assert running.why == (Outcome.LIMIT, "more than 1000 refused calls")


def test_a_line_is_one_and_bounded() -> None:
    assert one_line(" a\n\tb ") == "a b"
    assert len(one_line("x" * 1000)) == 500
