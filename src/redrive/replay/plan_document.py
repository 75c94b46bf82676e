"""Writes a plan as one JSON document and reads it back, as a store keeps it beside its ledger.

Knows the plan as a value. Must not know TOML, nor where the document lies.
"""

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.errors import RecordError
from redrive.replay.trial_plan import TrialPlan
from redrive.replay.trial_values import TrialTask, Workspace


class _StoredTask(msgspec.Struct, frozen=True):
    """A `TrialTask` whose JSON values are texts: a strict decoder takes no lone surrogate."""

    task_id: str
    name: str
    input: str
    workspace: Workspace | None = None
    expected: str | None = None
    session_id: str | None = None
    environment: str | None = None
    origin: str = ""


class _Document(msgspec.Struct, frozen=True):
    schema: str
    schema_version: int
    plan: TrialPlan
    environment: str | None
    tasks: tuple[_StoredTask, ...]


SCHEMA, SCHEMA_VERSION = "redrive.plan", 1


def dump_plan(plan: TrialPlan) -> bytes:
    """Write a plan, its tasks and what its workflows declare; equal plans give equal bytes."""
    document = _Document(
        SCHEMA,
        SCHEMA_VERSION,
        replace(plan, tasks=(), environment=UNSET),
        _text(plan.environment),
        tuple(map(_dump_task, plan.tasks)),
    )
    return canonical.encode(document)


def parse_plan(data: bytes) -> TrialPlan:
    """Read what `dump_plan` wrote.

    Raises:
        RecordError: it is no plan, or one of a newer version.
    """
    try:
        document = msgspec.json.decode(data, type=_Document)
        if (document.schema, document.schema_version) != (SCHEMA, SCHEMA_VERSION):
            raise RecordError(f"no plan of version {SCHEMA_VERSION}: {document.schema!r}")
    except ValueError as error:
        raise RecordError(f"a stored plan cannot be read: {error}") from error
    tasks = tuple(map(_parse_task, document.tasks))
    return replace(document.plan, tasks=tasks, environment=_raw(document.environment))


def _dump_task(task: TrialTask) -> _StoredTask:
    return _StoredTask(
        task.task_id,
        task.name,
        bytes(task.input).decode(),
        task.workspace,
        _text(task.expected),
        task.session_id,
        _text(task.environment),
        task.origin,
    )


def _parse_task(task: _StoredTask) -> TrialTask:
    return TrialTask(
        task.task_id,
        task.name,
        Raw(task.input.encode()),
        task.workspace,
        _raw(task.expected),
        task.session_id,
        _raw(task.environment),
        task.origin,
    )


def _text(value: Raw | UnsetType) -> str | None:
    return bytes(value).decode() if isinstance(value, Raw) else None


def _raw(text: str | None) -> Raw | UnsetType:
    return UNSET if text is None else Raw(text.encode())
