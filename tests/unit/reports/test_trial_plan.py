"""A preview as text: size, both costs beside their ceilings, time, and who may run."""

from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive.audit.eligibility import Refusal
from redrive.compare.trial_preview import (
    JudgingBound,
    PreviewFacts,
    RecordedRun,
    VariantFacts,
    preview_trial,
)
from redrive.reports.trial_plan import SHOWN_TASKS, preview_lines
from tests.policy_documents import HOSTILE_TEXTS
from tests.trial_plans import HEAD, TASKS, WHOLE, plan_of
from tests.trial_reports import plan_of_size


def text_of(plan, **facts) -> str:
    return "\n".join(preview_lines(preview_trial(plan, PreviewFacts(**facts))))


def test_size_cost_time_and_margin_are_said_before_anything_starts(tmp_path: Path) -> None:
    judging = JudgingBound(24, Decimal("0.03"))
    text = text_of(
        plan_of(tmp_path), judging=judging, smallest_margin=0.31, parallel=2, isolation="landlock"
    )
    for wanted in (
        "nothing is started yet",
        "Runs   2 variants × 2 tasks × 1 attempt = 4",
        "Calls  24 judge calls at most",
        "Cost   at most USD 1.03 in all",
        "  runs (replay): at most USD 1.00, never more than USD 1.00 (ceiling USD 1.00)",
        "  judging: at most USD 0.03, never more than USD 0.03 (ceiling USD 0.20)",
        "Time   at most 20m00s with 2 runs at a time (40m00s of runs)",
        "Shows  2 tasks can show a margin of 0.310 at best; gate: challenger within 0.05",
        "Isolation  landlock is proven here",
        "workflows@1 (workflows.py:v1, incumbent): eligible at landlock and above; no tools",
        "one: tasks.jsonl:1, no workspace",
        "Graders  correct (exact)",
        "the most expensive rung",
    ):
        assert wanted in text, wanted


def test_an_estimate_says_what_it_rests_on(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    runs = {plan.tasks[0].task_id: RecordedRun(1000, 100, 2.0)}
    text = text_of(plan, recorded=runs)
    assert "Cost   about USD 0.00056 in all" in text
    assert "from what some of the recorded runs used" in text


def test_a_variant_that_may_not_run_says_why(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, HEAD + TASKS)
    refusal = Refusal("push", "unsafe", ("w@1", "step s", "push"), "it is declared unsafe")
    facts = {
        "workflows@1": VariantFacts(refusals=(refusal,)),
        "workflows@2": VariantFacts(tools=("mail",), simulated=("mail",)),
    }
    text = text_of(plan, variants=facts)
    assert "INELIGIBLE, nothing of this plan runs" in text
    assert "  push (unsafe): it is declared unsafe\n    reached by w@1 → step s → push" in text
    assert "  simulated: mail" in text
    assert "USD 0.00: nothing that is asked costs anything" in text
    assert "Shows  no difference: nothing is compared" in text
    assert "Graders  none" in text


def test_environments_are_said_by_task(tmp_path: Path) -> None:
    lines = '{"input": 1, "environment": {"a": 1}}\n'
    text = text_of(plan_of(tmp_path, WHOLE + "[environment]\na = 2\n", lines=lines))
    assert "  environment differs: a: recorded 1, given 2" in text


def test_many_tasks_are_cut_with_their_count() -> None:
    assert "… 3 more tasks, in --json" in text_of(plan_of_size(1, SHOWN_TASKS + 3))


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_is_escaped(text: str) -> None:
    plan = replace(plan_of_size(2, 2, text=text), gate=text)
    judged = {
        entry.label: VariantFacts((Refusal(text, text, (text,), text),), (text,), (text,))
        for entry in plan.workflows
    }
    for line in preview_lines(preview_trial(plan, PreviewFacts(variants=judged))):
        assert all(part.isprintable() for part in line.split("\n"))
