"""`redrive trial run` and `resume`: a plan is read and judged, then what is left of it is run.

Wires the parts of a trial. Order matters and is held here: everything that can be refused (plan,
workflows, graders, models, the sandbox) is refused before the trial is begun, so that a refused
trial leaves no ledger and runs nothing.

Source: DESIGN.md §6, §8.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from redrive.app.plan_table import in_file
from redrive.app.trial_episode import run_episode
from redrive.app.trial_executor import LocalExecutor
from redrive.app.trial_grading import (
    GradingMeans,
    GradingStopped,
    OpenedGrader,
    Ungraded,
    grade_task,
    group_of,
    open_graders,
)
from redrive.app.trial_ledger import TrialLedger, grade_subject
from redrive.app.trial_loading import load_workflow
from redrive.app.trial_models import check_models, fresh_models, open_models
from redrive.app.trial_plan import NO_CHANGES, PlanChanges, read_plan
from redrive.app.trial_ports import OpenedModel
from redrive.app.trial_running import Tell, TrialParts, drive_trial
from redrive.app.trial_tasks import OpenStore
from redrive.app.trial_workspace import digest_workspace
from redrive.audit.eligibility import EligibleWorkflow, check_simulate, load
from redrive.errors import ContainmentError, UsageError
from redrive.replay.ledger import fold
from redrive.replay.plan_document import dump_plan
from redrive.replay.trial_plan import PlannedWorkflow, TrialPlan
from redrive.replay.trial_values import Purpose, TrialTask
from redrive.sandbox.door import find_level
from redrive.stores.sqlite import open_store


class JudgedPlan(msgspec.Struct, frozen=True):
    """A plan of which nothing was refused.

    Attributes:
        plan: as read.
        eligible: label → what its runs may call.
        graders: opened, in the plan's order.
        level: of the sandbox that runs are made at.
    """

    plan: TrialPlan
    eligible: Mapping[str, EligibleWorkflow]
    graders: tuple[OpenedGrader, ...]
    level: str


class TrialEnd(msgspec.Struct, frozen=True):
    """What a pass through a trial left.

    Attributes:
        trial_id: of the trial.
        ungraded: what could not be graded, and why; graded on resume.
    """

    trial_id: str
    ungraded: tuple[Ungraded, ...] = ()


def judge_plan(
    path: Path,
    store: OpenStore,
    changes: PlanChanges = NO_CHANGES,
) -> JudgedPlan:
    """Read a plan and refuse what cannot be run; nothing is started or written.

    Raises:
        UsageError: the plan is wrong.
        IneligibleError: a workflow reaches an unsafe tool, which is named.
        ContainmentError: no sandbox is proven here.
    """
    level = find_level().name
    if level == "none":
        raise ContainmentError("no sandbox is proven here: nothing is run", hint="redrive doctor")

    def planned(source: str, folder: Path) -> PlannedWorkflow:
        loaded = load_workflow(source, folder, level)
        if not loaded.place.file:
            return loaded.planned
        return replace(loaded.planned, place=f"{loaded.place.file}:{loaded.place.name}")

    plan = read_plan(
        path,
        store,
        load_workflow=planned,
        digest_workspace=digest_workspace,
        changes=changes,
    )
    simulate = frozenset(plan.simulate)
    with in_file(path):
        check_simulate([one.spec for one in plan.workflows], plan.simulate)
        eligible = {
            one.label: load(one.spec, simulate=simulate, level=level) for one in plan.workflows
        }
        return JudgedPlan(plan, eligible, open_graders(plan, Path(plan.folder)), level)


def run_trial(
    judged: JudgedPlan,
    store: Path,
    caller: Mapping[str, str],
    *,
    tell: Tell,
    stop: threading.Event | None = None,
    is_again: bool = False,
) -> TrialEnd:
    """Begin a trial and run it.

    Raises:
        UsageError: an earlier trial of this plan is not finished, and `is_again` is not said; or a
            tool's secret is not in the caller's environment.
    """
    _require_secrets(judged, caller)
    if not is_again:
        _refuse_unfinished(judged.plan, store)
    document = dump_plan(judged.plan)
    with (
        _opened_models(judged.plan, caller) as models,
        TrialLedger.begin(store, judged.plan, document) as ledger,
    ):
        return _drive(judged, ledger, models, store, caller, tell=tell, stop=stop)


def resume_trial(
    judged: JudgedPlan,
    store: Path,
    caller: Mapping[str, str],
    *,
    tell: Tell,
    stop: threading.Event | None = None,
) -> TrialEnd:
    """Go on with the newest trial of this plan, under the plan's ceilings.

    Raises:
        UsageError: there is none: it was never begun, or the plan, a task or a workflow changed; or
            a tool's secret is not in the caller's environment.
    """
    _require_secrets(judged, caller)
    trial_id = find_trial(judged.plan, store)
    with (
        _opened_models(judged.plan, caller) as models,
        TrialLedger.resume(store, trial_id) as ledger,
    ):
        ledger.change_ceilings(judged.plan.ceilings)
        return _drive(judged, ledger, models, store, caller, tell=tell, stop=stop)


def find_trial(plan: TrialPlan, store: Path) -> str:
    """Give the id of the newest trial of this very plan.

    Raises:
        UsageError: there is none.
    """
    with closing(open_store(store, create=False, read_only=True)) as opened:
        rows = opened.trials.list_trials()
    found = [row.trial_id for row in rows if row.plan_digest == plan.digest]
    if found:
        return found[-1]
    begun = ", ".join(row.trial_id for row in rows if row.trial_id.startswith(f"{plan.name}-"))
    raise UsageError(
        f"no trial of this plan was begun in {store}",
        hint=f"its plan, tasks or code changed since {begun}"
        if begun
        else "redrive trial run PLAN",
    )


def _require_secrets(judged: JudgedPlan, caller: Mapping[str, str]) -> None:
    """Refuse what would fail in every run: a tool's secret that the caller does not have."""
    for label, eligible in judged.eligible.items():
        for tool in eligible.tools.values():
            absent = [name for name in tool.grants.secrets if not caller.get(name)]
            if absent:
                raise UsageError(
                    f"{label}: the tool {tool.id} is granted the secret {absent[0]}, "
                    "which is not set",
                    hint="set it in the environment",
                )


def _refuse_unfinished(plan: TrialPlan, store: Path) -> None:
    """Refuse to pay again for what a resumed trial would be given."""
    if not store.exists():
        return
    try:
        trial_id = find_trial(plan, store)
    except UsageError:
        return
    with closing(open_store(store, create=False, read_only=True)) as opened:
        ledger = fold(opened.trials.entries(trial_id))
    left = [str(key) for key, run in ledger.runs.merged().items() if not run.is_finished]
    if left:
        raise UsageError(
            f"trial {trial_id} of this plan has {len(left)} unfinished runs",
            hint="redrive trial resume goes on with it and pays nothing twice; --again begins anew",
        )


@contextmanager
def _opened_models(plan: TrialPlan, caller: Mapping[str, str]) -> Iterator[tuple[OpenedModel, ...]]:
    """Open the plan's models; too few scripts of the default one are refused before all begins."""
    with open_models(plan.models, caller) as models:
        check_models(models[:1], plan.n_runs - 1)
        yield models


def _drive(
    judged: JudgedPlan,
    ledger: TrialLedger,
    models: tuple[OpenedModel, ...],
    store: Path,
    caller: Mapping[str, str],
    *,
    tell: Tell,
    stop: threading.Event | None,
) -> TrialEnd:
    plan = judged.plan
    ledger.note_models(models)
    grading = _Grading(judged, ledger, store, caller, models)
    parts = TrialParts(
        trial_id=ledger.trial_id,
        plan=plan,
        ledger=ledger,
        models=models,
        eligible=judged.eligible,
        grade=grading.grade,
        store=store,
        caller=caller,
    )
    drive_trial(parts, LocalExecutor(run_episode, plan.parallel), tell=tell, stop=stop)
    return TrialEnd(ledger.trial_id, tuple(grading.ungraded))


class _Grading:
    """Grades whole blocks, each in the thread that asks."""

    def __init__(
        self,
        judged: JudgedPlan,
        ledger: TrialLedger,
        store: Path,
        caller: Mapping[str, str],
        models: tuple[OpenedModel, ...],
    ) -> None:
        self.ungraded: list[Ungraded] = []
        self._judged = judged
        self._ledger = ledger
        self._store = store
        self._caller = caller
        self._models = models
        self._numbers = {task.task_id: n for n, task in enumerate(judged.plan.tasks)}

    def grade(self, task: TrialTask, stop: threading.Event) -> None:
        """Grade one task by every grader that has not; write each judgement down."""
        plan, ledger = self._judged.plan, self._ledger.ledger
        ends = {key: run.end for key, run in ledger.runs.merged().items() if run.end is not None}
        done = [one.name for one in plan.graders if ledger.grades.find((task.task_id, one.name))]
        answered = Counter[str]()
        for grader in plan.graders:
            answered.update(self._ledger.n_settled(grade_subject(task.task_id, grader.name)))
        fresh = fresh_models(self._models, self._numbers[task.task_id], answered)
        with closing(open_store(self._store, create=False)) as opened:
            means = GradingMeans(
                seed=plan.seed,
                models={model.plan.name: model for model in fresh},
                account_of=lambda subject: self._ledger.account(subject, Purpose.JUDGING),
                store=opened,
                caller=self._caller,
                record=self._ledger.grade,
                stop=stop,
            )
            try:
                found = grade_task(
                    self._judged.graders,
                    group_of(plan, task, ends),
                    means,
                    done=done,
                )
            except GradingStopped:
                return
        self.ungraded += found.ungraded
