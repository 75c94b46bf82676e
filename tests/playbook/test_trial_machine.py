"""A trial as a protocol trace: what it asks for, what it is told, what it asks for next."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import UsageError
from redrive.replay.trial import (
    Done,
    GradeTask,
    Interrupted,
    RunEnded,
    StartRun,
    TaskGraded,
    start,
    step,
)
from redrive.replay.trial_values import FINISHED, Outcome, PlannedRun, RunKey


def runs(variants="AB", tasks="12", attempts=1):
    return [
        PlannedRun(RunKey(variant, task, attempt), seed=7)
        for task in tasks
        for attempt in range(1, attempts + 1)
        for variant in variants
    ]


def said(commands):
    """Write commands as a trace does."""
    words = []
    for command in commands:
        match command:
            case StartRun(run, execution):
                again = "" if execution == 1 else f"x{execution}"
                words.append(f"{run.key.variant}{run.key.task_id}{again}")
            case GradeTask(task_id):
                words.append(f"grade{task_id}")
            case Done():
                words.append("done")
    return " ".join(words)


def ended(name, outcome=Outcome.COMPLETE):
    return RunEnded(RunKey(name[0], name[1]), outcome)


def trace(state, *replies):
    """Step through replies; give what was asked for after each."""
    asked = []
    for reply in replies:
        state, commands = step(state, reply)
        asked.append(said(commands))
    return asked


def test_all_variants_of_one_task_run_before_the_next_and_a_whole_block_is_graded():
    state, commands = start(runs(), parallel=1)
    assert said(commands) == "A1"
    assert trace(
        state,
        ended("A1"),
        ended("B1", Outcome.FAILED),
        TaskGraded("1"),
        ended("A2"),
        ended("B2"),
        TaskGraded("2"),
    ) == ["B1", "grade1", "A2", "B2", "grade2", "done"]


def test_no_more_run_at_the_same_time_than_there_is_room_for():
    state, commands = start(runs(), parallel=3)
    assert said(commands) == "A1 B1 A2"
    assert trace(state, ended("B1"), ended("A2"), ended("A1"), ended("B2")) == [
        "B2",
        "",
        "grade1",
        "grade2",
    ]


def test_at_a_ceiling_nothing_more_is_started_and_whole_blocks_are_still_graded():
    state, _ = start(runs(), parallel=2)
    assert trace(
        state, ended("A1"), ended("A2", Outcome.CEILING), ended("B1"), TaskGraded("1")
    ) == ["A2", "", "grade1", "done"]


def test_a_model_that_failed_stops_nothing_and_its_block_is_not_graded():
    state, _ = start(runs(), parallel=2)
    assert trace(
        state, ended("A1", Outcome.MODEL), ended("B1"), ended("A2"), ended("B2"), TaskGraded("2")
    ) == ["A2", "B2", "", "grade2", "done"]


def test_an_interrupted_trial_waits_for_what_runs():
    state, _ = start(runs(), parallel=2)
    assert trace(
        state,
        Interrupted(),
        ended("A1", Outcome.CANCELLED),
        ended("B1", Outcome.CANCELLED),
    ) == ["", "", "done"]


def test_a_resumed_trial_makes_what_is_missing_and_counts_executions():
    finished = {RunKey("A", "1"), RunKey("B", "1"), RunKey("B", "2")}
    state, commands = start(
        runs(tasks="123"),
        parallel=2,
        finished=finished,
        executions={RunKey("A", "2"): 1, RunKey("A", "1"): 1},
    )
    assert said(commands) == "grade1 A2x2"
    assert trace(state, ended("A2"), TaskGraded("1")) == ["grade2", "A3"]


def test_a_resumed_trial_in_which_all_is_done_is_done_at_once():
    keys = [run.key for run in runs()]
    _, commands = start(runs(), parallel=2, finished=keys, graded=("1", "2"))
    assert said(commands) == "done"


@pytest.mark.parametrize(("planned", "parallel"), [([], 1), (runs(), 0)])
def test_a_trial_of_nothing_is_refused(planned, parallel):
    with pytest.raises(UsageError, match="at least one run"):
        start(planned, parallel=parallel)


def test_what_cannot_have_happened_is_refused_and_leaves_the_state():
    keys = [run.key for run in runs()]
    state, _ = start(runs(), parallel=1, finished=keys, graded=("1", "2"))
    for reply in (ended("A1"), TaskGraded("1"), Interrupted()):
        with pytest.raises(UsageError, match="nothing runs"):
            step(state, reply)


@given(
    n_variants=st.integers(1, 4),
    n_tasks=st.integers(1, 5),
    attempts=st.integers(1, 3),
    parallel=st.integers(1, 9),
    data=st.data(),
)
def test_every_run_is_made_once_and_every_task_graded_once(
    n_variants, n_tasks, attempts, parallel, data
):
    planned = runs("ABCD"[:n_variants], "12345"[:n_tasks], attempts)
    state, commands = start(planned, parallel=parallel)
    started, graded, running = Counter(), Counter(), []
    while not any(isinstance(command, Done) for command in commands):
        for command in commands:
            match command:
                case StartRun(run):
                    started[run.key] += 1
                    running.append(RunEnded(run.key, data.draw(st.sampled_from(sorted(FINISHED)))))
                case GradeTask(task_id):
                    graded[task_id] += 1
                    running.append(TaskGraded(task_id))
        assert len(running) <= parallel
        state, commands = step(state, running.pop(data.draw(st.integers(0, len(running) - 1))))
    assert started == Counter(run.key for run in planned)
    assert graded == Counter(dict.fromkeys("12345"[:n_tasks], 1))
