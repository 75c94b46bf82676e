"""Reports of trials of any size, made by hand: runs that end in every way, graded and judged."""

import hashlib
from decimal import Decimal

from msgspec import Raw
from msgspec.structs import replace

from redrive.audit.workflow import WorkflowSpec
from redrive.compare.gate import parse_gate
from redrive.compare.judging import ShownOrder
from redrive.compare.trial_document import GroupGrade, grade_key
from redrive.compare.trial_grading import GradedTrial, sum_up
from redrive.compare.trial_report import (
    RunFacts,
    SpendFacts,
    StopFacts,
    TrialFacts,
    TrialReport,
    report_trial,
)
from redrive.replay.trial_plan import GraderSpec, PlannedWorkflow, TrialPlan, plan_runs
from redrive.replay.trial_values import (
    FINISHED,
    DeniedCall,
    EpisodeEnd,
    Outcome,
    OutputFile,
    Purpose,
    TrialTask,
)

ENDS = (
    EpisodeEnd(Outcome.COMPLETE, Raw(b'{"label":"bug"}'), wall_s=2.5),
    EpisodeEnd(Outcome.COMPLETE, Raw(b'{"label":"spam"}'), simulated=("mail",), wall_s=3.25),
    EpisodeEnd(Outcome.COMPLETE, Raw(b"null"), wall_s=0.5, files=(OutputFile("a.txt", "file", 3),)),
    EpisodeEnd(Outcome.FAILED, error="ValueError: no label", wall_s=1.0),
    EpisodeEnd(Outcome.DENIED, denied=(DeniedCall("push", "not granted"),) * 2, wall_s=4.0),
    EpisodeEnd(Outcome.TIMEOUT, error="120 s are over", wall_s=120.0),
)
SPEND = {
    Purpose.REPLAY: SpendFacts(Decimal("1.00"), Decimal("0.05"), Decimal("0.1234"), 40, 1),
    Purpose.JUDGING: SpendFacts(Decimal("0.20"), Decimal(0), Decimal("0.02"), 12, 0),
}


def plan_of_size(n_variants: int, n_tasks: int, attempts: int = 1, text: str = "") -> TrialPlan:
    """Make a plan of N variants and M tasks; `text` stands in every name."""
    roles = ("incumbent", "challenger")
    workflows = tuple(
        PlannedWorkflow(
            f"workflows.py:v{n}{text}",
            WorkflowSpec(f"triage{text}", f"{n}"),
            hashlib.sha256(str(n).encode()).hexdigest(),
            roles[n - 1] if n <= len(roles) else "",
        )
        for n in range(1, n_variants + 1)
    )
    tasks = tuple(
        TrialTask(f"{n:016x}", f"task {n}{text}", Raw(b"1"), origin=f"tasks.jsonl:{n}")
        for n in range(1, n_tasks + 1)
    )
    graders = (GraderSpec("correct", "exact"), GraderSpec("style", "judge"))
    return TrialPlan(
        "triage", workflows, tasks, (), {}, graders, attempts=attempts, digest="d" * 64
    )


def report_of_size(
    n_variants: int = 3,
    n_tasks: int = 8,
    attempts: int = 1,
    *,
    ends=ENDS,
    n_ended: int | None = None,
    text: str = "",
    is_graded: bool = True,
    gate: str = "challenger within 0.05 of incumbent",
) -> TrialReport:
    """Report a trial; the n-th run ends as `ends` say in turn, those from `n_ended` on never."""
    plan = plan_of_size(n_variants, n_tasks, attempts, text)
    runs = [
        RunFacts(
            planned.key,
            1,
            _with(ends[number * 7 % len(ends)], number, text),
            Decimal("0.00102"),
            fingerprints=("engine-1",),
        )
        for number, planned in enumerate(plan_runs(plan))
    ]
    ended = runs if n_ended is None else runs[:n_ended]
    stops = () if n_ended is None else (StopFacts("the next call would pass it", "replay"),)
    if n_ended is not None and n_ended < len(runs):
        ended.append(RunFacts(runs[n_ended].key, 1, reserved_usd=Decimal("0.05")))
    facts = TrialFacts("triage-dddddddd", tuple(ended), SPEND, stops)
    grading = sum_up(grade(plan, ended, gate, text)) if is_graded else None
    return report_trial(plan, facts, grading)


def _with(end: EpisodeEnd, number: int, text: str) -> EpisodeEnd:
    error = None if end.error is None else end.error + text
    session = f"redrive:trial-{number}{text}"
    return replace(end, session_id=session, isolation="bubblewrap", error=error)


def grade(plan: TrialPlan, runs, gate: str, text: str = "") -> GradedTrial:
    """Grade what finished: later variants do better, and the judge sees it so."""
    labels = [entry.label for entry in plan.workflows]
    grades = []
    for number, task in enumerate(plan.tasks):
        own = [run for run in runs if run.key.task_id == task.task_id and run.end is not None]
        if not own:
            continue
        scores = {
            grade_key(run.key.variant, run.key.attempt): float(
                run.end.outcome is Outcome.COMPLETE
                and (labels.index(run.key.variant) + number) % 3 > 0
            )
            for run in own
        }
        grades.append(
            GroupGrade(
                "correct",
                "exact",
                task.task_id,
                scores,
                {key: score > 0.5 for key, score in scores.items()},
                simulated=tuple(
                    grade_key(run.key.variant, run.key.attempt) for run in own if run.end.simulated
                ),
                reasons={key: f"expected bug{text}" for key, score in scores.items() if not score},
            )
        )
        shown = tuple(run.key.variant for run in own if run.key.attempt == 1)
        if len(shown) < 2:
            continue
        ranking = tuple((variant,) for variant in reversed(shown))
        orders = (ShownOrder(shown, ranking), ShownOrder(shown[::-1], ranking))
        grades.append(GroupGrade("style", "judge", task.task_id, orders=orders))
    return GradedTrial(
        variants=tuple((entry.label, entry.role) for entry in plan.workflows),
        tasks=tuple((task.task_id, task.name) for task in plan.tasks),
        attempts=plan.attempts,
        graders=tuple((grader.name, grader.kind) for grader in plan.graders),
        grades=tuple(grades),
        finished={run.key for run in runs if run.end and run.end.outcome in FINISHED},
        gate=parse_gate(gate) if gate else None,
        resamples=50,
    )
