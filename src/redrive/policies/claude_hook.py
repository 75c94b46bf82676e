"""Runs a hook of Claude Code against a recorded event, in the sandbox, and reads its decision.

Knows how Claude Code starts a hook: `sh -c`, input on standard input, `CLAUDE_PROJECT_DIR`. The
hook is foreign code: it sees the system's programs, its project read-only and its own script, no
network and no other file of the user. What cannot be held is said in `UNENFORCED`.

Source: DESIGN.md §7; the public "Hooks reference" of Claude Code.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from redrive import canonical
from redrive.errors import UsageError
from redrive.policies.hook_protocol import (
    EXIT_BLOCK,
    HookDecision,
    HookInput,
    dump_input,
    parse_decision,
)
from redrive.policies.hook_settings import matches
from redrive.sandbox.bubblewrap import run_confined
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    SCRATCH_HOME,
    SYSTEM_FOLDERS,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
    lies_in,
)

# A recorded transcript tells what came after the event; inside, it is a file without content.
NO_TRANSCRIPT = "/dev/null"
# What a report on a foreign hook must say; a policy of redrive's own has none of these.
UNENFORCED = (
    "clock: the hook reads the time of the replay, not the event's",
    "randomness: the hook may draw random numbers, so a second run may decide otherwise",
    "cooldown: whether the hook holds itself back between calls is not known",
    "memory: what the hook writes is gone after each call, so it starts anew at every event",
    "files: the hook sees the project as it is now, not as it was at the event",
    "transcript: transcript_path names an empty file",
    "effects: a hook that must write or reach a server fails; where it shows, there is no decision",
)
_NOT_FOUND = (126, 127)
# What programs say, at the end of a line, when the sandbox refused them something. A shell then
# exits with 2 of its own accord, which is no decision of the hook.
_REFUSED = re.compile(
    r"(?:Cannot fork|Resource temporarily unavailable|Cannot allocate memory|Out of space"
    r"|MemoryError|No space left on device|Read-only file system|File too large"
    r"|Too many open files|Network is unreachable|Could not resolve host.*|Connection refused"
    r"|Temporary failure in name resolution|Name or service not known|Operation not permitted)\.?$",
    re.MULTILINE,
)
# How a script is named in a command: after these, or after a program that runs scripts.
_PREFIXES = frozenset({"env", "exec", "command", "nice", "time"})
_ASSIGNMENT = re.compile(r"\w+=")
_INTERPRETER = re.compile(
    r"(?:ba|da|z|k|fi)?sh|\.|source|python[\d.]*|node|bun|deno|tsx|npx|ruby|perl|php|uv"
)
_PUNCTUATION = frozenset(";&|()<>")


class ClaudeHook(msgspec.Struct, frozen=True):
    """One hook, ready to run.

    Args:
        name: what the report calls it.
        event: the event it is called on.
        command: a text for `sh -c`, or a program and its arguments.
        project_folder: absolute path of the project, shown read-only.
        matcher: see `hook_settings.matches`; `None` takes every tool.
        timeout_s: after which it is ended and has decided nothing.
        readable: further files and folders that it may read, such as an interpreter's.
        path: where its programs are looked up.
        limits: what it may spend; `timeout_s` stands for `wall_s`.
    """

    name: str
    event: str
    command: str | tuple[str, ...]
    project_folder: str
    matcher: str | None = None
    timeout_s: float = 60.0
    readable: tuple[str, ...] = ()
    path: str = DEFAULT_PATH
    limits: Limits = Limits()


def applies(hook: ClaudeHook, hook_input: HookInput) -> bool:
    """Say whether Claude Code would call the hook on this event."""
    if hook_input.hook_event_name != hook.event:
        return False
    tool_name = hook_input.tool_name
    return tool_name is msgspec.UNSET or matches(hook.matcher, tool_name)


def find_script(hook: ClaudeHook, home: str = "") -> Path | None:
    """Find the script that a hook's command runs: a file of the user, run itself or interpreted.

    A file that is only an argument, as of `cat`, is none: it would be shown to the hook.
    """
    is_command, is_interpreted = True, False
    for word in _words(hook, home or _home()):
        if word and set(word) <= _PUNCTUATION:
            is_command, is_interpreted = not set(word) & set("<>"), False
            continue
        path = Path(os.path.normpath(os.path.join(hook.project_folder, word)))
        if (is_command or is_interpreted) and _is_of_user(path):
            return path
        name = os.path.basename(word)
        if is_command and name not in _PREFIXES and not _ASSIGNMENT.match(word):
            is_command, is_interpreted = False, _INTERPRETER.fullmatch(name) is not None
    return None


def _is_of_user(path: Path) -> bool:
    return path.is_file() and not any(lies_in(str(path), folder) for folder in SYSTEM_FOLDERS)


def read_version(hook: ClaudeHook, home: str = "") -> str:
    """Give what ran a name: a digest of the command and of the script it names, if there is one.

    What the script itself loads is not part of it.
    """
    script = find_script(hook, home)
    parts: dict[str, object] = {"command": hook.command}
    if script is not None:
        parts["script_sha256"] = hashlib.sha256(script.read_bytes()).hexdigest()
    return f"sha256:{canonical.value_digest(parts)}"


def run_hook(hook: ClaudeHook, hook_input: HookInput, home: str = "") -> HookDecision:
    """Run a hook on one event, in the sandbox or not at all.

    Args:
        hook: what to run; whether it `applies` is the caller's question.
        hook_input: the event; its `transcript_path` is replaced by `NO_TRANSCRIPT`.
        home: the user's home folder, hidden from the hook but for its script; empty: as this
            process has it.

    Returns:
        What the hook answered; its `fault` says why there is no answer.

    Raises:
        ContainmentError: there is no proven sandbox; the hook did not run.
        UsageError: the project folder is not one, or would show the home folder.
    """
    confinement = _confine(hook, hook_input, home or _home())
    told = msgspec.structs.replace(hook_input, transcript_path=NO_TRANSCRIPT)
    done = run_confined(_argv(hook), confinement, dump_input(told))
    return _read_result(hook, done)


def _read_result(hook: ClaudeHook, done: ConfinedResult) -> HookDecision:
    if done.exit_code is None:
        why = f"it took longer than {hook.timeout_s:g} s"
        if done.is_process_flood:
            why = f"it wanted more than {hook.limits.n_processes} processes"
        return HookDecision(fault=f"ended: {why}")
    decision = parse_decision(hook.event, done.exit_code, done.stdout, done.stderr)
    refused = _REFUSED.search(decision.reason) if done.exit_code == EXIT_BLOCK else None
    if refused is not None:
        return HookDecision(fault=f"exit 2 after the sandbox refused something: {refused[0]}")
    hints = []
    if done.exit_code in _NOT_FOUND:
        hints.append("inside are the system's programs, the project and what is named readable")
    if done.is_output_cut:
        hints.append(f"its output was cut at {hook.limits.output_bytes} bytes")
    if not hints:
        return decision
    fault = "; ".join((*((decision.fault,) if decision.fault else ()), *hints))
    return msgspec.structs.replace(decision, fault=fault)


def _argv(hook: ClaudeHook) -> tuple[str, ...]:
    if isinstance(hook.command, str):
        return ("/bin/sh", "-c", hook.command)
    # Without a shell, Claude Code itself fills in the project's folder.
    return tuple(
        word.replace("${CLAUDE_PROJECT_DIR}", hook.project_folder) for word in hook.command
    )


def _confine(hook: ClaudeHook, hook_input: HookInput, home: str) -> Confinement:
    project = os.path.normpath(hook.project_folder)
    if not os.path.isabs(hook.project_folder) or not os.path.isdir(project):
        raise UsageError(f"no such project folder: {hook.project_folder!r}", where=hook.name)
    if _holds(project, home):
        raise UsageError(
            f"the project folder {hook.project_folder!r} holds the home folder",
            where=hook.name,
            hint="name a folder below it: a hook does not see the home folder",
        )
    inside_home = _inside_home(home)
    return Confinement(
        readable=(Bind(project), *_script_binds(hook, project, home), *map(Bind, hook.readable)),
        home=inside_home,
        cwd=_cwd(hook_input, project),
        environment=_environment(hook, project, inside_home),
        limits=msgspec.structs.replace(hook.limits, wall_s=hook.timeout_s),
    )


def _cwd(hook_input: HookInput, project: str) -> str:
    """Give the recorded working folder if the sandbox has it, else the project."""
    cwd = hook_input.cwd
    if cwd is msgspec.UNSET or not os.path.isabs(cwd) or not os.path.isdir(cwd):
        return project
    below = os.path.relpath(cwd, project)
    # A link on the way may lead out of what is shown.
    is_shown = os.path.realpath(cwd) == os.path.join(os.path.realpath(project), below)
    return cwd if below == "." or (is_shown and not below.startswith("..")) else project


def _holds(folder: str, home: str) -> bool:
    return lies_in(home, folder) or lies_in(os.path.realpath(home), os.path.realpath(folder))


def _environment(hook: ClaudeHook, project: str, inside_home: str) -> Mapping[str, str]:
    return {
        "PATH": hook.path,
        "HOME": inside_home,
        "LANG": "C.UTF-8",
        "CLAUDE_PROJECT_DIR": project,
    }


def _script_binds(hook: ClaudeHook, project: str, home: str) -> Iterator[Bind]:
    """Show the script's folder, or the script alone where its folder holds the user's own."""
    script = find_script(hook, home)
    if script is None or lies_in(str(script), project):
        return
    folder = str(script.parent)
    is_private = os.path.dirname(folder) == home and os.path.basename(folder).startswith(".")
    if script.is_symlink() or is_private or _holds(folder, home):
        yield Bind(os.path.realpath(script), str(script))
    else:
        yield Bind(folder)


def _words(hook: ClaudeHook, home: str) -> Iterator[str]:
    words: Iterable[str] = hook.command
    if isinstance(hook.command, str):
        lexer = shlex.shlex(hook.command, posix=True, punctuation_chars=True)
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
        except ValueError:
            return
    values = {"CLAUDE_PROJECT_DIR": hook.project_folder, "HOME": home}
    for word in words:
        text = home + word[1:] if word.startswith("~/") else word
        for name, value in values.items():
            text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
        if "\0" not in text:
            yield text


def _inside_home(home: str) -> str:
    """Keep the path of the home folder, so that `~` in a command finds the script."""
    is_system = home == "/" or any(lies_in(home, folder) for folder in SYSTEM_FOLDERS)
    return SCRATCH_HOME if is_system else home


def _home() -> str:
    home = os.path.normpath(os.path.expanduser("~"))
    return home if os.path.isabs(home) else SCRATCH_HOME
