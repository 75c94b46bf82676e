"""Reads tasks from a file of JSON lines, each line in full or not at all.

Knows the lines. Must not know workspaces beyond what a line names, nor runs.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Never

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.app.plan_table import type_name
from redrive.errors import RecordError, UsageError, quote

MAX_TASKS = 10_000
MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_FILE_BYTES = 256 * 1024 * 1024
NAME_CHARS = 200
_KEYS = ("name", "input", "workspace", "expected", "environment")
_BOM = b"\xef\xbb\xbf"


class TaskLine(msgspec.Struct, frozen=True):
    """One task as a line states it.

    Attributes:
        place: `FILE:LINE`.
        name: as stated, else `FILE:LINE`.
        input: any JSON value.
        workspace: as stated, not looked at yet; absent where it states none.
        expected: canonical JSON.
        environment: canonical JSON of an object.
    """

    place: str
    name: str
    input: Any
    workspace: object = None
    expected: Raw | UnsetType = UNSET
    environment: Raw | UnsetType = UNSET

    def refuse(self, message: str) -> Never:
        """Refuse something of this line, by its place."""
        _refuse(self.place, message)


def read_task_lines(path: Path) -> list[TaskLine]:
    """Read a file of tasks; empty lines are passed over, whatever else is no task is refused.

    Raises:
        UsageError: there is no such file, a line is no task (with `FILE:LINE`), or there are none
            or too many.
        RecordError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = list(_read_lines(path.name, file))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"{path}: no such file of tasks", where=str(path)) from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}", where=str(path)) from error
    if not found:
        raise UsageError(f"{path}: no task in it", where=str(path))
    return found


def _read_lines(name: str, file: BinaryIO) -> Iterator[TaskLine]:
    number, n_tasks, n_bytes = 0, 0, 0
    while data := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        n_bytes += len(data)
        place = f"{name}:{number}"
        if len(data) > MAX_LINE_BYTES:
            _refuse(place, f"more than {MAX_LINE_BYTES} bytes in a line")
        if n_bytes > MAX_FILE_BYTES:
            _refuse(place, f"more than {MAX_FILE_BYTES} bytes of tasks")
        if number == 1 and data.startswith(_BOM):
            _refuse(place, "begins with a byte order mark: save it as plain UTF-8")
        if not data.strip(b" \t\r\n"):
            continue
        n_tasks += 1
        if n_tasks > MAX_TASKS:
            _refuse(place, f"more than {MAX_TASKS} tasks")
        yield _parse_line(place, data)


def _parse_line(place: str, data: bytes) -> TaskLine:
    fields = _fields(place, data)
    for key in fields:
        if key not in _KEYS:
            _refuse(place, f"unknown key {quote(key)}: known are {', '.join(_KEYS)}")
    if "input" not in fields:
        _refuse(place, "no `input`")
    environment = fields.get("environment", UNSET)
    if environment is not UNSET and not isinstance(environment, dict):
        _refuse(place, f"environment: expected an object, found {_kind(environment)}")
    workspace = fields.get("workspace")
    if "workspace" in fields and not isinstance(workspace, str | dict):
        found = _kind(workspace)
        _refuse(place, f"workspace: expected a path or {{git, commit}}, found {found}")
    return TaskLine(
        place=place,
        name=_name(place, fields.get("name", place)),
        input=fields["input"],
        workspace=workspace,
        expected=_raw(fields.get("expected", UNSET)),
        environment=_raw(environment),
    )


def _fields(place: str, data: bytes) -> dict[str, Any]:
    """Decode one line to its members, each once and exact."""
    try:
        decoded = canonical.decode(data)
    except ValueError as error:
        torn = "" if data.endswith(b"\n") else ", and the file ends within it"
        _refuse(place, f"not JSON: {error}{torn}")
    if not isinstance(decoded.value, dict):
        _refuse(place, f"expected an object, found {_kind(decoded.value)}")
    if not decoded.is_exact:
        _refuse(place, "holds a number that has no exact JSON form")
    names = [name for name, _ in canonical.split_object(data)]
    for name in names:
        if names.count(name) > 1:
            _refuse(place, f"the key {quote(name)} stands twice")
    return dict(decoded.value)


def _name(place: str, value: object) -> str:
    if not isinstance(value, str):
        _refuse(place, f"name: expected a string, found {_kind(value)}")
    if not value.strip() or len(value) > NAME_CHARS or not value.isprintable():
        _refuse(place, f"name: expected one line of 1 to {NAME_CHARS} characters")
    return value


def _raw(value: object) -> Raw | UnsetType:
    return UNSET if value is UNSET else Raw(canonical.canonical(value))


def _kind(value: object) -> str:
    return "null" if value is None else type_name(value).replace("table", "object")


def _refuse(place: str, message: str) -> Never:
    raise UsageError(f"{place}: {message}", where=place)
