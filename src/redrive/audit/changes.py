"""Which files a tool call changes, as far as its arguments tell.

Knows the arguments of file tools and patches. Must not know sessions, nor whether the call worked.

Source: DESIGN.md §7, state level L0.
"""

import re
from collections.abc import Sequence
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
    of redirections outside quotes of its first line are read, which is a hint and no proof; in code
    of a language, `>` compares.
    """
    rule = judge_tool(call.tool, {}).rule
    if rule.category not in (Category.FILE_WRITE, Category.COMMAND):
        return ()
    arguments = arguments_of(call)
    if rule.reads_if is not None and arguments.get(rule.reads_if[0]) in rule.reads_if[1]:
        return ()
    told = told_of(call, rule)
    found: Sequence[object] = patched_paths(told)
    if not found and rule.category is Category.COMMAND:
        found = _redirected(told) if "code" not in arguments else ()
    elif not found:
        found = [arguments.get(name) for name in dict.fromkeys((*rule.told_by, *_EXTRA))]
    texts = [path for path in found if isinstance(path, str)]
    named = [normpath(path) for path in texts if path and len(path) <= _MAX_PATH_CHARS]
    return tuple(dict.fromkeys(path for path in named if "\n" not in path))[:_MAX_PATHS]


def _redirected(command: str) -> list[str]:
    line = re.sub(r"'[^'\n]*'|\"[^\"\n]*\"", "''", command.partition("\n")[0])
    return [path for path in _REDIRECT.findall(line) if not path.startswith("/dev/")]


def inside(path: str, cwd: str | None) -> str:
    """Give a path as seen from the working folder; one outside it as it is."""
    return path.removeprefix(cwd.rstrip("/") + "/") if cwd else path


def module_of(path: str, cwd: str | None = None) -> str:
    """Name the module that a path belongs to: its folder below `cwd`; `.` for the top."""
    return inside(path, cwd).rpartition("/")[0] or "."
