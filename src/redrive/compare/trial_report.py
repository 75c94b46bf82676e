"""The report of a trial: what was planned, what ran, what it cost, and what graders make of it.

Knows the plan, the facts of its ledger, and grades summed up. Must not know how anything is shown.
Every run of the plan is in it by name, whether it ran or not: what is missing is never left out.

Source: DESIGN.md §6, §8 `trial report`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from redrive import canonical
from redrive.compare.trial_document import GradingReport
from redrive.compare.trial_environment import TaskEnvironment, judge_environment
from redrive.compare.trial_preview import MOST_EXPENSIVE
from redrive.replay.money import ZERO, add, dump_usd, subtract
from redrive.replay.trial_plan import TrialPlan, plan_runs
from redrive.replay.trial_values import (
    FINISHED,
    DeniedCall,
    EpisodeEnd,
    OutputFile,
    Purpose,
    RunKey,
    TrialTask,
)

NOT_STARTED, INTERRUPTED = "not_started", "interrupted"
MAX_OUTPUT_BYTES = 4096
MAX_FILES = 100


class RunFacts(msgspec.Struct, frozen=True):
    """What the ledger says of one run.

    Attributes:
        key: which run.
        execution: how often it was started.
        end: of the last execution; absent where there is none.
        spent_usd, reserved_usd: settled, and still held back.
        fingerprints: of the models that answered it, each once.
    """

    key: RunKey
    execution: int = 0
    end: EpisodeEnd | None = None
    spent_usd: Decimal = ZERO
    reserved_usd: Decimal = ZERO
    fingerprints: tuple[str, ...] = ()


class SpendFacts(msgspec.Struct, frozen=True):
    """Money of one purpose, and its calls."""

    ceiling_usd: Decimal = ZERO
    reserved_usd: Decimal = ZERO
    spent_usd: Decimal = ZERO
    calls: int = 0
    unsettled: int = 0


class StopFacts(msgspec.Struct, frozen=True):
    """Why a trial stopped before its end: at the ceiling of a purpose, or interrupted (none)."""

    reason: str
    purpose: str | None = None


class TrialFacts(msgspec.Struct, frozen=True):
    """What the ledger says of a trial; runs in any order, those not named never started.

    Attributes:
        trial_id: empty where nothing was begun.
        overrun_usd: by how much endpoints billed more than was reserved.
    """

    trial_id: str
    runs: tuple[RunFacts, ...] = ()
    spend: Mapping[Purpose, SpendFacts] = {}
    stops: tuple[StopFacts, ...] = ()
    overrun_usd: Decimal = ZERO


class SpendLine(msgspec.Struct, frozen=True):
    """Money of one purpose, decimals as text.

    Attributes:
        left_usd: what the ceiling still admits.
        calls: of models, in all.
        unsettled: of these, those that count with their reservation.
    """

    ceiling_usd: str
    reserved_usd: str
    spent_usd: str
    left_usd: str
    calls: int
    unsettled: int


class RunView(msgspec.Struct, frozen=True):
    """One run.

    Attributes:
        key: `VARIANT TASK_ID #ATTEMPT`, as errors and `not_run` name it.
        outcome: see `Outcome`; `not_started`, or `interrupted` where it was started and never
            ended.
        is_finished: whether it came to an end that stands.
        execution: how often it was started.
        cost_usd: settled; `reserved_usd` is still held back for it.
        duration_s: absent where it never ended.
        denied: refused calls, in order, swallowed by its code or not.
        simulated: tools whose simulator answered: what rests on them is simulated.
        output: what it gave back, up to 4096 bytes of JSON; `output_bytes` is its length.
        files: up to 100 of `n_files` that it changed.
        environment: see `TaskEnvironment.status`.
    """

    key: str
    variant: str
    task_id: str
    task: str
    attempt: int
    seed: int
    outcome: str
    is_finished: bool
    execution: int
    cost_usd: str
    reserved_usd: str
    duration_s: float | None
    denied: tuple[DeniedCall, ...]
    simulated: tuple[str, ...]
    session_id: str
    isolation: str
    model_fingerprints: tuple[str, ...]
    environment: str
    error: str | None = None
    output: Any = UNSET
    output_bytes: int = 0
    n_files: int = 0
    files: tuple[OutputFile, ...] = ()
    notes: tuple[str, ...] = ()


class VariantView(msgspec.Struct, frozen=True):
    """One variant over all its runs.

    Attributes:
        outcomes: outcome → runs.
        duration_s: mean of the runs that ended; absent where none did.
        denied: refused calls in all.
        simulated: tools whose simulator answered in any run.
    """

    variant: str
    role: str
    source: str
    digest: str
    planned: int
    finished: int
    outcomes: Mapping[str, int]
    cost_usd: str
    duration_s: float | None
    denied: int
    simulated: tuple[str, ...]


class TaskView(msgspec.Struct, frozen=True):
    """One task, and how the environment of its runs stands to the recorded one."""

    task_id: str
    name: str
    origin: str
    session_id: str | None
    workspace_digest: str | None
    environment: TaskEnvironment


class TrialReport(msgspec.Struct, frozen=True):
    """The document of `trial run`, `trial resume` and `trial report`.

    Attributes:
        planned, started, finished: runs.
        not_run: runs that did not finish, by name, in the plan's order: never started, or begun and
            cut off. A resume makes exactly these.
        stopped: why it stopped before its end, if it did.
        isolation: the proven level that runs ran at; several are listed, none is empty.
        is_simulated: whether any run rests on a simulated tool.
        gate: as the plan states it; empty for none.
        grading: absent as long as nothing is graded.
    """

    trial_id: str
    name: str
    plan_digest: str
    planned: int
    started: int
    finished: int
    not_run: tuple[str, ...]
    stopped: tuple[StopFacts, ...]
    spend: Mapping[str, SpendLine]
    isolation: str
    is_simulated: bool
    denied: int
    variants: tuple[VariantView, ...]
    tasks: tuple[TaskView, ...]
    runs: tuple[RunView, ...]
    gate: str
    grading: GradingReport | None
    notes: tuple[str, ...]
    schema: str = "redrive.trial_report"
    schema_version: int = 1

    @property
    def is_complete(self) -> bool:
        """Whether every planned run finished."""
        return not self.not_run


def report_trial(
    plan: TrialPlan, facts: TrialFacts, grading: GradingReport | None = None
) -> TrialReport:
    """Make the report. Cost: O(runs)."""
    environments = {task.task_id: judge_environment(plan, task) for task in plan.tasks}
    runs = tuple(_runs(plan, facts, environments))
    ended = [run for run in runs if run.isolation]
    return TrialReport(
        trial_id=facts.trial_id,
        name=plan.name,
        plan_digest=plan.digest,
        planned=len(runs),
        started=sum(run.execution > 0 for run in runs),
        finished=sum(run.is_finished for run in runs),
        not_run=tuple(run.key for run in runs if not run.is_finished),
        stopped=facts.stops,
        spend={str(purpose): _spend(facts.spend[purpose]) for purpose in sorted(facts.spend)},
        isolation=", ".join(sorted({run.isolation for run in ended})),
        is_simulated=any(run.simulated for run in runs),
        denied=sum(len(run.denied) for run in runs),
        variants=tuple(_variants(plan, runs)),
        tasks=tuple(_task(task, environments[task.task_id]) for task in plan.tasks),
        runs=runs,
        gate=plan.gate,
        grading=grading,
        notes=tuple(_notes(facts, runs)),
    )


def _runs(
    plan: TrialPlan, facts: TrialFacts, environments: Mapping[str, TaskEnvironment]
) -> Iterator[RunView]:
    """View every planned run, in the plan's order."""
    known = {run.key: run for run in facts.runs}
    names = {task.task_id: task.name for task in plan.tasks}
    for planned in plan_runs(plan):
        key = planned.key
        run = known.get(key, RunFacts(key))
        yield _view(run, planned.seed, names[key.task_id], environments[key.task_id])


def _view(run: RunFacts, seed: int, task: str, environment: TaskEnvironment) -> RunView:
    end = run.end
    unended = INTERRUPTED if run.execution else NOT_STARTED
    view = RunView(
        key=str(run.key),
        variant=run.key.variant,
        task_id=run.key.task_id,
        task=task,
        attempt=run.key.attempt,
        seed=seed,
        outcome=unended if end is None else str(end.outcome),
        is_finished=end is not None and end.outcome in FINISHED,
        execution=run.execution,
        cost_usd=dump_usd(run.spent_usd),
        reserved_usd=dump_usd(run.reserved_usd),
        duration_s=None if end is None else end.wall_s,
        denied=() if end is None else end.denied,
        simulated=() if end is None else end.simulated,
        session_id="" if end is None else end.session_id,
        isolation="" if end is None else end.isolation,
        model_fingerprints=run.fingerprints,
        environment=environment.status,
    )
    return view if end is None else _with_end(view, end, environment)


def _with_end(view: RunView, end: EpisodeEnd, environment: TaskEnvironment) -> RunView:
    """Add what only a run has that ended."""
    data = bytes(end.output) if isinstance(end.output, Raw) else b""
    return msgspec.structs.replace(
        view,
        error=end.error,
        output=canonical.decode_value(data) if 0 < len(data) <= MAX_OUTPUT_BYTES else UNSET,
        output_bytes=len(data),
        n_files=len(end.files),
        files=end.files[:MAX_FILES],
        notes=(*end.notes, *environment.notes),
    )


def _spend(facts: SpendFacts) -> SpendLine:
    left = subtract(facts.ceiling_usd, add(facts.spent_usd, facts.reserved_usd))
    return SpendLine(
        ceiling_usd=dump_usd(facts.ceiling_usd),
        reserved_usd=dump_usd(facts.reserved_usd),
        spent_usd=dump_usd(facts.spent_usd),
        left_usd=dump_usd(max(left, ZERO)),
        calls=facts.calls,
        unsettled=facts.unsettled,
    )


def _variants(plan: TrialPlan, runs: Sequence[RunView]) -> Iterator[VariantView]:
    for entry in plan.workflows:
        own = [run for run in runs if run.variant == entry.label]
        took = [run.duration_s for run in own if run.duration_s is not None]
        yield VariantView(
            variant=entry.label,
            role=entry.role,
            source=entry.source,
            digest=entry.digest,
            planned=len(own),
            finished=sum(run.is_finished for run in own),
            outcomes=Counter(run.outcome for run in own),
            cost_usd=dump_usd(add(*(Decimal(run.cost_usd) for run in own))),
            duration_s=sum(took) / len(took) if took else None,
            denied=sum(len(run.denied) for run in own),
            simulated=tuple(sorted({tool for run in own for tool in run.simulated})),
        )


def _task(task: TrialTask, environment: TaskEnvironment) -> TaskView:
    return TaskView(
        task_id=task.task_id,
        name=task.name,
        origin=task.origin,
        session_id=task.session_id,
        workspace_digest=None if task.workspace is None else task.workspace.digest,
        environment=environment,
    )


def _notes(facts: TrialFacts, runs: Sequence[RunView]) -> Iterator[str]:
    yield MOST_EXPENSIVE
    unfinished = sum(not run.is_finished for run in runs)
    if unfinished:
        yield f"{unfinished} of {len(runs)} runs did not finish: missing is never counted as failed"
    again = sum(run.execution > 1 for run in runs)
    if again:
        were = "1 run was" if again == 1 else f"{again} runs were"
        yield f"{were} begun again after an interruption; calls already paid were served"
    if facts.overrun_usd > 0:
        over = dump_usd(facts.overrun_usd)
        yield f"endpoints billed USD {over} more than was reserved for their calls"
    simulated = sorted({tool for run in runs for tool in run.simulated})
    if simulated:
        yield f"simulated: {', '.join(simulated)}: what rests on them is no real effect"
