"""A trial as planned: workflow versions, tasks, models with prices, ceilings, limits, graders.

Knows the plan as a value. Must not know TOML, files or processes: `app.trial_plan` reads them.

Source: DESIGN.md §6.
"""

import hashlib
from collections.abc import Iterator, Mapping
from decimal import Decimal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.audit.workflow import WorkflowSpec
from redrive.replay.trial_values import PlannedRun, Price, Purpose, RunKey, TrialTask

MIB = 1024 * 1024


class PlanModel(msgspec.Struct, frozen=True, omit_defaults=True):
    """One model that runs may ask; nothing else can be reached.

    Attributes:
        name: what a request's `model` field must say.
        spec: as on the command line, such as `local` or `openai:NAME@URL`; see DESIGN.md §8.
        price: USD per million tokens.
        max_tokens: the bound of an answer where a request states none.
        is_idempotent: whether the endpoint bills a repeated `Idempotency-Key` once.
        key_env: the caller's variable that holds the endpoint's key; injected outside, never
            seen by a run and never stored.
    """

    name: str
    spec: str
    price: Price
    max_tokens: int = 1024
    is_idempotent: bool = False
    key_env: str | None = None


class RunLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one run may spend; the processes of one run together where it says so.

    Attributes:
        cpu_s: of each process.
        memory_bytes: address space of each process.
        n_processes: of each sandbox.
        disk_bytes: of the whole workspace of a run.
        output_bytes: of what a run gives back, and of each of its outputs.
        wall_s: of the whole run.
        model_calls: of the whole run.
        tool_calls: of the whole run.
    """

    cpu_s: int = 120
    memory_bytes: int = 4096 * MIB
    n_processes: int = 64
    disk_bytes: int = 256 * MIB
    output_bytes: int = MIB
    wall_s: float = 600.0
    model_calls: int = 100
    tool_calls: int = 200


class GraderSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One grader of a plan.

    Attributes:
        name: unique in the plan.
        kind: `exact`, `regex`, `json_schema`, `callable`, `tests` or `judge`, or the name of a
            plug-in of the group `redrive.graders`.
        options: what that kind takes, as the plan states it; JSON values.
    """

    name: str
    kind: str
    options: Mapping[str, object] = {}


class PlannedWorkflow(msgspec.Struct, frozen=True):
    """One variant.

    Attributes:
        source: as the plan names it: an entry point or `PATH.py:NAME`.
        spec: what it declares.
        digest: sha256 of its file and the modules beside it; a resumed trial must find the same.
        role: `incumbent`, `challenger`, or empty.
        place: `source` as it is found from any folder, such as `/ABSOLUTE/PATH.py:NAME`; empty
            where `source` is that already. No part of what the plan is.
    """

    source: str
    spec: WorkflowSpec
    digest: str
    role: str = ""
    place: str = ""

    @property
    def label(self) -> str:
        """`ID@VERSION`."""
        return self.spec.label


class TrialPlan(msgspec.Struct, frozen=True):
    """Everything that a trial is, before it starts.

    Attributes:
        name: of the trial.
        workflows: N variants, labels unique, in the plan's order.
        tasks: M tasks, ids and names unique, in the plan's order.
        models: names unique; the first one is the default of every run.
        ceilings: USD; every purpose that the plan can spend on has one.
        graders: names unique; the first one decides success and the gate.
        limits: of each run.
        attempts: runs of each variant on each task.
        seed: every other seed is derived from it.
        parallel: runs at the same time; 0 for as many as the machine has processors.
        gate: such as `challenger within 0.05 of incumbent`; empty for none.
        simulate: ids of unsafe tools of which the simulator stands in.
        digest: sha256 of the plan, its tasks and the digests of its workflows. What changes no
            run is left out (ceilings, and how many run at a time), so that a trial that stopped
            at a ceiling can be resumed under a higher one.
        environment: the environment that its runs are given, as the plan states it, a JSON object;
            compared with what a task's session recorded.
        folder: absolute path of the plan file's folder, from which its graders read.
    """

    name: str
    workflows: tuple[PlannedWorkflow, ...]
    tasks: tuple[TrialTask, ...]
    models: tuple[PlanModel, ...]
    ceilings: Mapping[Purpose, Decimal]
    graders: tuple[GraderSpec, ...] = ()
    limits: RunLimits = RunLimits()
    attempts: int = 1
    seed: int = 0
    parallel: int = 0
    gate: str = ""
    simulate: tuple[str, ...] = ()
    digest: str = ""
    environment: Raw | UnsetType = UNSET
    folder: str = ""

    @property
    def n_runs(self) -> int:
        """N × M × attempts."""
        return len(self.workflows) * len(self.tasks) * self.attempts


def plan_runs(plan: TrialPlan) -> Iterator[PlannedRun]:
    """Yield every run in block-complete order: all variants of one task, then the next task."""
    for task in plan.tasks:
        for attempt in range(1, plan.attempts + 1):
            for workflow in plan.workflows:
                key = RunKey(workflow.label, task.task_id, attempt)
                yield PlannedRun(key, derive_seed(plan.seed, key))


def derive_seed(seed: int, key: RunKey) -> int:
    """Derive the seed of one run, 0 to 2**31 − 1: the same for every variant of a task's attempt.

    Variants are compared on the same draws, so the variant is no part of it.
    """
    text = canonical.encode([seed, key.task_id, key.attempt])
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big") >> 1
