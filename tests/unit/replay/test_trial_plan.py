from decimal import Decimal

from msgspec import Raw

from redrive.audit.workflow import WorkflowSpec
from redrive.replay.trial_plan import PlanModel, PlannedWorkflow, TrialPlan, derive_seed, plan_runs
from redrive.replay.trial_values import Price, Purpose, RunKey, TrialTask


def plan(attempts=2):
    return TrialPlan(
        name="t",
        workflows=tuple(
            PlannedWorkflow(f"w.py:v{n}", WorkflowSpec("w", str(n)), "d") for n in (1, 2)
        ),
        tasks=tuple(TrialTask(f"task{n}", f"name{n}", Raw(b"1")) for n in (1, 2, 3)),
        models=(PlanModel("m", "script:x", Price(Decimal(0), Decimal(0))),),
        ceilings={Purpose.REPLAY: Decimal(1)},
        attempts=attempts,
    )


def test_n_variants_times_m_tasks_times_attempts_are_planned_block_by_block():
    runs = list(plan_runs(plan()))
    assert len(runs) == plan().n_runs == 12
    assert [str(run.key) for run in runs[:4]] == [
        "w@1 task1 #1",
        "w@2 task1 #1",
        "w@1 task1 #2",
        "w@2 task1 #2",
    ]
    assert {run.key.task_id for run in runs[:4]} == {"task1"}


def test_variants_are_compared_on_the_same_draws_and_attempts_are_not():
    first, second = RunKey("a@1", "t", 1), RunKey("b@1", "t", 1)
    assert derive_seed(3, first) == derive_seed(3, second)
    assert derive_seed(3, first) != derive_seed(3, RunKey("a@1", "t", 2))
    assert derive_seed(3, first) != derive_seed(4, first)
    assert 0 <= derive_seed(3, first) < 2**31


def test_a_variant_is_named_by_id_and_version():
    assert [workflow.label for workflow in plan().workflows] == ["w@1", "w@2"]
