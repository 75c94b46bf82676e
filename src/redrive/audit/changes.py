"""Which files a tool call changes, as far as its arguments tell.

Knows the arguments of file tools and patches. Must not know sessions, nor whether the call worked.

Source: DESIGN.md §7, state level L0.
"""

import re
from posixpath import normpath

from redrive.audit.arguments import arguments_of
from redrive.audit.deeds import patched_paths, told_of
from redrive.audit.tools import Category, judge_tool
from redrive.record.event import ToolCall

_MAX_PATHS = 200
_MAX_PATH_CHARS = 4096
_EXTRA = ("file_path", "path", "new_path", "destination")
_REDIRECT = re.compile(r"(?:^|[\s;|&])(?:[12]?>{1,2}|>\|)\s*([\w./~@%+-]+)")


def changed_paths(call: ToolCall) -> tuple[str, ...]:
    """List the paths that a call writes, normalised, each once, in order; at most 200.

    File tools name them in arguments, patches in their text; of a shell command only the targets
    of redirections outside quotes of its first line are read, which is a hint and no proof.
    """
    rule = judge_tool(call.tool, {}).rule
    if rule.category not in (Category.FILE_WRITE, Category.COMMAND):
        return ()
    told = told_of(call, rule)
    patched = patched_paths(told)
    if patched:
        found = list(patched)
    elif rule.category is Category.COMMAND:
        found = _redirected(told)
    else:
        arguments = arguments_of(call)
        values = [told, *[arguments[name] for name in _EXTRA if name in arguments]]
        found = [value for value in values if isinstance(value, str)]
        if rule.reads_if is not None and arguments.get(rule.reads_if[0]) in rule.reads_if[1]:
            return ()
    named = [normpath(path) for path in found if path and len(path) <= _MAX_PATH_CHARS]
    return tuple(dict.fromkeys(path for path in named if "\n" not in path))[:_MAX_PATHS]


def _redirected(command: str) -> list[str]:
    line = re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", command.partition("\n")[0])
    return [path for path in _REDIRECT.findall(line) if not path.startswith("/dev/")]


def module_of(path: str, cwd: str | None = None) -> str:
    """Name the module that a path belongs to: its folder below `cwd`; `.` for the top."""
    inside = path.removeprefix(cwd.rstrip("/") + "/") if cwd else path
    return inside.rpartition("/")[0] or "."
