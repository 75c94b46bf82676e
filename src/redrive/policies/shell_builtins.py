"""Builtins that change what a shell keeps: its folder and its variables.

Knows their options. Must not run anything.
"""

from collections.abc import Callable, Mapping

from redrive.policies.shell_command import Command, read_options
from redrive.policies.shell_scope import Runner, Scope
from redrive.policies.shell_words import SILENT, UNKNOWN, Stream
from redrive.policies.shell_wrappers import is_assignment


def _change_folder(run: Runner, command: Command, scope: Scope) -> Stream:
    del run
    operands = [word for word in command.words[1:] if word == "-" or not word.startswith("-")]
    target = operands[0] if operands else "~"
    if command.program == "popd" or target == "-" or target.startswith("+"):
        target = UNKNOWN
    scope.enter(target)
    return SILENT


def _declare(run: Runner, command: Command, scope: Scope) -> Stream:
    del run
    for word in command.words[1:]:
        if is_assignment(word):
            name, _, value = word.partition("=")
            scope.values[name] = value
    return SILENT


def _read(run: Runner, command: Command, scope: Scope) -> Stream:
    del run
    options = read_options(command.words[1:], ("-p", "-n", "-N", "-t", "-u", "-d", "-i", "-a"))
    paths = command.stdin.paths
    value = paths[0] if len(paths) == 1 else UNKNOWN
    text = command.stdin.text
    if text is not None and text.count("\n") <= 1 and len(options.operands) == 1:
        value = text.strip()
    for name in (*options.operands, *options.values("-a")) or ("REPLY",):
        scope.values[name] = value
    return SILENT


def _unset(run: Runner, command: Command, scope: Scope) -> Stream:
    del run
    for name in command.words[1:]:
        scope.values[name] = ""
    return SILENT


def _set(run: Runner, command: Command, scope: Scope) -> Stream:
    del run
    if "--" in command.words:
        values = command.words[command.words.index("--") + 1 :]
        scope.values["@"] = values
        for number, value in enumerate(values[:9], start=1):
            scope.values[str(number)] = value
    return SILENT


BUILTINS: Mapping[str, Callable[[Runner, Command, Scope], Stream]] = {
    **dict.fromkeys(("cd", "pushd", "popd"), _change_folder),
    **dict.fromkeys(("export", "declare", "local", "readonly", "typeset"), _declare),
    "read": _read,
    "unset": _unset,
    "set": _set,
}
