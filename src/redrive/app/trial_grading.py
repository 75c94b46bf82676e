"""Grades the episodes of one task together, grader by grader, and pays for no judgement twice.

Knows the plan's graders, groups of episodes, accounts and the store. Must not know how a kind of
grader judges, nor how a ledger is kept: what is graded is handed to `record` at once.

Source: DESIGN.md §6 "Grading is group-wise"; docs/graders.md.
"""

import io
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from redrive import canonical, plugins
from redrive.app.trial_asking import Asking, measure_question
from redrive.app.trial_grading_sandbox import Workspaces, run_job
from redrive.app.trial_ledger import grade_subject
from redrive.app.trial_ports import Account, CeilingReached, OpenedModel
from redrive.compare.trial_document import GroupGrade, dump_grade
from redrive.errors import ContainmentError, ModelError, PluginError, RedriveError, UsageError
from redrive.grading import (
    GradedEpisode,
    GradeGroup,
    Grader,
    GraderSetup,
    JobEnd,
    JudgeCalls,
    Question,
    Reply,
    SandboxJob,
    bound_usd,
)
from redrive.replay.ledger import Graded
from redrive.replay.money import add
from redrive.replay.trial_plan import GraderSpec, TrialPlan, plan_runs
from redrive.replay.trial_values import FINISHED, EpisodeEnd, Outcome, Purpose, RunKey, TrialTask
from redrive.stores.port import Store

CEILING, INCOMPLETE, MODEL, FAULT = "ceiling", "incomplete", "model", "fault"
AccountOf = Callable[[str], Account]
"""Gives the account of a subject, as `grade_subject` names it; its purpose is `judging`."""


class GradingStopped(BaseException):
    """Grading was asked to stop; what was graded is recorded."""


class OpenedGrader(msgspec.Struct, frozen=True):
    """A grader of the plan, its options checked."""

    spec: GraderSpec
    grader: Grader

    @property
    def asks_models(self) -> bool:
        """Whether it may ask a model, so that it costs."""
        return hasattr(self.grader, "plan_calls")


class Ungraded(msgspec.Struct, frozen=True):
    """One task that one grader did not grade: inconclusive, and graded on resume.

    Attributes:
        task_id: of the task.
        grader: its name in the plan.
        kind: `ceiling`, `incomplete` (a run never finished), `model` (it refused or failed), or
            `fault` (of the grader).
        reason: one line.
        where: file and line of a fault, where known.
    """

    task_id: str
    grader: str
    kind: str
    reason: str
    where: str = ""


class TaskGrades(msgspec.Struct, frozen=True):
    """What grading one task gave.

    Attributes:
        graded: final, recorded, and never graded again.
        provisional: of a task whose runs did not all finish: shown, not recorded.
        ungraded: what could not be graded now.
    """

    graded: tuple[Graded, ...] = ()
    provisional: tuple[Graded, ...] = ()
    ungraded: tuple[Ungraded, ...] = ()

    @property
    def is_ceiling_reached(self) -> bool:
        """Whether the judging ceiling stopped a grader."""
        return any(one.kind == CEILING for one in self.ungraded)


# --- before anything runs


def open_graders(plan: TrialPlan, base: Path) -> tuple[OpenedGrader, ...]:
    """Open every grader of a plan, in its order; each option is checked.

    Args:
        plan: as read.
        base: the plan's folder; relative paths in options start there.

    Raises:
        UsageError: an unknown kind or a wrong option, which is named; or calls of a model without a
            ceiling for judging.
        PluginError: a plug-in does not load, or is none.
    """
    opened = tuple(OpenedGrader(spec, _open(plan, spec, base)) for spec in plan.graders)
    if judge_calls(plan, opened) and Purpose.JUDGING not in plan.ceilings:
        raise UsageError("a grader asks a model, and the plan has no ceilings.judging_usd")
    return opened


def _open(plan: TrialPlan, spec: GraderSpec, base: Path) -> Grader:
    setup = GraderSetup(
        spec=spec,
        base=base,
        tasks=plan.tasks,
        models={model.name: model for model in plan.models},
        measure=measure_question,
    )
    opened: Grader = plugins.load(plugins.GRADERS, spec.kind)(setup)
    if not callable(getattr(opened, "grade", None)):
        raise PluginError(f"the grader {spec.kind} has no grade(group, context)")
    return opened


def _calls(plan: TrialPlan, graders: Sequence[OpenedGrader]) -> tuple[JudgeCalls, ...]:
    found: list[JudgeCalls] = []
    for opened in graders:
        found += getattr(opened.grader, "plan_calls", lambda _: ())(plan)
    return tuple(found)


def judge_calls(plan: TrialPlan, graders: Sequence[OpenedGrader]) -> int:
    """Count the calls that graders will make of models: exact if every run completes, never more.

    Further attempts after a refusal (429, 5xx) are not counted; they cost nothing.
    """
    return sum(calls.calls for calls in _calls(plan, graders))


def judge_bound_usd(plan: TrialPlan, graders: Sequence[OpenedGrader]) -> Decimal:
    """Bound what these calls cost: outputs as long as are shown, answers at their limit."""
    models = {model.name: model for model in plan.models}
    return add(*(bound_usd(one, models[one.model]) for one in _calls(plan, graders)))


# --- groups


def group_of(plan: TrialPlan, task: TrialTask, ends: Mapping[RunKey, EpisodeEnd]) -> GradeGroup:
    """Gather the episodes of one task.

    Args:
        plan: which runs there are.
        task: of the plan.
        ends: how runs ended; one that is not there, was cancelled or met a ceiling is missing.
    """
    episodes, failed, missing = [], [], []
    for run in plan_runs(plan):
        if run.key.task_id != task.task_id:
            continue
        end = ends.get(run.key)
        if end is None or end.outcome not in FINISHED:
            missing.append(run.key)
        elif end.outcome is Outcome.COMPLETE:
            episodes.append(GradedEpisode(run.key, end))
        else:
            failed.append(GradedEpisode(run.key, end))
    variants = tuple(workflow.label for workflow in plan.workflows)
    return GradeGroup(task, variants, tuple(episodes), tuple(failed), tuple(missing))


# --- grading


class GradingMeans(msgspec.Struct, frozen=True):
    """What graders are given to work with.

    Attributes:
        seed: of the trial.
        models: of the plan, opened, by name.
        account_of: see `AccountOf`.
        store: where episodes lie and exchanges with a judge are kept; used by one thread.
        caller: the caller's environment: `PATH`, `HOME`, `LANG`.
        record: is given each final grade as soon as it is there, to keep it durably.
        stop: ends grading as soon as it is set.
    """

    seed: int
    models: Mapping[str, OpenedModel]
    account_of: AccountOf
    store: Store
    caller: Mapping[str, str] = {}
    record: Callable[[Graded], object] = lambda _: None
    stop: threading.Event = msgspec.field(default_factory=threading.Event)


def grade_task(
    graders: Sequence[OpenedGrader],
    group: GradeGroup,
    means: GradingMeans,
    *,
    done: Collection[str] = (),
    may_ask: bool = True,
) -> TaskGrades:
    """Grade one task by each grader of the plan that has not graded it.

    Args:
        graders: as opened.
        group: all episodes of the task.
        means: see `GradingMeans`.
        done: names of graders that have graded the task: their facts stand, nothing is asked again.
        may_ask: whether models may be asked; no longer once the judging ceiling was reached.

    Raises:
        ContainmentError: the sandbox is not proven here; nothing ran.
        GradingStopped: `means.stop` was set.
    """
    found = TaskGrades()
    for opened in graders:
        if opened.spec.name in done:
            continue
        may_ask = may_ask and not found.is_ceiling_reached
        one = _grade(opened, group, means, may_ask=may_ask)
        if isinstance(one, Ungraded):
            found = replace(found, ungraded=(*found.ungraded, one))
        elif group.missing:
            found = replace(found, provisional=(*found.provisional, one))
        else:
            means.record(one)
            found = replace(found, graded=(*found.graded, one))
    return found


def _grade(
    opened: OpenedGrader, group: GradeGroup, means: GradingMeans, *, may_ask: bool
) -> Graded | Ungraded:
    name, task_id = opened.spec.name, group.task.task_id
    if opened.asks_models and group.missing:
        runs = ", ".join(map(str, group.missing))
        return Ungraded(task_id, name, INCOMPLETE, f"not finished: {runs}")
    if opened.asks_models and not may_ask:
        return Ungraded(task_id, name, CEILING, "the judging ceiling was reached")
    context = _Context(name, group, means)
    try:
        grade = _complete(opened.grader.grade(group, context), opened.spec, group)
        return Graded(task_id, name, Raw(dump_grade(grade)))
    except CeilingReached as error:
        return Ungraded(task_id, name, CEILING, str(error) or "the judging ceiling was reached")
    except ContainmentError:
        raise
    except ModelError as error:
        return Ungraded(task_id, name, MODEL, error.message, error.where)
    except RedriveError as error:
        return Ungraded(task_id, name, FAULT, error.message, error.where)
    except Exception as error:  # noqa: BLE001 - a plug-in's; the other graders go on
        return Ungraded(task_id, name, FAULT, f"{type(error).__name__}: {error}"[:300])


def _complete(grade: GroupGrade, spec: GraderSpec, group: GradeGroup) -> GroupGrade:
    """Fill in what names the grade, the episodes that failed, and what rests on a simulation.

    Raises:
        PluginError: a grade of an episode that is not in the group, or a score outside 0 to 1.
    """
    keys = [episode.key for episode in group.episodes]
    failed = {episode.key: episode for episode in group.failed}
    strange = (grade.scores.keys() | grade.passed.keys()) - {*keys, *failed}
    beyond = [s for s in grade.scores.values() if s is not None and not 0 <= s <= 1]
    if strange or beyond:
        what = f"a grade of {min(strange)}" if strange else f"a score of {beyond[0]}"
        raise PluginError(f"the grader {spec.name} gave {what}, expected 0 to 1 for each episode")
    why = {key: _why(episode.end) for key, episode in failed.items()}
    return replace(
        grade,
        grader=spec.name,
        kind=spec.kind,
        task_id=group.task.task_id,
        scores={key: grade.scores.get(key) for key in keys} | dict.fromkeys(failed, 0.0),
        passed={key: grade.passed.get(key) for key in keys} | dict.fromkeys(failed, False),
        reasons={**grade.reasons, **why},
        simulated=tuple(one.key for one in (*group.episodes, *group.failed) if one.end.simulated),
    )


def _why(end: EpisodeEnd) -> str:
    return f"{end.outcome}: {end.error}" if end.error else str(end.outcome)


class _Context:
    """What one grader may reach while it grades one task; see `GradeContext`."""

    def __init__(self, grader: str, group: GradeGroup, means: GradingMeans) -> None:
        self._means = means
        self._workspace = group.task.workspace
        self._subject = grade_subject(group.task.task_id, grader)
        parts = [means.seed, group.task.task_id, grader]
        self.seed = int(canonical.value_digest(parts)[:8], 16) >> 1
        # One for the whole judgement: it tells equal questions apart by their order.
        self._asking: Asking | None = None

    def ask(self, question: Question) -> Reply:
        """Ask a model."""
        self._check()
        if self._asking is None:
            account = self._means.account_of(self._subject)
            self._asking = Asking(self._means.models, account, self._keep, self._wait)
        return self._asking.ask(question)

    def run(self, job: SandboxJob) -> JobEnd:
        """Run a command in the sandbox."""
        self._check()
        workspaces = Workspaces(self._open_workspace, self._workspace)
        end = run_job(job, workspaces, self._means.caller, self._means.stop)
        self._check()  # what was ended for that is no answer
        return end

    def _open_workspace(self, episode: GradedEpisode) -> BinaryIO | None:
        sha256 = episode.end.files_artefact
        return None if sha256 is None else self._means.store.open_artefact(sha256)

    def _keep(self, data: bytes) -> str:
        sha256 = canonical.digest(data)
        with self._means.store.transaction():
            self._means.store.put_artefact(sha256, len(data), io.BytesIO(data), None)
        return sha256

    def _wait(self, delay_s: float) -> None:
        self._means.stop.wait(delay_s)
        self._check()

    def _check(self) -> None:
        if self._means.stop.is_set():
            raise GradingStopped("grading was stopped")
