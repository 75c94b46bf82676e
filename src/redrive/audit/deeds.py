"""Says in one line what a tool call did, and how it ended.

Knows the arguments and results of the tools in `tools`. Must not know sessions or order.
"""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UnsetType

from redrive import canonical
from redrive.audit.arguments import arguments_of, arguments_text
from redrive.audit.commands import first_program, network_hints, writing_hints
from redrive.audit.tools import Category, ToolRule
from redrive.record.event import ToolCall, ToolResult, raw_value

_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "fish", "cmd", "powershell", "pwsh"})
_PATCHED = re.compile(r"^\*\*\* (?:(Add|Update|Delete) File|(Move) to): (.+)$", re.MULTILINE)
_MAX_PATHS = 200
# Arguments that change what a call could do: name → how the report says so.
_CONDITIONS = {
    "workdir": "in {}",
    "cwd": "in {}",
    "run_in_background": "in the background",
    "is_background": "in the background",
    "dangerouslyDisableSandbox": "sandbox switched off",
    "with_escalated_permissions": "outside the sandbox",
    "sandbox_permissions": "sandbox permissions: {}",
    "justification": "justification: {}",
}
_BACKGROUND = ("run_in_background", "is_background")
_EXIT_CODE = re.compile(r"(?:Error: |<error>)?Exit code:? (-?\d{1,10})\b")
_EXIT_KEYS = ("exit_code", "exitCode", "returncode", "return_code")
# What a result says when its call was not let through and no permission event tells so.
_DENIAL = re.compile(
    r"(?:exec command|command|patch|apply_patch) rejected by user|rejected by user|"
    r"The user doesn't want to (?:proceed with this tool use|take this action right now)"
)
_HEAD_CHARS = 400


class Deed(msgspec.Struct, frozen=True):
    """What a call did, or tried to do; `category` is absent where it only read."""

    category: Category | None
    what: str = ""
    details: tuple[str, ...] = ()
    network_hints: tuple[str, ...] = ()
    writing_hints: tuple[str, ...] = ()


def deed_of(call: ToolCall, rule: ToolRule) -> Deed:
    """Say what a call did by its tool's rule."""
    arguments = arguments_of(call)
    category = _category(call, rule, arguments)
    if category is None:
        return Deed(None)
    what = _told(call, rule, arguments)
    details = tuple(_conditions(arguments))
    if category is Category.COMMAND:
        return _command(what, details)
    patched = _patched(what) if category is Category.FILE_WRITE else ()
    return Deed(category, ", ".join(patched) or what, details)


def _category(call: ToolCall, rule: ToolRule, arguments: Mapping[str, Any]) -> Category | None:
    if rule.category is None:
        return None
    if rule.reads_if is not None and (arguments.get(rule.reads_if[0]) or "") in rule.reads_if[1]:
        return None
    if call.is_provider_side and rule.category is not Category.NETWORK:
        return Category.PROVIDER_SIDE
    return rule.category


def told_of(call: ToolCall, rule: ToolRule) -> str:
    """Give the argument that tells what a call did, as one text; all of them where none does."""
    return _told(call, rule, arguments_of(call))


def _told(call: ToolCall, rule: ToolRule, arguments: Mapping[str, Any]) -> str:
    for name in rule.told_by:
        if arguments.get(name):
            return _as_line(arguments[name])
    return arguments_text(call) or ""


def _as_line(value: Any) -> str:
    """Write an argument as a line; `["bash", "-lc", SCRIPT]` is its script."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        is_script = len(value) == 3 and value[0].rpartition("/")[2] in _SHELLS
        return value[2] if is_script and value[1].startswith("-") else shlex.join(value)
    return canonical.encode(value).decode()


def _command(line: str, details: tuple[str, ...]) -> Deed:
    patched = _patched(line)
    writing = writing_hints(line)
    if patched and first_program(line) == "apply_patch":
        return Deed(Category.FILE_WRITE, ", ".join(patched), details)
    return Deed(Category.COMMAND, line, details + patched, network_hints(line), writing)


def _patched(text: str) -> tuple[str, ...]:
    """List what an `apply_patch` text does to which file, in order."""
    found = []
    for match in _PATCHED.finditer(text):
        found.append(f"{(match[1] or match[2]).lower()} {match[3].strip()}")
        if len(found) == _MAX_PATHS:
            break
    return tuple(found)


def patched_paths(text: str) -> tuple[str, ...]:
    """List the paths that an `apply_patch` text adds, updates, deletes or moves to."""
    return tuple(match[3].strip() for match in _PATCHED.finditer(text))[:_MAX_PATHS]


def is_in_background(call: ToolCall) -> bool:
    """Say whether a call only starts something: its result does not tell how that ends."""
    arguments = arguments_of(call)
    return any(arguments.get(name) is True for name in _BACKGROUND)


def _conditions(arguments: Mapping[str, Any]) -> list[str]:
    found = []
    for name, label in _CONDITIONS.items():
        value = arguments.get(name)
        if value and isinstance(value, (str, bool)):
            found.append(label.format(value))
    return found


def exit_code_of(result: ToolResult) -> int | None:
    """Give a command's exit code: recorded, or stated in its output the way known agents do."""
    if result.exit_code is not None:
        return result.exit_code
    value = _first_part(result)
    if isinstance(value, str):
        match = _EXIT_CODE.match(value[:_HEAD_CHARS])
        return None if match is None else int(match[1])
    if not isinstance(value, dict):
        return None
    metadata = canonical.get_field(value, "metadata", dict) or {}
    codes = (canonical.get_field(m, k, int) for m in (value, metadata) for k in _EXIT_KEYS)
    return next((code for code in codes if code is not None), None)


def is_denial(result: ToolResult) -> bool:
    """Say whether a result tells that its call was not let through."""
    value = _first_part(result)
    return isinstance(value, str) and _DENIAL.match(value[:_HEAD_CHARS]) is not None


def _first_part(result: ToolResult) -> Any:
    """Give the recorded result; of a list of text parts its first text."""
    value = raw_value(result.result)
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return value[0].get("text")
    return None if isinstance(value, UnsetType) else value
