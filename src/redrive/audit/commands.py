"""Reads a shell command line for what it may reach: the network, and files that it changes.

Knows shell words and a table of programs. Must not know tools, events or sessions. It never says
that a command is harmless: a program that is not in the table gives no hint, and that is all.

Source: the table is version `PROGRAMS_VERSION`; a hint is a help for reading, never a gate.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

PROGRAMS_VERSION = 1
_MAX_CHARS = 16 * 1024
_MAX_DEPTH = 4
_ANY = frozenset[str]()

# Program → the subcommands that reach the network; `_ANY`: every use of it does.
NETWORK_PROGRAMS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            *("curl", "wget", "ssh", "scp", "sftp", "ssh-copy-id", "nc", "ncat", "netcat"),
            *("telnet", "ftp", "lftp", "socat", "ping", "dig", "nslookup", "host", "whois"),
            *("http", "https", "xh", "aria2c", "rclone", "npx", "bunx", "uvx", "gh", "glab"),
            *("aws", "gcloud", "gsutil", "az", "kubectl", "helm", "heroku", "vercel", "netlify"),
            *("flyctl", "psql", "mysql", "mongosh", "redis-cli", "twine", "sendmail", "mail"),
        ),
        _ANY,
    ),
    "git": frozenset({"push", "pull", "clone", "fetch", "ls-remote", "submodule", "send-email"}),
    "rsync": _ANY,
    **dict.fromkeys(("pip", "pip3", "pipx"), frozenset({"install", "download", "upgrade"})),
    "uv": frozenset({"pip", "add", "sync", "tool", "lock", "publish", "run"}),
    "poetry": frozenset({"install", "add", "update", "publish", "lock"}),
    **dict.fromkeys(("conda", "mamba"), frozenset({"install", "create", "update"})),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun"),
        frozenset({"install", "i", "ci", "add", "update", "publish", "audit", "dlx", "exec"}),
    ),
    "cargo": frozenset({"install", "add", "update", "fetch", "publish", "search"}),
    "go": frozenset({"get", "install", "mod"}),
    **dict.fromkeys(("gem", "bundle", "composer"), frozenset({"install", "update", "push"})),
    **dict.fromkeys(
        ("apt", "apt-get", "dnf", "yum", "apk", "brew"),
        frozenset({"install", "update", "upgrade", "add"}),
    ),
    **dict.fromkeys(("docker", "podman"), frozenset({"pull", "push", "login", "build", "run"})),
    "terraform": frozenset({"init", "plan", "apply", "destroy"}),
}
# Program → the subcommands or options that change files; `_ANY`: every use of it does.
WRITING_PROGRAMS: dict[str, frozenset[str]] = {
    **dict.fromkeys(
        (
            *("rm", "rmdir", "unlink", "shred", "mv", "cp", "ln", "mkdir", "touch", "tee", "dd"),
            *("truncate", "install", "chmod", "chown", "patch", "apply_patch"),
        ),
        _ANY,
    ),
    **dict.fromkeys(("sed", "perl"), frozenset({"-i", "-i.bak", "-pi", "-i''"})),
    "git": frozenset(
        {
            *("add", "commit", "checkout", "switch", "restore", "reset", "clean", "rm", "mv"),
            *("stash", "apply", "am", "merge", "rebase", "cherry-pick", "revert", "pull", "clone"),
            *("tag", "branch", "worktree", "config", "init"),
        }
    ),
    "find": frozenset({"-delete"}),
}

# A program that runs another one → its options that take a value.
_WRAPPERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(("time", "nohup", "command", "exec"), _ANY),
    **dict.fromkeys(("sudo", "doas"), frozenset({"-u", "-g", "-h", "-p", "-C"})),
    "env": frozenset({"-u", "-C"}),
    "nice": frozenset({"-n"}),
    "xargs": frozenset({"-n", "-I", "-P", "-L", "-d"}),
    "timeout": frozenset({"-k", "-s"}),
}
_GIT_OPTIONS = frozenset({"-C", "-c", "--git-dir", "--work-tree"})
_SHELLS = frozenset({"bash", "sh", "zsh", "dash", "ksh", "fish"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SEPARATORS = frozenset({";", "&", "&&", "|", "||", "|&", "(", ")", ";;", "\n", "{", "}"})
_KEYWORDS = frozenset({"if", "then", "else", "elif", "do", "while", "until", "!"})
_REDIRECTS = frozenset({">", ">>", ">|", "&>", "&>>"})
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)")
_SUBSTITUTION = re.compile(r"\$\(|`")


def network_hints(command: str) -> tuple[str, ...]:
    """Name the programs of a command line that reach the network, such as `git push`.

    Args:
        command: what a shell would run; the first 16 KiB are read.

    Returns:
        Each once, in order.
    """
    return tuple(dict.fromkeys(_hints(command, NETWORK_PROGRAMS)))


def writing_hints(command: str) -> tuple[str, ...]:
    """Name what changes files: programs such as `rm` or `git commit`, and `> FILE`; see above."""
    found = dict.fromkeys(_hints(command, WRITING_PROGRAMS))
    for words in _commands(command, 0):
        for word, target in pairwise(words):
            if word in _REDIRECTS and not target.startswith(("/dev/null", "&")):
                found[f"{word} {target}"] = None
    return tuple(found)


def _hints(command: str, table: dict[str, frozenset[str]]) -> Iterator[str]:
    for words in _commands(command, 0):
        name, rest = _program(words)
        wanted = table.get(name)
        if wanted is None:
            if name.startswith("python") and rest[:2] == ["-m", "pip"]:
                yield from _hints(shlex.join(rest[1:]), table)
            continue
        if not wanted:
            yield name
            continue
        match = _subcommand(rest, wanted)
        if match is not None:
            yield f"{name} {match}"


def _subcommand(words: Sequence[str], wanted: frozenset[str]) -> str | None:
    """Find a wanted option anywhere, or a wanted subcommand: the first word that is no option."""
    rest = list(words)
    _drop_options(rest, _GIT_OPTIONS)
    if rest and rest[0] in wanted:
        return rest[0]
    return next((word for word in words if word.startswith("-") and word in wanted), None)


def _commands(command: str, depth: int) -> Iterator[list[str]]:
    """Yield the simple commands of a command line, those inside `$(…)` and `sh -c` included."""
    words: list[str] = []
    for word in [*_words(_without_heredocs(command[:_MAX_CHARS])), ";"]:
        if word in _SEPARATORS:
            if words:
                yield from _nested(words, depth)
                yield words
            words = []
        else:
            words.append(word)


def _nested(words: list[str], depth: int) -> Iterator[list[str]]:
    if depth >= _MAX_DEPTH:
        return
    name, rest = _program(words)
    if name in _SHELLS:
        for option, text in pairwise(rest):
            if option.startswith("-") and "c" in option:
                yield from _commands(text, depth + 1)
    elif name == "eval":
        yield from _commands(" ".join(rest), depth + 1)
    for word in words:
        match = _SUBSTITUTION.search(word)  # what follows the first one is read with it
        if match is not None:
            yield from _commands(word[match.end() :].rstrip(")`"), depth + 1)


def _program(words: Sequence[str]) -> tuple[str, list[str]]:
    """Give a simple command's program, without its folder, and the words after it."""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = word.rpartition("/")[2]
        if word in _KEYWORDS or _ASSIGNMENT.match(word):
            continue
        if name not in _WRAPPERS:
            return name, rest
        _drop_options(rest, _WRAPPERS[name])
        if name == "timeout":
            del rest[:1]
    return "", []


def _drop_options(words: list[str], with_value: frozenset[str]) -> None:
    """Take the options off the front, and the values of those that have one."""
    while words and words[0].startswith("-"):
        if words.pop(0) in with_value:
            del words[:1]


def _without_heredocs(command: str) -> str:
    """Drop the bodies of here-documents that end: they are text, not commands."""
    lines = command.split("\n")
    last = {line.strip(): number for number, line in enumerate(lines)}
    kept: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        kept.append(line)
        number += 1
        begun = _HEREDOC.search(line)
        if begun is not None and last.get(begun[1], -1) >= number:
            while lines[number].strip() != begun[1]:
                number += 1
            number += 1
    return "\n".join(kept)


def _words(command: str) -> list[str]:
    lines = command.replace("\\\n", " ").split("\n")
    lexer = shlex.shlex(" ; ".join(lines), posix=True, punctuation_chars=True)
    lexer.commenters = ""
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quote that never ends
        return re.split(r"\s+|(?<=[;&|()])|(?=[;&|()])", command)


def simple_commands(command: str) -> Iterator[list[str]]:
    """Yield each simple command of a command line as its program, without its folder, and words.

    Wrappers such as `sudo` and `env` are taken off; what `$(…)` and `sh -c` run is among them.
    """
    for words in _commands(command, 0):
        name, rest = _program(words)
        if name:
            yield [name, *rest]


def first_program(command: str) -> str:
    """Name the first program of a command line that is not `cd`; empty if there is none."""
    names = (_program(words)[0] for words in _commands(command, 0))
    return next((name for name in names if name != "cd"), "")
