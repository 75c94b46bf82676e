"""Reads the plan of a trial: one TOML file, strictly, with everything that it names.

Knows the file. Starts nothing and writes nothing; what a workflow declares is read by a loader that
it is given.

Source: DESIGN.md §6; docs/trials.md shows a plan.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.app.plan_parts import read_graders, read_limits, read_models
from redrive.app.plan_table import Table, read_toml, type_name
from redrive.app.trial_tasks import DigestWorkspace, OpenStore, TaskReading, read_tasks
from redrive.compare.gate import find_sides, parse_gate
from redrive.errors import RedriveError, UsageError, quote
from redrive.replay.trial_plan import PlannedWorkflow, TrialPlan
from redrive.replay.trial_values import Purpose, TrialTask

LoadWorkflow = Callable[[str, Path], PlannedWorkflow]
"""Loads what `PATH.py:NAME` (relative to a folder) or an entry point declares; its role is empty.

Raises `UsageError` or `PluginError`.
"""

ROLES = ("challenger", "incumbent")
JUDGE = "judge"
MAX_WORKFLOWS = 64
MAX_ATTEMPTS = 1000
MAX_RUNS = 100_000
MAX_SEED = 2**63 - 1
MAX_PARALLEL = 1024
HINT = "docs/trials.md shows a plan"
_NO_RUN_CHANGES = ("ceilings", "parallel")


class PlanChanges(msgspec.Struct, frozen=True):
    """What a command line says beside the plan's file; it enters the digest as if written there.

    Attributes:
        gate: takes the place of the plan's.
        simulate: ids that are added to the plan's.
        is_without_workspace: `--no-workspace`.
    """

    gate: str | None = None
    simulate: tuple[str, ...] = ()
    is_without_workspace: bool = False


NO_CHANGES = PlanChanges()


def read_plan(
    path: Path,
    open_store: OpenStore,
    *,
    load_workflow: LoadWorkflow,
    digest_workspace: DigestWorkspace,
    changes: PlanChanges = NO_CHANGES,
) -> TrialPlan:
    """Read a plan and all that it names; every relative path begins at the plan's folder.

    Args:
        path: of the TOML file.
        open_store: opens the store; asked only where tasks come from recorded sessions.
        load_workflow: see `LoadWorkflow`.
        digest_workspace: see `trial_tasks.TaskReading`.
        changes: see `PlanChanges`.

    Raises:
        UsageError: one line with file and key (or line) of the first thing that is wrong.
        RecordError: a file cannot be read.
        PluginError: a workflow's code cannot be loaded.
    """
    values = _changed(read_toml(path, what="plan", hint=HINT), changes)
    table = Table(values, path.name)
    folder = path.absolute().parent
    plan = _read_parts(table, folder)
    _hold_ceilings(table, plan)
    _hold_judges(table, plan)
    workflows, tasks = table.tables("workflows"), table.table("tasks")
    table.close()  # before code is loaded and workspaces are read
    reading = TaskReading(
        folder, digest_workspace, open_store, is_without=changes.is_without_workspace
    )
    plan = replace(plan, workflows=_read_workflows(table, workflows, folder, load_workflow))
    _hold_gate(table, plan)
    plan = replace(plan, tasks=read_tasks(tasks, reading))
    if plan.n_runs > MAX_RUNS:
        table.refuse("attempts", f"{plan.n_runs} runs: at most {MAX_RUNS} in one trial")
    return replace(plan, digest=digest_plan(values, plan.workflows, plan.tasks))


def _read_parts(table: Table, folder: Path) -> TrialPlan:
    """Read all of a plan but what its workflows and tasks name."""
    return TrialPlan(
        name=table.name("name"),
        attempts=table.whole("attempts", default=1, least=1, most=MAX_ATTEMPTS),
        seed=table.whole("seed", default=0, least=0, most=MAX_SEED),
        parallel=table.whole("parallel", default=0, least=0, most=MAX_PARALLEL),
        models=read_models(table),
        limits=read_limits(table.table("limits")),
        graders=read_graders(table),
        simulate=table.texts("simulate"),
        gate=table.text("gate", default=""),
        environment=_read_environment(table, folder),
        ceilings=_read_ceilings(table.table("ceilings")),
        folder=str(folder),
        workflows=(),
        tasks=(),
    )


def _changed(values: dict[str, Any], changes: PlanChanges) -> dict[str, Any]:
    """Write what the command line says into the plan's values."""
    if changes.gate is not None:
        values = values | {"gate": changes.gate}
    planned = values.get("simulate", [])
    if changes.simulate and isinstance(planned, list):
        more = [name for name in dict.fromkeys(changes.simulate) if name not in planned]
        values = values | {"simulate": [*planned, *more]}
    return values


def digest_plan(
    values: Mapping[str, Any], workflows: Sequence[PlannedWorkflow], tasks: Sequence[TrialTask]
) -> str:
    """Sum up a plan, the same on every machine: no absolute path enters.

    Args:
        values: the plan's values as written; what changes no run is left out.
        workflows: as loaded.
        tasks: as read.

    Returns:
        64 hex digits of sha256.
    """
    fields = ("task_id", "name", "expected", "session_id", "environment")
    read = [[_plain(getattr(task, field)) for field in fields] for task in tasks]
    loaded = [[entry.label, entry.role, entry.digest] for entry in workflows]
    written = {key: value for key, value in values.items() if key not in _NO_RUN_CHANGES}
    return canonical.value_digest({"plan": written, "tasks": read, "workflows": loaded})


def _plain(value: object) -> Any:
    """Give a field as a list: empty where it is not stated, so that `null` stays another value."""
    if value is UNSET:
        return []
    return [canonical.decode_value(bytes(value)) if isinstance(value, Raw) else value]


def _read_workflows(
    table: Table, entries: Sequence[Table], folder: Path, load: LoadWorkflow
) -> tuple[PlannedWorkflow, ...]:
    if not entries:
        table.refuse("workflows", "names no workflow: expected a list of tables with `source`")
    if len(entries) > MAX_WORKFLOWS:
        table.refuse("workflows", f"{len(entries)} workflows: at most {MAX_WORKFLOWS}")
    sources, roles = [], []
    for entry in entries:
        sources.append(entry.text("source"))
        roles.append(entry.choice("role", ROLES, default=""))
        entry.close()
    found: dict[str, PlannedWorkflow] = {}
    for entry, source, role in zip(entries, sources, roles, strict=True):
        workflow = replace(_load(entry, source, folder, load), source=source, role=role)
        if workflow.label in found:
            entry.refuse("source", f"{workflow.label} stands twice", "give each another version")
        found[workflow.label] = workflow
    return tuple(found.values())


def _load(entry: Table, source: str, folder: Path, load: LoadWorkflow) -> PlannedWorkflow:
    try:
        return load(source, folder)
    except RedriveError as error:
        error.message = f"{entry.place('source')}: {error.message}"
        raise


def _read_ceilings(table: Table) -> dict[Purpose, Decimal]:
    """Read the ceilings of what a trial can spend on."""
    names = {f"{purpose}_usd": purpose for purpose in (Purpose.REPLAY, Purpose.JUDGING)}
    found = {
        purpose: table.money(name, 'USD as a string, such as "1.00"')
        for name, purpose in names.items()
        if name in table
    }
    for name in names:
        table.take(name)
    table.close()
    return found


def _hold_ceilings(table: Table, plan: TrialPlan) -> None:
    """Hold that whatever can be spent on has its own ceiling."""
    needed = []
    if plan.models:
        needed.append((Purpose.REPLAY, "runs ask models"))
    if any(grader.kind == JUDGE for grader in plan.graders):
        needed.append((Purpose.JUDGING, "a judge asks a model"))
    for purpose, why in needed:
        if purpose not in plan.ceilings:
            hint = "replay and judging have a ceiling each"
            table.refuse(
                f"ceilings.{purpose}_usd", f"missing: {why}, and may not without one", hint
            )


def _hold_judges(table: Table, plan: TrialPlan) -> None:
    names = [model.name for model in plan.models]
    for number, grader in enumerate(plan.graders):
        if grader.kind != JUDGE:
            continue
        model, key = grader.options.get("model"), f"graders[{number}].model"
        if model is None:
            table.refuse(key, "missing: a judge names one of the plan's models")
        if model not in names:
            hint = f"models: {', '.join(names) or 'none'}"
            table.refuse(key, f"{quote(str(model))} is no model of the plan", hint)


def _hold_gate(table: Table, plan: TrialPlan) -> None:
    """Hold that a gate can be read and names variants of the plan."""
    if not plan.gate:
        return
    if not plan.graders:
        table.refuse("gate", "a gate needs a grader: the first one decides")
    try:
        find_sides(parse_gate(plan.gate), [(entry.label, entry.role) for entry in plan.workflows])
    except UsageError as error:
        table.refuse("gate", error.message, error.hint)


def _read_environment(table: Table, folder: Path) -> Raw | UnsetType:
    """Read what environment the runs are given: a table, or the path of a JSON file."""
    value = table.json("environment")
    if value is None:
        return UNSET
    if not isinstance(value, dict):
        if not isinstance(value, str):
            what = f"expected a table, or the path of a JSON file, found {type_name(value)}"
            table.refuse("environment", what)
        found = table.read_json_file("environment", value, folder).value
        if not isinstance(found, dict):
            table.refuse("environment", f"{folder / value}: expected one JSON object")
        value = found
    return Raw(canonical.canonical(value))
