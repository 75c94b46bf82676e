"""Before a trial starts, its size, cost and time are said, and what is only a bound says so."""

from decimal import Decimal
from pathlib import Path

import pytest
from msgspec import Raw
from msgspec.structs import replace

from redrive.audit.eligibility import Refusal
from redrive.audit.workflow import Grants, ToolSpec, WorkflowSpec
from redrive.compare.trial_environment import NOT_ATTRIBUTED
from redrive.compare.trial_preview import (
    MOST_EXPENSIVE,
    JudgingBound,
    PreviewFacts,
    RecordedRun,
    VariantFacts,
    preview_trial,
)
from redrive.replay.trial_plan import RunLimits
from tests.trial_plans import GRADER, HEAD, MODEL, TASKS, WHOLE, plan_of


@pytest.fixture
def plan(tmp_path: Path):
    return plan_of(tmp_path)


def test_n_times_m_times_attempts_runs_are_planned(plan) -> None:
    found = preview_trial(replace(plan, attempts=3), PreviewFacts(parallel=4))
    assert (found.planned, found.n_variants, found.n_tasks, found.attempts) == (12, 2, 2, 3)
    assert found.notes[0] == MOST_EXPENSIVE
    assert found.unpriced == ()
    assert found.is_eligible
    assert found.graders == (("correct", "exact"),)
    assert [task.has_expected for task in found.tasks] == [True, False]


def test_with_nothing_recorded_cost_and_time_are_bounds(plan) -> None:
    found = preview_trial(plan, PreviewFacts(parallel=3))
    (replay,) = found.costs
    assert (replay.ceiling_usd, replay.bound_usd, replay.estimate_usd) == ("1.00",) * 3
    assert (replay.is_bound, replay.basis, replay.calls) == (True, "limits", 400)
    assert (found.estimate_usd, found.is_bound) == ("1.00", True)
    assert (found.time.runs_s, found.time.wall_s) == (2400, 1200)
    assert (found.time.parallel, found.time.is_bound, found.time.basis) == (3, True, "limits")


def test_the_bound_follows_from_limits_where_they_are_below_the_ceiling(plan) -> None:
    found = preview_trial(replace(plan, limits=RunLimits(model_calls=1)), PreviewFacts())
    assert found.costs[0].bound_usd == "1.00"
    (model,) = plan.models
    cheap = replace(model, price=replace(model.price, input_usd=Decimal("0.0001")))
    few = replace(plan, models=(cheap,), limits=RunLimits(model_calls=1))
    bound = 4 * (64 * 1024 * 1024 * Decimal("0.0001") + 256 * Decimal("0.40")) / 1_000_000
    assert Decimal(preview_trial(few, PreviewFacts()).costs[0].bound_usd) == bound


def test_what_was_recorded_gives_the_estimate(plan) -> None:
    one, other = (task.task_id for task in plan.tasks)
    run = RecordedRun(input_tokens=10_000, output_tokens=1_000, duration_s=3.0)
    partly = preview_trial(plan, PreviewFacts(recorded={one: run}, parallel=2))
    assert partly.costs[0].basis == partly.time.basis == "partly recorded"
    assert (partly.costs[0].estimate_usd, partly.is_bound) == ("0.0056", False)
    both = {one: run, other: RecordedRun(output_tokens=1_000, duration_s=900.0)}
    found = preview_trial(plan, PreviewFacts(recorded=both, parallel=2))
    assert found.costs[0].basis == found.time.basis == "recorded"
    assert found.costs[0].estimate_usd == "0.0036"
    assert found.time.runs_s == 2 * (3 + 600)
    assert found.time.wall_s == found.time.runs_s / 2


def test_what_is_not_recorded_is_no_zero(plan) -> None:
    nothing = {task.task_id: RecordedRun() for task in plan.tasks}
    found = preview_trial(plan, PreviewFacts(recorded=nothing))
    assert found.costs[0].basis == found.time.basis == "limits"


def test_an_estimate_above_the_ceiling_says_that_the_trial_would_stop(plan) -> None:
    runs = {task.task_id: RecordedRun(output_tokens=10**9) for task in plan.tasks}
    found = preview_trial(plan, PreviewFacts(recorded=runs))
    assert found.estimate_usd == "1600.00"
    assert any("above the ceiling, which would stop the trial" in note for note in found.notes)


def test_judging_has_a_cost_of_its_own(plan) -> None:
    judging = JudgingBound(calls=12, usd=Decimal("0.05"))
    found = preview_trial(plan, PreviewFacts(judging=judging, smallest_margin=0.25))
    _, line = found.costs
    assert (line.purpose, line.ceiling_usd, line.bound_usd) == ("judging", "0.20", "0.05")
    assert (found.judge_calls, found.estimate_usd, found.smallest_margin) == (12, "1.05", 0.25)
    dear = preview_trial(plan, PreviewFacts(judging=replace(judging, usd=Decimal(3))))
    assert dear.costs[1].bound_usd == "0.20"
    free = replace(plan, ceilings={})
    gratis = preview_trial(free, PreviewFacts(judging=replace(judging, usd=Decimal(0)))).costs[1]
    assert (gratis.ceiling_usd, gratis.basis, gratis.is_bound) == (None, "free", False)


def test_a_ceiling_of_nothing_does_not_make_a_model_free(tmp_path: Path) -> None:
    text = HEAD + TASKS + MODEL + '[ceilings]\nreplay_usd = "0"\njudging_usd = "0"\n'
    judging = JudgingBound(calls=12, usd=Decimal("0.05"))
    found = preview_trial(plan_of(tmp_path, text), PreviewFacts(judging=judging))
    assert found.is_bound
    for line in found.costs:
        assert (line.basis, line.is_bound) == ("limits", True)
        assert (line.ceiling_usd, line.bound_usd) == ("0.00", "0.00")


def test_what_costs_nothing_says_so(tmp_path: Path) -> None:
    free = MODEL.replace('"0.10"', '"0"').replace('"0.40"', '"0"')
    text = HEAD + TASKS + free + '[ceilings]\nreplay_usd = "0"\n'
    found = preview_trial(plan_of(tmp_path, text), PreviewFacts())
    assert (found.costs[0].basis, found.estimate_usd, found.is_bound) == ("free", "0.00", False)
    without = preview_trial(plan_of(tmp_path, HEAD + TASKS), PreviewFacts())
    assert (without.costs[0].calls, without.costs[0].ceiling_usd) == (0, None)
    assert any("no grader" in note for note in without.notes)


def test_an_ineligible_variant_is_named_and_says_what_level_the_others_need(plan) -> None:
    one, other = plan.workflows
    network = ToolSpec("fetch", "read_only", Grants(network=("a:1",)))
    other = replace(other, spec=replace(other.spec, tools=(network,)))
    refusal = Refusal("push", "unsafe", ("w", "push"), "unsafe")
    facts = {
        one.label: VariantFacts(refusals=(refusal,)),
        other.label: VariantFacts(tools=("fetch",), simulated=("mail",)),
    }
    found = preview_trial(replace(plan, workflows=(one, other)), PreviewFacts(variants=facts))
    assert not found.is_eligible
    assert [(v.eligible, v.isolation) for v in found.variants] == [
        (False, ""),
        (True, "bubblewrap"),
    ]
    assert found.variants[0].refusals == (refusal,)
    assert any("simulated" in note for note in found.notes)
    command = replace(one, spec=WorkflowSpec("c", "1", kind="command"))
    quiet = replace(other, spec=replace(other.spec, id="d"))
    levels = preview_trial(replace(plan, workflows=(command, quiet)), PreviewFacts()).variants
    assert [variant.isolation for variant in levels] == ["bubblewrap", "landlock"]


def test_one_variant_is_not_compared(tmp_path: Path) -> None:
    text = 'name = "a"\nworkflows = [{source = "w.py:v1"}]\n' + TASKS + GRADER
    notes = preview_trial(plan_of(tmp_path, text), PreviewFacts()).notes
    assert any("no ranking" in note for note in notes)


def test_another_environment_is_counted_and_nothing_is_attributed(tmp_path: Path) -> None:
    lines = '{"input": 1, "environment": {"a": 1}}\n{"input": 2, "environment": {"a": 2}}\n'
    found = preview_trial(plan_of(tmp_path, lines=lines), PreviewFacts())
    assert any(note.startswith("2 tasks") and NOT_ATTRIBUTED in note for note in found.notes)
    given = plan_of(tmp_path, WHOLE + "[environment]\na = 1\n", lines=lines)
    found = preview_trial(given, PreviewFacts())
    assert [task.environment.status for task in found.tasks] == ["same", "differs"]
    assert any(note.startswith("1 task in another") for note in found.notes)
    assert isinstance(given.environment, Raw)
