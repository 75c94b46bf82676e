"""What one step means for others, and the door to attribution."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.audit.closure import ClosedTrajectory, audit, close, closure_error, try_close
from redrive.audit.renderers import render_json_v1
from redrive.audit.report import API_BOUNDARY
from redrive.errors import ReplayClosureError
from redrive.record.event import (
    FLAG_UNREPRESENTABLE,
    ContextReplaced,
    Damage,
    Kind,
    ModelRequest,
    ModelResponse,
    Read,
    ToolCall,
    raw_of,
)
from tests.helpers_growth import growth
from tests.helpers_sessions import RENDERERS, SessionBuilder, gaps_of

ROOT = Path(__file__).resolve().parents[3]


def polled() -> SessionBuilder:
    """Three decisions, two calls, all closed."""
    built = SessionBuilder().decision(("c1", "t", {"b": 0.1, "a": 1}))
    built.result("c1", "STARTING").decision(("c2", "t", {})).result("c2", [1.0, None])
    return built.decision(text="done")


# --- the door
def test_a_closed_session_closes_and_carries_its_report() -> None:
    closed = polled().close()
    assert closed is not None
    assert closed.report.closed_until == 3
    assert len(closed.trajectory.steps) == 3


def test_closing_an_open_trajectory_names_the_first_open_step_and_every_gap() -> None:
    built = SessionBuilder().decision().decision(("c1", "t", {})).decision(sampling=None)
    with pytest.raises(ReplayClosureError, match="provenance gap at step 2: environment") as caught:
        close(*built.build(), session_started=built.started, renderers={})
    assert caught.value.gaps == (
        (2, "environment", "tool_result:c1"),
        (3, "sampling", "temperature"),
        (3, "sampling", "seed"),
    )
    assert caught.value.hint
    assert built.close() is None


def test_closing_a_closed_trajectory_gives_the_same_as_trying_to() -> None:
    built = polled()
    closed = close(*built.build(), session_started=built.started, renderers=RENDERERS)
    report, tried = try_close(*built.build(), session_started=built.started, renderers=RENDERERS)
    assert tried is not None
    assert (closed.report, closed.trajectory) == (report, tried.trajectory)


def test_a_trajectory_without_decisions_is_open_and_cannot_be_closed() -> None:
    report = SessionBuilder().audit()
    assert report.status == "open"
    assert "no decision is recorded" in report.notes
    assert "no decision of 'main'" in closure_error(report).message


def test_a_closed_trajectory_cannot_be_made_or_changed_by_hand() -> None:
    with pytest.raises(TypeError, match="close alone"):
        ClosedTrajectory(None)  # type: ignore[arg-type]
    closed = polled().close()
    assert closed is not None
    with pytest.raises(AttributeError):
        closed.report = None  # type: ignore[assignment]


def test_the_type_checker_refuses_another_way_to_a_closed_trajectory(tmp_path: Path) -> None:
    forged = tmp_path / "forged.py"
    forged.write_text(
        "from redrive.audit.closure import ClosedTrajectory\n"
        "ClosedTrajectory(object())\n"
        "ClosedTrajectory()\n"
        "class Forged(ClosedTrajectory): ...\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(forged)]
    found = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    lines = [line for line in found.stdout.splitlines() if "forged.py:" in line]
    assert [line.split("forged.py:")[1].split(":")[0] for line in lines] == ["2", "3", "4"]


def test_the_boundary_is_said_once() -> None:
    assert polled().audit().notes.count(API_BOUNDARY) == 1


# --- across steps
def test_a_missing_result_opens_each_later_step_whose_context_is_not_stored() -> None:
    built = SessionBuilder().decision(("c1", "t", {}), ("c2", "t", {}))
    built.decision(context=None).decision().decision(context=None)
    assert gaps_of(built.audit(renderers={})) == [
        (1, "environment", "missing_result"),
        (1, "environment", "missing_result"),
        (2, "input", "nothing_sent"),
        (2, "environment", "earlier_result_missing"),
        (4, "input", "nothing_sent"),
        (4, "environment", "earlier_result_missing"),
    ]
    reason = built.audit().steps[1].missing[1].reason
    assert "2 earlier results" in reason
    assert "tool_result:c1" in reason


def test_a_result_after_a_later_decision_still_answers_its_call() -> None:
    built = SessionBuilder().decision(("c1", "t", {}))
    built.decision(context="x").result("c1", 5)
    assert built.audit(renderers={}).is_closed


def test_a_prefix_is_audited_alone() -> None:
    built = SessionBuilder().decision().decision(sampling=None)
    index, trajectory, reader = built.build()
    report = audit(index, trajectory.prefix(1), reader, session_started=built.started, renderers={})
    assert report.is_closed


@pytest.mark.parametrize(("step", "opened"), [(None, 1), (1, 1), (3, 3), (9, 1)])
def test_a_read_opens_the_step_it_names_else_the_nearest_decision(
    step: int | None, opened: int
) -> None:
    built = SessionBuilder().decision().read("prng", "jitter", step=step).decision().decision()
    assert gaps_of(built.audit()) == [(opened, "prng", "missing_prng_value")]


def test_beyond_a_cut_path_a_read_of_a_later_step_is_a_note() -> None:
    built = SessionBuilder().decision().read("prng", "jitter", step=2).decision()
    index, trajectory, reader = built.build()
    report = audit(index, trajectory.prefix(1), reader, session_started=built.started, renderers={})
    assert report.is_closed
    assert "jitter belongs to step 2, which is not on this path" in report.notes
    assert gaps_of(built.audit()) == [(2, "prng", "missing_prng_value")]


def test_a_named_step_is_the_records_own_number() -> None:
    built = SessionBuilder().decision().decision()
    for seq, number in zip(built.seqs(Kind.MODEL_REQUEST), (40, 41), strict=True):
        built.replace(seq, step=number)
    built.read("clock", "now", step=40).derived("x", function="f", step=41)
    report = built.audit()
    assert [(step.step, step.recorded_step) for step in report.steps] == [(1, 40), (2, 41)]
    assert gaps_of(report) == [
        (1, "clock", "missing_clock_value"),
        (2, "environment", "missing_inputs"),
    ]


def test_without_recorded_numbers_a_named_step_is_the_ordinal() -> None:
    built = (
        SessionBuilder().decision(request=None, response=ModelResponse()).read("prng", "x", step=2)
    )
    built.decision(request=None, response=ModelResponse())
    steps = [step for step, input_class, _ in gaps_of(built.audit()) if input_class == "prng"]
    assert steps == [2]


def test_a_recorded_number_may_stand_on_the_response_alone() -> None:
    built = SessionBuilder().decision(request=None, response=ModelResponse(step=8))
    assert built.audit().steps[0].recorded_step == 8


def test_a_read_above_the_first_decision_opens_step_1() -> None:
    assert gaps_of(SessionBuilder().read("clock", "start").decision().audit()) == [
        (1, "clock", "missing_clock_value")
    ]


# --- broken records
def test_a_broken_chain_opens_the_first_step_below_the_break() -> None:
    built = SessionBuilder()
    built.head = "lost"
    built.decision().decision()
    report = built.audit()
    assert (report.closed_until, gaps_of(report)) == (0, [(1, "input", "broken_chain")])
    gap = report.steps[0].missing[0]
    assert (gap.what, "lost" in gap.reason) == ("broken_chain", True)


def test_a_cycle_is_named() -> None:
    built = SessionBuilder()
    built.head = "d2"
    built.decision()
    built.head = "d1"
    built.n_decisions = 1
    built.decision()
    assert gaps_of(built.audit(renderers={})) == [(1, "input", "cycle")]


@pytest.mark.parametrize(("after", "opened"), [(0, 1), (1, 1), (2, 2), (3, 3)])
def test_damage_opens_the_step_at_which_it_lies(after: int, opened: int) -> None:
    built = SessionBuilder()
    for number in range(4):
        if number == after:
            built.add(Kind.DAMAGE, Damage(7, 100, 20, "20 NUL bytes"), node="")
        if number < 3:
            built.decision()
    report = built.audit()
    assert gaps_of(report) == [(opened, "input", "damage")]
    gap = report.steps[opened - 1].missing[0]
    assert (gap.what, "20 NUL bytes" in gap.reason) == ("damage at line 7", True)
    assert "1 damaged stretch in the source" in report.notes


@pytest.mark.parametrize("reason", ["byte order mark", FLAG_UNREPRESENTABLE])
def test_damage_that_lost_nothing_opens_nothing(reason: str) -> None:
    built = SessionBuilder().add(Kind.DAMAGE, Damage(1, 0, 3, reason), node="").decision()
    assert built.audit().is_closed


def test_other_actors_and_other_branches_do_not_matter() -> None:
    built = polled()
    built.add(Kind.MODEL_RESPONSE, ModelResponse(), node="s1", parent="d1", actor="sub")
    built.add(Kind.PRNG_READ, Read("jitter"), node="s2", parent="s1", actor="sub")
    assert built.audit().is_closed


# --- assembly
def test_the_rendered_record_is_compared_with_every_context() -> None:
    report = polled().user("and now?").decision().audit()
    assert report.is_closed
    declared = SessionBuilder(renderer="json@1").decision(("c1", "t", {"x": 0.1})).result("c1", {})
    report = declared.user("and now?").custom().decision(text="a").decision().audit()
    assert report.is_closed
    assert all(step.notes == () for step in report.steps)


def test_a_context_that_the_record_does_not_render_to_is_a_mismatch() -> None:
    built = SessionBuilder(renderer="json@1").decision().decision(context="[]").decision()
    assert gaps_of(built.audit()) == [(2, "input", "context_mismatch")]


@pytest.mark.parametrize(
    ("renderer", "note"),
    [
        (None, "assembly: not checked"),
        ("own@2", "assembly: not checked (no renderer own@2 is registered)"),
    ],
)
def test_without_a_registered_renderer_the_step_says_so(renderer: str | None, note: str) -> None:
    report = SessionBuilder(renderer=renderer).decision(context="?").audit()
    assert report.is_closed
    assert report.steps[0].notes == (note,)


def test_an_unusable_result_ends_the_check_instead_of_blaming_the_serialiser() -> None:
    built = (
        SessionBuilder(renderer="json@1").decision(("c1", "t", {})).result("c1", 1, truncated=True)
    )
    report = built.decision().audit()
    assert gaps_of(report) == [(1, "environment", "truncated_result")]
    assert report.steps[1].notes == ("assembly: not checked (tool_result:c1 is not usable)",)


def test_a_step_with_a_body_alone_is_not_checked_and_the_next_one_is() -> None:
    built = SessionBuilder(renderer="json@1")
    built.decision(request=ModelRequest(body='{"seed":1}', model="m")).decision()
    assert [step.notes for step in built.audit().steps] == [("assembly: not checked",), ()]


def test_a_duplicate_result_enters_the_context_once() -> None:
    built = SessionBuilder(renderer="json@1").decision(("c1", "t", {})).result("c1", 1)
    built.result("c1", 1)
    built.messages.pop()
    assert built.decision().audit().is_closed


def test_a_compaction_starts_the_list_over() -> None:
    built = SessionBuilder(renderer="json@1").decision()
    built.messages = [{"role": "user", "content": "summary"}]
    built.add(Kind.CONTEXT_REPLACED, ContextReplaced(after=raw_of(built.messages)))
    assert built.decision().decision().audit().is_closed


def test_decisions_that_travel_as_text_have_no_call_messages() -> None:
    built = SessionBuilder(renderer="json@1", decisions="json_content").decision(
        text='{"tool":"t"}'
    )
    built.call(ToolCall("t"), "d1").result("d1", 1)
    assert built.decision().audit().is_closed


def test_a_sub_agents_list_is_not_checked() -> None:
    built = SessionBuilder(renderer="json@1")
    request = ModelRequest(model="m", context="sub", sampling=None)
    built.add(Kind.MODEL_REQUEST, request, node="s1", actor="sub")
    built.add(Kind.MODEL_RESPONSE, ModelResponse(), node="s1", actor="sub")
    report = audit(*built.build("sub"), session_started=built.started, renderers=RENDERERS)
    assert "assembly: not checked (how a sub-agent's list begins is not recorded)" in (
        report.steps[0].notes
    )


# --- environment offered
def test_an_offered_environment_that_differs_opens_step_1_field_by_field() -> None:
    built = SessionBuilder(environment=raw_of({"image": "a", "name": "x"})).decision().decision()
    assert built.audit(environment={"image": "a", "name": "x"}).is_closed
    report = built.audit(environment={"image": "b"})
    assert [gap.what for gap in report.steps[0].missing] == [
        "environment.image",
        "environment.name",
    ]
    assert (report.closed_until, report.steps[1].status) == (0, "closed")


def test_an_offered_environment_needs_a_recorded_one() -> None:
    built = SessionBuilder().decision()
    assert gaps_of(built.audit(environment={})) == [(1, "environment", "environment_unknown")]
    report = audit(*built.build(), session_started=None, renderers={}, environment={})
    assert report.steps[0].missing[0].cause == "environment_unknown"


def test_the_audit_reads_no_event_twice_and_one_step_at_a_time() -> None:
    built = polled()
    asked: list[tuple[int, ...]] = []

    class Watched:
        def read_events(self, seqs):  # type: ignore[no-untyped-def]
            asked.append(tuple(seqs))
            return (built.events[seq] for seq in asked[-1])

    index, trajectory, _ = built.build()
    audit(
        index, trajectory, Watched(), session_started=built.started, renderers={"j": render_json_v1}
    )
    assert asked == [step.seqs() for step in trajectory.steps]


@pytest.mark.parametrize("name", ["c{}", "c"])
def test_many_calls_of_one_decision_are_judged_in_linear_time(name: str) -> None:
    def wide(size: int) -> Callable[[], object]:
        built = SessionBuilder().decision()
        for number in range(size):
            built.call(ToolCall("t"), name.format(number))
        for number in reversed(range(size)):
            built.result(name.format(number), number)
        index, trajectory, reader = built.build()
        return lambda: audit(index, trajectory, reader, session_started=None, renderers={})

    assert growth(wide, 50) < 5
