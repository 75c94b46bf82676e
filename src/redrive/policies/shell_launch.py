"""Programs and builtins that run text or other programs, and what commands write to a pipe.

Knows which words, inputs and files become commands. Must not judge a command.
"""

import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from redrive.policies.shell_builtins import BUILTINS
from redrive.policies.shell_command import Command, read_options
from redrive.policies.shell_fd import read_fd
from redrive.policies.shell_find import read_searches
from redrive.policies.shell_output import write_output
from redrive.policies.shell_python import read_python
from redrive.policies.shell_scope import Runner, Scope
from redrive.policies.shell_words import (
    DOWNLOADED,
    SILENT,
    UNKNOWN,
    UNREAD,
    Stream,
)
from redrive.policies.shell_wrappers import is_assignment, unwrap

_POWERSHELL_REMOVALS = re.compile(
    r"((?:^|[;|&{(\n])\s{0,99})(?:remove-item|rm|ri|del|rd|rmdir|erase)(?=\s|$)", re.IGNORECASE
)
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "ash", "mksh", "rbash", "fish"})
_MAX_WRAPPERS = 32
_MAX_ITEMS = 256
_MAX_WORDS = 1024
_Launcher = Callable[[Runner, Command, Scope], Stream]


def launch(run: Runner, command: Command, scope: Scope) -> Stream:
    """Run a command's words: wrappers are peeled off, what they run is run.

    Returns:
        What the command writes, as far as that is known.
    """
    for _ in range(_MAX_WRAPPERS):
        command = _take_assignments(command)
        if not command.words:
            return SILENT
        launcher = _find_launcher(command)
        if launcher is not None:
            return launcher(run, command, scope)
        inner = unwrap(command.words)
        if inner is None:
            break
        command = replace(command, words=inner)
    else:
        run.leave_unread()
    if (written := run.files.find(command.cwd, command.words[0])) is not None:
        return _run_code(run, command, scope.child(), written, command.words)
    run.emit(command)
    return write_output(run.files, command)


def _take_assignments(command: Command) -> Command:
    number = 0
    while number < len(command.words) and is_assignment(command.words[number]):
        number += 1
    pairs = [word.partition("=") for word in command.words[:number]]
    assigned = (*command.assigned, *((name, value) for name, _, value in pairs))
    return replace(command, words=command.words[number:], assigned=assigned)


def _find_launcher(command: Command) -> _Launcher | None:
    name = command.program
    if name.startswith("python") or name == "pypy":
        return _run_python
    if name == "env" and any(word.startswith(("-S", "--split-string")) for word in command.words):
        return _run_split
    return _LAUNCHERS.get(name)


# --- texts that become scripts ---


def _run_shell(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], _SHELL_VALUES, is_permuted=False)
    operands = options.operands
    if options.has("-n") or options.has("--version", "--help"):
        return SILENT
    if options.has("-c"):
        code, operands = (Stream(operands[0]) if operands else SILENT), operands[1:]
    elif operands and not options.has("-s"):
        code = run.files.read(command.cwd, operands[0])
    else:
        code = command.stdin
    return _run_code(run, command, scope.child(), code, operands)


def _run_code(
    run: Runner, command: Command, scope: Scope, code: Stream, operands: tuple[str, ...] = ()
) -> Stream:
    is_download = code.is_download or DOWNLOADED in (code.text or "")[:1]
    run.emit(replace(command, runs_download=is_download))
    if code.text is None or is_download:
        return UNREAD
    for number, value in enumerate(operands[:10]):
        scope.values[str(number)] = value
    scope.values["@"] = operands[1:]
    return run.text(code.text, scope, UNREAD)


def _run_eval(run: Runner, command: Command, scope: Scope) -> Stream:
    code = Stream(" ".join(command.words[1:]))
    is_download = (code.text or "").startswith(DOWNLOADED)
    run.emit(replace(command, runs_download=is_download))
    return UNREAD if is_download else run.text(code.text or "", scope, command.stdin)


def _run_source(run: Runner, command: Command, scope: Scope) -> Stream:
    code = run.files.read(command.cwd, command.words[1]) if command.words[1:] else UNREAD
    run.emit(replace(command, runs_download=code.is_download))
    return run.text(code.text, scope, UNREAD) if code.text is not None else UNREAD


def _run_split(run: Runner, command: Command, scope: Scope) -> Stream:
    words = " ".join(command.words[1:])
    text = words.removeprefix("--split-string").removeprefix("-S").lstrip("= ")
    return run.text(text, scope.child(), command.stdin)


def _run_ssh(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], _SSH_VALUES, is_permuted=False)
    run.emit(command)
    words = options.operands[1:]
    remote = Scope("~", calls=scope.calls)
    if words:
        return run.text(" ".join(words), remote, command.stdin)
    text = command.stdin.text
    return run.text(text, remote, UNREAD) if text is not None and options.operands else UNREAD


def _run_su(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], ("-c", "-s", "-g", "-u", "--command", "--shell"))
    run.emit(command)
    texts = options.values("-c", "--command", "--session-command")
    if not texts and command.program == "runuser" and options.has("-u"):
        return run.words(replace(command, words=options.operands), scope)
    streams = [run.text(text, scope.child(), command.stdin) for text in texts]
    return streams[-1] if streams else UNREAD


def _run_joined(run: Runner, command: Command, scope: Scope) -> Stream:
    values = ("-n", "-c", "-q", "--interval") if command.program == "watch" else ()
    options = read_options(command.words[1:], values, is_permuted=False)
    run.text(" ".join(options.operands), scope.child(), UNREAD)
    return UNREAD


def _run_script(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], ("-c", "--command", "-t"))
    for text in options.values("-c", "--command"):
        run.text(text, scope.child(), UNREAD)
    return UNREAD


def _run_trap(run: Runner, command: Command, scope: Scope) -> Stream:
    words = [word for word in command.words[1:] if word != "--"]
    if len(words) > 1 and words[0] not in {"-", ""} and not words[0].startswith("-"):
        run.text(words[0], scope.child(), UNREAD)
    return SILENT


def _run_flock(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(
        command.words[1:], ("-w", "-E", "-c", "--command"), is_permuted="-c" in command.words
    )
    for text in options.values("-c", "--command"):
        run.text(text, scope.child(), UNREAD)
    return run.words(replace(command, words=options.operands[1:]), scope)


def _run_python(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], ("-c", "-m", "-W", "-X"), is_permuted=False)
    code = UNREAD
    if options.has("-c"):
        code = Stream(options.values("-c")[0])
    elif not options.has("-m"):
        name = options.operands[0] if options.operands else "-"
        code = command.stdin if name == "-" else run.files.read(command.cwd, name)
    is_download = code.is_download or DOWNLOADED in (code.text or "")[:1]
    run.emit(replace(command, runs_download=is_download))
    reading = read_python(code.text or "")
    if not reading.is_complete:
        run.leave_unread()
    for action in reading.actions:
        if isinstance(action, str):
            run.text(action, scope.child(), UNREAD)
        else:
            run.words(replace(command, words=action, stdin=UNREAD, files=()), scope.child())
    return UNREAD


def _run_interpreter(run: Runner, command: Command, scope: Scope) -> Stream:
    """Note an interpreter whose language is not read; downloaded code is seen as such."""
    options = read_options(command.words[1:], ("-e", "-c", "-r", "-p"), is_permuted=False)
    code = UNREAD
    if not options.has("-e", "-c", "-p", "--eval"):
        name = options.operands[0] if options.operands else "-"
        code = command.stdin if name == "-" else run.files.read(command.cwd, name)
    run.emit(replace(command, runs_download=code.is_download))
    del scope
    return UNREAD


def _run_powershell(run: Runner, command: Command, scope: Scope) -> Stream:
    """Run PowerShell's text as far as it is like a shell's: its aliases get their own name."""
    run.emit(command)
    words = command.words[1:]
    start = next((n for n, w in enumerate(words) if w.lower() in {"-c", "-command"}), len(words))
    text = " ".join(words[start + 1 :]).replace("\\", "/")
    text = _POWERSHELL_REMOVALS.sub(r"\1Remove-Item", text)
    run.text(text, scope.child(), UNREAD)
    return UNREAD


# --- programs that run commands on what they find or read ---


def _run_xargs(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], _XARGS_VALUES, is_permuted=False)
    marks = options.values("-I", "-J", "--replace") + (["{}"] if options.has("-i") else [])
    items = _items(run, command.stdin)
    if not options.operands:
        return Stream("\n".join(items)) if UNKNOWN not in items else UNREAD
    mark = (marks[0] or "{}") if marks else ""
    words = _filled(options.operands, mark, items) if mark else (*options.operands, *items)
    walked = command.stdin.paths
    return run.words(replace(command, words=words, walked=walked, stdin=UNREAD), scope.child())


def _items(run: Runner, stdin: Stream) -> tuple[str, ...]:
    items: tuple[str, ...] = (UNKNOWN,)
    if stdin.paths:
        items = stdin.paths
    elif stdin.text is not None and not stdin.is_download:
        items = tuple(stdin.text.split(maxsplit=_MAX_ITEMS))
    if len(items) > _MAX_ITEMS:
        run.leave_unread()
    return items[:_MAX_ITEMS]


def _filled(words: tuple[str, ...], mark: str, items: tuple[str, ...]) -> tuple[str, ...]:
    """Put the items where the mark stands; a mark inside a word takes the first item."""
    filled: list[str] = []
    for word in words[:_MAX_WORDS]:
        if word == mark:
            filled.extend(items[:_MAX_ITEMS])
        else:
            filled.append(word.replace(mark, items[0] if items else UNKNOWN))
    return tuple(filled)


def _run_parallel(run: Runner, command: Command, scope: Scope) -> Stream:
    words = command.words[1:]
    items = _items(run, command.stdin)
    if ":::" in words:
        items = words[words.index(":::") + 1 :]
        words = words[: words.index(":::")]
    options = read_options(words, ("-j", "-N", "-n", "--jobs", "-a"), is_permuted=False)
    if not options.operands:
        for item in items:
            run.text(item, scope.child(), UNREAD)
        return UNREAD
    text = " ".join(options.operands)
    filled = text if "{}" in text else f"{text} {{}}"
    return run.text(filled.replace("{}", " ".join(items)), scope.child(), UNREAD)


def _run_find(run: Runner, command: Command, scope: Scope) -> Stream:
    run.emit(command)
    found: list[str] = []
    for search in read_searches(command.words[1:]):
        for words in search.commands:
            filled = _filled(words, "{}", search.paths)
            inner = replace(command, words=filled, walked=search.paths, files=())
            run.words(inner, scope.child())
        if not search.is_pruned:
            found.extend(search.paths)
    return Stream(paths=tuple(found))


def _run_fd(run: Runner, command: Command, scope: Scope) -> Stream:
    run.emit(command)
    search = read_fd(command.words[1:])
    for words in search.commands:
        filled = _filled(words, "{}", search.paths)
        inner = replace(command, words=filled, walked=search.paths, files=())
        run.words(inner, scope.child())
    return Stream(paths=search.paths)


def _run_git(run: Runner, command: Command, scope: Scope) -> Stream:
    options = read_options(command.words[1:], GIT_VALUES, is_permuted=False)
    name, rest = (options.operands or ("",))[0], options.operands[1:]
    aliases = [value for value in options.values("-c") if value.startswith("alias.")]
    for alias in aliases:
        called, _, text = alias.removeprefix("alias.").partition("=")
        if called == name and text.startswith("!"):
            return run.text(" ".join((text[1:], *rest)), scope.child(), command.stdin)
        if called == name:
            words = ("git", *text.split(), *rest)
            return run.words(replace(command, words=words), scope)
    run.emit(command)
    for text in _git_texts(name, rest):
        run.text(text, scope.child(), UNREAD)
    return _listed_files(rest) if name == "ls-files" else UNREAD


def _listed_files(words: tuple[str, ...]) -> Stream:
    """Give the paths that `git ls-files` lists, as `find` would."""
    options = read_options(words, ("-x", "-X", "--exclude", "--exclude-from"))
    if options.has("-d", "--deleted"):
        return UNREAD
    paths = options.operands or (".",)
    listed = (path if path.startswith(("/", ".")) else f"./{path}" for path in paths)
    return Stream(paths=tuple(listed))


def _git_texts(name: str, words: tuple[str, ...]) -> list[str]:
    match name:
        case "submodule" if "foreach" in words:
            rest = words[words.index("foreach") + 1 :]
            return [" ".join(word for word in rest if word != "--recursive")]
        case "rebase":
            return read_options(words, ("-x", "--exec")).values("-x", "--exec")
        case "bisect" if words[:1] == ("run",):
            return [" ".join(words[1:])]
        case _:
            return []


_SHELL_VALUES = ("-o", "-O", "+o", "+O", "--rcfile", "--init-file")
_SSH_VALUES = tuple(f"-{letter}" for letter in "bcDEeFIiJLlmOopQRSWw")
_XARGS_VALUES = (
    *("-n", "-I", "-J", "-P", "-L", "-d", "-s", "-E", "-a"),
    *("--max-args", "--max-procs", "--delimiter"),
)
GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env")
_LAUNCHERS: Mapping[str, _Launcher] = {
    **dict.fromkeys(SHELLS, _run_shell),
    **dict.fromkeys(("node", "perl", "ruby", "php", "deno", "bun", "lua"), _run_interpreter),
    "eval": _run_eval,
    **dict.fromkeys(("source", "."), _run_source),
    "ssh": _run_ssh,
    **dict.fromkeys(("su", "runuser"), _run_su),
    "watch": _run_joined,
    "script": _run_script,
    "trap": _run_trap,
    "flock": _run_flock,
    "xargs": _run_xargs,
    "parallel": _run_parallel,
    **dict.fromkeys(("find", "gfind"), _run_find),
    **dict.fromkeys(("fd", "fdfind"), _run_fd),
    **dict.fromkeys(("pwsh", "powershell", "powershell.exe"), _run_powershell),
    "git": _run_git,
    **BUILTINS,
}
