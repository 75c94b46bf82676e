"""The trial as a stepped value: which run is started next, which task is graded, when it is over.

Runs are started in block-complete order, all variants of one task before the next, so that a trial
that stops early has whole blocks to show. Knows no process, file or model; what became of a run
comes in as a reply, what is to be done goes out as commands.

Source: DESIGN.md §2 "Replays are stepped values", §6 "block-complete order".
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from redrive.errors import UsageError
from redrive.replay.persistent import Cursor
from redrive.replay.trial_values import FINISHED, Outcome, PlannedRun, RunKey


class StartRun(msgspec.Struct, frozen=True):
    """Make this run; `execution` is above 1 where an earlier one was interrupted."""

    run: PlannedRun
    execution: int


class GradeTask(msgspec.Struct, frozen=True):
    """Grade all episodes of a task together; all of its runs are finished."""

    task_id: str


class Done(msgspec.Struct, frozen=True):
    """Nothing runs any more, and nothing more is to be done."""


Command = StartRun | GradeTask | Done


class RunEnded(msgspec.Struct, frozen=True):
    """A run that was started has ended."""

    key: RunKey
    outcome: Outcome


class TaskGraded(msgspec.Struct, frozen=True):
    """The grading of a task has ended, as far as its graders came."""

    task_id: str


class Interrupted(msgspec.Struct, frozen=True):
    """Whoever drives wants the end: nothing more is started, what runs is being ended."""


Reply = RunEnded | TaskGraded | Interrupted


class TrialState(msgspec.Struct, frozen=True):
    """Where a trial is.

    Attributes:
        runs: every planned run, in the order in which they are started.
        finished: keys that are never run again.
        executions: how often a run was started before this one.
        parallel: runs and gradings at the same time, at most.
        position: of the next run that may be started.
        missing: task (as its place in `tasks`) → runs that are not finished.
        tasks: task id → its place.
        running: how many runs and gradings have not ended.
        gradable: tasks that are to be graded next, oldest first.
        starts: whether runs are still started.
        grades: whether gradings are still started.
        is_over: whether `Done` was given.
    """

    runs: tuple[PlannedRun, ...]
    finished: frozenset[RunKey]
    executions: Mapping[RunKey, int]
    parallel: int
    tasks: Mapping[str, int]
    missing: Cursor
    gradable: tuple[str, ...] = ()
    position: int = 0
    running: int = 0
    starts: bool = True
    grades: bool = True
    is_over: bool = False


def start(
    runs: Sequence[PlannedRun],
    *,
    parallel: int,
    finished: Collection[RunKey] = (),
    graded: Collection[str] = (),
    executions: Mapping[RunKey, int] | None = None,
) -> tuple[TrialState, tuple[Command, ...]]:
    """Begin a trial, or go on with one.

    Args:
        runs: N × M × attempts, in block-complete order, keys unique.
        parallel: at least 1.
        finished: keys of runs that were finished before.
        graded: ids of tasks that are graded by every grader already.
        executions: how often each run was started before; absent for none.

    Raises:
        UsageError: nothing is planned, or `parallel` is below 1.
    """
    if not runs or parallel < 1:
        raise UsageError("a trial needs at least one run, and one at a time")
    done = frozenset(finished)
    left = Counter(run.key.task_id for run in runs if run.key not in done)
    tasks = {task_id: place for place, task_id in enumerate(dict.fromkeys(_ids(runs)))}
    missing = Cursor()
    for task_id, place in tasks.items():
        missing = missing.set(place, left[task_id])
    whole = tuple(task_id for task_id in tasks if not left[task_id] and task_id not in graded)
    state = TrialState(
        runs=tuple(runs),
        finished=done,
        executions=dict(executions or {}),
        parallel=parallel,
        tasks=tasks,
        missing=missing,
        gradable=whole,
    )
    return _fill(state)


def step(state: TrialState, reply: Reply) -> tuple[TrialState, tuple[Command, ...]]:
    """Take what happened; give the next state and what is to be started now (perhaps nothing).

    Raises:
        UsageError: the trial is over, or nothing runs that could have ended.
    """
    if state.is_over or (not state.running and not isinstance(reply, Interrupted)):
        raise UsageError(f"a trial in which nothing runs cannot take {type(reply).__name__}")
    match reply:
        case RunEnded():
            return _fill(_after_run(replace(state, running=state.running - 1), reply))
        case TaskGraded():
            return _fill(replace(state, running=state.running - 1))
        case Interrupted():
            return _fill(replace(state, starts=False, grades=False))
        case _ as never:
            assert_never(never)


def _ids(runs: Sequence[PlannedRun]) -> list[str]:
    return [run.key.task_id for run in runs]


def _after_run(state: TrialState, ended: RunEnded) -> TrialState:
    """Count a finished run; one that met the ceiling stops the start of others, and is not run.

    One whose model failed is not run either, and stops nothing: others may ask another one.
    """
    if ended.outcome not in FINISHED:
        return state if ended.outcome is Outcome.MODEL else replace(state, starts=False)
    place = state.tasks[ended.key.task_id]
    left = state.missing.get(place) - 1
    gradable = state.gradable if left else (*state.gradable, ended.key.task_id)
    return replace(state, missing=state.missing.set(place, left), gradable=gradable)


def _fill(state: TrialState) -> tuple[TrialState, tuple[Command, ...]]:
    """Start what there is room for: gradings first, as a whole block is worth most when judged."""
    commands: list[Command] = []
    while state.running < state.parallel:
        state, command = _next(state)
        if command is None:
            break
        commands.append(command)
    if not state.running and not commands:
        return replace(state, is_over=True), (Done(),)
    return state, tuple(commands)


def _next(state: TrialState) -> tuple[TrialState, Command | None]:
    if state.grades and state.gradable:
        task_id, *others = state.gradable
        grown = replace(state, gradable=tuple(others), running=state.running + 1)
        return grown, GradeTask(task_id)
    position = state.position
    while state.starts and position < len(state.runs):
        run = state.runs[position]
        position += 1
        if run.key not in state.finished:
            execution = state.executions.get(run.key, 0) + 1
            state = replace(state, position=position, running=state.running + 1)
            return state, StartRun(run, execution)
    return replace(state, position=position), None
