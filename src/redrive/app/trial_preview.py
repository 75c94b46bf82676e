"""Gathers what a preview of a trial rests on: recorded runs, the load check, processors.

Knows the store and the plan. Starts no run and writes nothing.

Source: DESIGN.md §6 "shown before start".
"""

import os
from collections.abc import Iterable
from typing import Any

from redrive.app.trial_tasks import OpenStore
from redrive.audit.eligibility import check_simulate, judge
from redrive.compare.gate import smallest_margin
from redrive.compare.trial_preview import (
    JudgingBound,
    PreviewFacts,
    RecordedRun,
    TrialPreview,
    VariantFacts,
    preview_trial,
)
from redrive.replay.trial_plan import TrialPlan
from redrive.stores.port import SessionRow

_NS_PER_S = 1_000_000_000


def preview_plan(
    plan: TrialPlan, open_store: OpenStore, *, level: str, judging: JudgingBound
) -> TrialPreview:
    """Say what a trial will be.

    Args:
        plan: as read.
        open_store: opened only where tasks come from recorded sessions.
        level: of the sandbox that is proven here.
        judging: what its graders may ask.

    Raises:
        UsageError: a tool to be simulated is declared by no workflow, or has no simulator.
    """
    can_compare = len(plan.workflows) > 1 and plan.graders
    facts = PreviewFacts(
        variants=judge_variants(plan, level),
        recorded=dict(_recorded(plan, open_store)),
        judging=judging,
        parallel=plan.parallel or os.cpu_count() or 1,
        smallest_margin=smallest_margin(len(plan.tasks)) if can_compare else None,
        isolation=level,
    )
    return preview_trial(plan, facts)


def judge_variants(plan: TrialPlan, level: str) -> dict[str, VariantFacts]:
    """Check every variant: label → what it reaches, and what is refused."""
    check_simulate((entry.spec for entry in plan.workflows), plan.simulate)
    simulate = frozenset(plan.simulate)
    found = {
        entry.label: judge(entry.spec, simulate=simulate, level=level) for entry in plan.workflows
    }
    return {
        label: VariantFacts(judged.refusals, judged.tools, judged.simulated)
        for label, judged in found.items()
    }


def _recorded(plan: TrialPlan, open_store: OpenStore) -> Iterable[tuple[str, RecordedRun]]:
    tasks = [(task.task_id, task.session_id) for task in plan.tasks if task.session_id]
    if not tasks:
        return
    with open_store() as store:
        for task_id, session_id in tasks:
            yield task_id, recorded_run(store.get_session(session_id))


def recorded_run(row: SessionRow) -> RecordedRun:
    """Say what a recorded run used, as far as its record tells.

    Some APIs count cached input apart from the rest, which shows where there is more of it than of
    all input; it is then added.
    """
    usage: dict[str, Any] = row.summary.get("usage") or {}
    asked = usage.get("input_tokens")
    cached = (usage.get("cache_read_tokens") or 0) + (usage.get("cache_write_tokens") or 0)
    if asked is not None and cached > asked:
        asked += cached
    first, last = row.first_ts_ns, row.last_ts_ns
    took = None if first is None or last is None or last <= first else (last - first) / _NS_PER_S
    return RecordedRun(asked, usage.get("output_tokens"), took)
