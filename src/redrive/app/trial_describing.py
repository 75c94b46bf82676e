"""The process that imports a workflow's file, to say what it declares, and does nothing else.

Runs inside the sandbox, started by `trial_loading`: no network, nothing that can be changed. What
it writes is hostile to whoever reads it, as the file's own code has run here.

Source: DESIGN.md §6.
"""

import os
import sys
import traceback
from types import ModuleType
from typing import Any, Literal

import msgspec

from redrive.app.trial_code import import_code, tools_in
from redrive.app.trial_messages import CodePlace
from redrive.audit.workflow import WorkflowSpec
from redrive.errors import RedriveError, UsageError, quote
from redrive.trial_workflow import CommandWorkflow, Workflow, to_spec

_MOST_CHARS = 2000
_MOST_NAMES = 20


class Fault(msgspec.Struct, frozen=True):
    """Why there is no declaration: no such name, a wrong declaration, or code that failed."""

    kind: Literal["missing", "usage", "failed"]
    message: str
    where: str = ""
    hint: str = ""


class Described(msgspec.Struct, frozen=True):
    """What is told: one of both."""

    spec: WorkflowSpec | None = None
    fault: Fault | None = None


def main() -> int:
    """Describe what standard input names, on what was standard output."""
    place = msgspec.json.decode(sys.stdin.buffer.read(), type=CodePlace)
    # What the file's code prints is no answer.
    out = os.dup(1)
    os.dup2(2, 1)
    data = msgspec.json.encode(describe(place))
    with os.fdopen(out, "wb") as file:
        file.write(data)
    return 0


def describe(place: CodePlace) -> Described:
    """Import a workflow's code and read its declaration."""
    try:
        module = import_code(place)
    except BaseException as error:  # noqa: BLE001 - whatever the code ends with is told
        return Described(fault=_failed(error, place))
    workflow = vars(module).get(place.name)
    if workflow is None:
        return Described(fault=_missing(module, place))
    try:
        return Described(to_spec(workflow, tools_in(module)))
    except RedriveError as error:
        return Described(fault=Fault("usage", _cut(error.message), "", _cut(error.hint)))
    except BaseException as error:  # noqa: BLE001 - a declaration may be code as well
        return Described(fault=_failed(error, place))


def _missing(module: ModuleType, place: CodePlace) -> Fault:
    known = [
        name
        for name, value in vars(module).items()
        if isinstance(value, Workflow | CommandWorkflow)
    ]
    names = ", ".join(known[:_MOST_NAMES]) or "no workflow"
    return Fault("missing", f"no {quote(place.name)} in it", "", _cut(f"it has {names}"))


def _failed(error: BaseException, place: CodePlace) -> Fault:
    """Say what code ended with, and where in the workflow's own code."""
    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename.startswith(place.folder + os.sep):
            where = f"{frame.filename[len(place.folder) + 1 :]}:{frame.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{os.path.basename(error.filename)}:{error.lineno or 0}"
    hint = error.hint if isinstance(error, RedriveError) else ""
    kind: Literal["usage", "failed"] = "usage" if isinstance(error, UsageError) else "failed"
    return Fault(kind, _cut(_words(error)), _cut(where), _cut(hint))


def _words(error: BaseException) -> str:
    if isinstance(error, RedriveError):
        return error.message
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error's own text is code as well
        text = ""
    lines: list[Any] = text.splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def _cut(text: str) -> str:
    return text[:_MOST_CHARS].encode("utf-8", "backslashreplace").decode()


if __name__ == "__main__":
    sys.exit(main())
