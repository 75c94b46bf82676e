"""Reads the tasks of a trial: from a file of JSON lines, or from recorded sessions.

Knows what makes a task. Must not know workflows or runs. A task that cannot be read is refused by
line or session, never left out: a trial on fewer tasks than its plan names would be another trial.

Source: DESIGN.md §6 "A task is …".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Never

from msgspec import UNSET, Raw
from msgspec.structs import replace

from redrive import canonical
from redrive.app.plan_table import Table, type_name
from redrive.app.session_tasks import read_session_task
from redrive.app.task_lines import TaskLine, read_task_lines
from redrive.errors import RedriveError, UsageError, quote
from redrive.replay.trial_values import TrialTask, Workspace
from redrive.stores.port import Store

DigestWorkspace = Callable[[str, str, str | None], str]
OpenStore = Callable[[], AbstractContextManager[Store]]
Refuse = Callable[[str], Never]

ID_DIGITS = 16
MAX_COMMIT_CHARS = 64
NO_WORKSPACE_HINT = "give `workspace`, or say `no_workspace = true` (--no-workspace)"


@dataclass(slots=True)
class TaskReading:
    """What reading tasks needs of the world.

    Attributes:
        folder: of the plan; relative paths begin here.
        digest_workspace: (path, kind, commit) → sha256 in hex; raises `UsageError`.
        open_store: opens the store; asked only where tasks come from sessions.
        is_without: whether recorded sessions may go without a workspace.
    """

    folder: Path
    digest_workspace: DigestWorkspace
    open_store: OpenStore
    is_without: bool = False
    _known: dict[tuple[str, str, str | None], str] = field(default_factory=dict)

    def workspace(self, value: object, refuse: Refuse) -> Workspace:
        """Read one workspace, as a plan or a line names it; the same one is digested once."""
        kind, path, commit = self._place(value, refuse)
        key = (str(path), kind, commit)
        if key not in self._known:
            try:
                self._known[key] = self.digest_workspace(*key)
            except RedriveError as error:
                refuse(error.message)
        return Workspace(kind, str(path), self._known[key], commit)

    def _place(self, value: Any, refuse: Refuse) -> tuple[str, Path, str | None]:
        commit = None
        if isinstance(value, dict):
            if set(value) != {"git", "commit"}:
                refuse("expected a path, or a table of `git` and `commit`")
            value, commit = value["git"], value["commit"]
            if not isinstance(commit, str) or not 0 < len(commit) <= MAX_COMMIT_CHARS:
                refuse(f"`commit`: expected a commit's name, found {type_name(commit)}")
        if not isinstance(value, str) or not value or "\0" in value:
            refuse(f"expected the path of a workspace, found {type_name(value)}")
        path = (self.folder / value).absolute()
        if commit is not None:
            return "git", path, commit
        if path.is_dir():
            return "folder", path, None
        if not path.is_file():
            refuse(f"no such folder or archive: {quote(value)}")
        return "archive", path, None


def read_tasks(table: Table, reading: TaskReading) -> tuple[TrialTask, ...]:
    """Read the table `[tasks]` of a plan.

    Returns:
        M tasks in the order of the file or of the sessions named, ids and names unique.

    Raises:
        UsageError: with file and key, or file and line.
    """
    is_lines, is_sessions = "jsonl" in table, "sessions" in table
    if is_lines == is_sessions:
        table.refuse("", "expected exactly one of `jsonl` and `sessions`")
    tasks = _from_lines(table, reading) if is_lines else _from_sessions(table, reading)
    table.close()
    _hold_unique(tasks)
    return tuple(tasks)


def make_task(name: str, value: object, workspace: Workspace | None, origin: str) -> TrialTask:
    """Make a task and its id.

    Args:
        name: for people.
        value: the input, any JSON value.
        workspace: absent where it has none.
        origin: where the input was read.

    Raises:
        ValueError: the input has no canonical form.
    """
    digest = None if workspace is None else workspace.digest
    task_id = canonical.value_digest([value, digest])[:ID_DIGITS]
    return TrialTask(
        task_id, name, Raw(canonical.canonical(value)), workspace=workspace, origin=origin
    )


def _from_lines(table: Table, reading: TaskReading) -> list[TrialTask]:
    default = _default_workspace(table, reading)
    path = reading.folder / table.text("jsonl")
    return [_line_task(line, default, reading) for line in read_task_lines(path)]


def _line_task(line: TaskLine, default: Workspace | None, reading: TaskReading) -> TrialTask:
    workspace = default
    if line.workspace is not None:
        workspace = reading.workspace(
            line.workspace, lambda message: line.refuse(f"workspace: {message}")
        )
    task = make_task(line.name, line.input, workspace, line.place)
    return replace(task, expected=line.expected, environment=line.environment)


def _default_workspace(table: Table, reading: TaskReading) -> Workspace | None:
    value = table.take("workspace")
    if value is None:
        return None
    return reading.workspace(value, partial(table.refuse, "workspace"))


def _from_sessions(table: Table, reading: TaskReading) -> list[TrialTask]:
    names = table.texts("sessions")
    if not names:
        table.refuse("sessions", "names no session")
    default = _default_workspace(table, reading)
    own = _own_workspaces(table.table("workspaces"), reading)
    is_without = table.flag("no_workspace") or reading.is_without
    if default is not None and is_without:
        table.refuse("workspace", "stands beside no_workspace", "keep one of them")
    expected = _read_expected(table, reading.folder)
    tasks = []
    with reading.open_store() as store:
        for number, name in enumerate(names):
            place = table.place(f"sessions[{number}]")
            try:
                found = read_session_task(store, name)
            except UsageError as error:
                raise UsageError(
                    f"{place}: {error.message}", where=place, hint=error.hint
                ) from None
            session_id = found.session_id
            workspace = own.pop(name, None) or own.pop(session_id, None) or default
            if workspace is None and not is_without:
                message = f"{place}: {session_id} has no workspace"
                raise UsageError(message, where=place, hint=NO_WORKSPACE_HINT)
            task = make_task(session_id, found.input, workspace, found.origin)
            wanted = expected.pop(name, expected.pop(session_id, UNSET))
            tasks.append(
                replace(
                    task,
                    session_id=session_id,
                    environment=found.environment,
                    expected=wanted if wanted is UNSET else Raw(canonical.canonical(wanted)),
                )
            )
    _refuse_left(table, "workspaces", own)
    _refuse_left(table, "expected", expected)
    return tasks


def _own_workspaces(table: Table, reading: TaskReading) -> dict[str, Workspace]:
    """Read `[tasks.workspaces]`: session → its own workspace."""
    return {
        name: reading.workspace(value, partial(table.refuse, name))
        for name, value in table.rest().items()
    }


def _read_expected(table: Table, folder: Path) -> dict[str, Any]:
    """Read `expected`: a table by session, or the path of a JSON file that holds one."""
    value = table.json("expected")
    if value is None or isinstance(value, dict):
        return dict(value or {})
    found = table.read_json_file("expected", value, folder)
    if not isinstance(found.value, dict) or not found.is_exact:
        table.refuse("expected", f"{folder / value}: expected one JSON object by session id")
    return dict(found.value)


def _refuse_left(table: Table, name: str, left: Mapping[str, object]) -> None:
    """Refuse what names a session that is no task: it would silently count for nothing."""
    for key in left:
        table.refuse(name, f"{quote(key)} is none of the sessions")


def _hold_unique(tasks: Sequence[TrialTask]) -> None:
    _hold_each(tasks, (task.task_id for task in tasks), "the same input and workspace as")
    _hold_each(tasks, (task.name for task in tasks), "the same name as")


def _hold_each(tasks: Sequence[TrialTask], keys: Iterable[str], what: str) -> None:
    seen: dict[str, TrialTask] = {}
    for task, key in zip(tasks, keys, strict=True):
        other = seen.setdefault(key, task)
        if other is not task:
            place = task.session_id or task.origin
            raise UsageError(
                f"{place}: {what} {other.session_id or other.origin} ({quote(other.name)})",
                where=place,
                hint="name each task once; `attempts` repeats them all",
            )
