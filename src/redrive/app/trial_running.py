"""Drives a trial: asks the machine what comes next, starts it, and writes down what became of it.

Knows the order of writing: `Started` before a run starts, `Finished` after its episode is stored.
Decides nothing: the next run is `replay.trial`'s, money the ledger's, a run the executor's.

Source: DESIGN.md §6.
"""

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from redrive.app.trial_executor import Executor
from redrive.app.trial_ledger import TrialLedger
from redrive.app.trial_models import fresh_models
from redrive.app.trial_ports import EpisodeJob, OpenedModel
from redrive.audit.eligibility import EligibleWorkflow
from redrive.replay.ledger import Ledger
from redrive.replay.trial import (
    Command,
    Done,
    GradeTask,
    Interrupted,
    Reply,
    RunEnded,
    StartRun,
    TaskGraded,
    start,
    step,
)
from redrive.replay.trial_plan import PlannedWorkflow, TrialPlan, plan_runs
from redrive.replay.trial_values import EpisodeEnd, Outcome, Purpose, TrialTask

_POLL_S = 0.2
Tell = Callable[[int, int, str], None]
"""Told (finished, planned, what happened) whenever a run ended."""


Grade = Callable[[TrialTask, threading.Event], None]
"""Grades all episodes of a task together, and writes down each judgement; ends where it is told."""


class TrialParts(msgspec.Struct, frozen=True):
    """What a trial is driven with.

    Attributes:
        trial_id: of the trial.
        plan: the plan.
        ledger: its ledger, held by this process.
        models: opened, in the plan's order.
        eligible: label → what passed the check.
        grade: grades a whole block.
        store: where episodes go.
        caller: the caller's environment.
    """

    trial_id: str
    plan: TrialPlan
    ledger: TrialLedger
    models: tuple[OpenedModel, ...]
    eligible: Mapping[str, EligibleWorkflow]
    grade: Grade
    store: Path
    caller: Mapping[str, str]


def drive_trial(
    parts: TrialParts, executor: Executor, *, tell: Tell, stop: threading.Event | None = None
) -> None:
    """Run what is left of a trial.

    An interrupt ends what runs (it is made again on resume) and is raised when all has ended; so is
    the first fault of a run that is ours and not the agent's.

    Args:
        parts: see `TrialParts`.
        executor: makes the runs; closed here.
        tell: progress.
        stop: set from outside, it ends the trial as an interrupt does, without raising.
    """
    drive = _Drive(parts, executor, tell, stop or threading.Event())
    with drive.grading():
        drive.run()


class _Drive:
    """One pass through a trial's machine."""

    def __init__(
        self, parts: TrialParts, executor: Executor, tell: Tell, stop: threading.Event
    ) -> None:
        self._parts = parts
        self._executor = executor
        self._tell = tell
        self._stop = stop
        self._is_stopping = False
        self._fault: BaseException | None = None
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._graders = ThreadPoolExecutor(executor.n_parallel, thread_name_prefix="trial-grade")
        self._workflows = {one.label: one for one in parts.plan.workflows}
        self._numbers = {run.key: number for number, run in enumerate(plan_runs(parts.plan))}
        self._tasks = {task.task_id: task for task in parts.plan.tasks}

    @contextmanager
    def grading(self) -> Iterator[None]:
        """Hold the threads until all has ended."""
        try:
            yield
        finally:
            self._stop.set()
            self._executor.close()
            self._graders.shutdown()

    def run(self) -> None:
        """Step to the end; then raise what went wrong, if anything did."""
        ledger = self._parts.ledger.ledger
        runs = ledger.runs.merged()
        state, commands = start(
            [run.planned for run in runs.values()],
            parallel=self._executor.n_parallel,
            finished=[key for key, run in runs.items() if run.is_finished],
            graded=[task for task in self._tasks if self._is_graded(ledger, task)],
            executions={key: run.execution for key, run in runs.items()},
        )
        while not self._carry_out(commands):
            state, commands = step(state, self._next())
        if self._fault is not None:
            raise self._fault

    def _is_graded(self, ledger: Ledger, task_id: str) -> bool:
        graders = (grader.name for grader in self._parts.plan.graders)
        return all(ledger.grades.find((task_id, name)) is not None for name in graders)

    def _carry_out(self, commands: tuple[Command, ...]) -> bool:
        """Start what is asked for; true at the end."""
        for command in commands:
            match command:
                case StartRun():
                    self._start(command)
                case GradeTask(task_id):
                    self._grade(task_id)
                case Done():
                    return True
        return False

    def _next(self) -> Reply:
        """Wait for what ends next; an interrupt, or a stop from outside, is told once."""
        while True:
            try:
                if self._stop.is_set() and not self._is_stopping:
                    return self._interrupted("stopped")
                return self._replies.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            except KeyboardInterrupt as interrupt:
                if self._is_stopping:
                    raise
                self._fault = interrupt
                return self._interrupted("interrupted")

    def _interrupted(self, reason: str) -> Interrupted:
        self._is_stopping = True
        self._stop.set()
        self._parts.ledger.stop(reason)
        return Interrupted()

    def _start(self, command: StartRun) -> None:
        run, parts = command.run, self._parts
        workflow: PlannedWorkflow = self._workflows[run.key.variant]
        # A script goes on behind the answers that an interrupted run was given and paid for.
        answered = parts.ledger.n_settled(str(run.key))
        execution = parts.ledger.start_run(run.key)
        job = EpisodeJob(
            trial_id=parts.trial_id,
            run=run,
            execution=execution,
            task=self._tasks[run.key.task_id],
            workflow=workflow,
            eligible=parts.eligible[workflow.label],
            models=fresh_models(parts.models, self._numbers[run.key], answered),
            limits=parts.plan.limits,
            store=parts.store,
            caller=parts.caller,
        )
        account = parts.ledger.account(str(run.key), Purpose.REPLAY)
        future = self._executor.start(job, account, self._stop)
        future.add_done_callback(lambda done: self._ended(command, done))

    def _ended(self, command: StartRun, done: "Future[EpisodeEnd]") -> None:
        """Write down how a run ended, in the thread that made it, before the machine is told."""
        key, end = command.run.key, None
        try:
            end = done.result()
            self._parts.ledger.finish_run(key, end)
            self._tell_end(str(key), end)
        except BaseException as fault:  # noqa: BLE001 - raised when all has ended
            self._fail(fault)
        outcome = Outcome.CANCELLED if end is None else end.outcome
        self._replies.put(RunEnded(key, outcome))

    def _tell_end(self, name: str, end: EpisodeEnd) -> None:
        ledger = self._parts.ledger.ledger
        runs = ledger.runs.merged().values()
        n_finished = sum(run.is_finished for run in runs)
        spent = " · ".join(
            f"{purpose} ${budget.spent:f} of ${budget.ceiling:f}"
            for purpose, budget in ledger.budgets.items()
        )
        self._tell(n_finished, len(runs), f"{name}: {end.outcome} · {spent}")

    def _grade(self, task_id: str) -> None:
        def grade() -> None:
            try:
                self._parts.grade(self._tasks[task_id], self._stop)
            except BaseException as fault:  # noqa: BLE001 - raised when all has ended
                self._fail(fault)
            self._replies.put(TaskGraded(task_id))

        self._graders.submit(grade)

    def _fail(self, fault: BaseException) -> None:
        """Keep the first fault of ours, and end everything else."""
        if self._fault is None:
            self._fault = fault
        self._stop.set()
