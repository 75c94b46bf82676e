"""What `find` acts on: for each action, the paths that its tests let through, as patterns.

Knows the expression's operators and tests on names. Must not judge an action.

Source: the manual page of GNU find, "EXPRESSION".
"""

from collections.abc import Sequence

import msgspec

_NAMES = frozenset({"-name", "-iname"})
_PATHS = frozenset({"-path", "-ipath", "-wholename", "-iwholename"})
# Tests with an argument that let only some files through.
_FILTERS = frozenset(
    {
        *("-regex", "-iregex", "-mtime", "-mmin", "-newer", "-size", "-user", "-group", "-perm"),
        *("-atime", "-ctime", "-amin", "-cmin", "-inum", "-empty", "-newermt", "-links", "-lname"),
    }
)
EXECUTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_OR = frozenset({"-o", "-or", ","})
_NOT = frozenset({"!", "-not"})
_MAX_DEPTH = 8


class Search(msgspec.Struct, frozen=True):
    """One branch of an expression.

    `paths` are its folders, each with each name that is asked for; `is_filtered`: some other test
    holds files back; `commands` what it executes, with `{}` in place.
    """

    paths: tuple[str, ...]
    is_named: bool
    is_filtered: bool
    is_pruned: bool
    deletes: bool
    commands: tuple[tuple[str, ...], ...]


class _Tests(msgspec.Struct):
    """What the tests of one branch let through; no names: any name."""

    names: tuple[str, ...] = ()
    is_filtered: bool = False


def read_searches(words: Sequence[str]) -> tuple[Search, ...]:
    """Read the branches of a `find` command.

    Args:
        words: what follows the program's name.
    """
    number = 0
    while number < len(words) and words[number] in {"-H", "-L", "-P"}:
        number += 1
    start = number
    while number < len(words) and not words[number].startswith(("-", "(", "!")):
        number += 1
    roots = tuple(words[start:number]) or (".",)
    return tuple(_search(roots, branch) for branch in _branches(words[number:]))


def _search(roots: tuple[str, ...], branch: Sequence[str]) -> Search:
    plain, commands = _without_commands(branch)
    # A test behind the action comes too late: `find . -delete -name x` deletes everything.
    before = _until_action(branch)
    tests = _tests(before, 0)
    paths = tuple(_joined(root, name) for root in roots for name in tests.names)
    is_pruned = "-prune" in plain and not (commands or {"-print", "-print0", "-delete"} & {*plain})
    return Search(
        paths or roots, bool(paths), tests.is_filtered, is_pruned, "-delete" in plain, commands
    )


def _until_action(branch: Sequence[str]) -> list[str]:
    actions = EXECUTIONS | {"-delete"}
    number = next((n for n, word in enumerate(branch) if word in actions), len(branch))
    return list(branch[:number])


def _joined(root: str, name: str) -> str:
    return f"{root.rstrip('/')}/{name}"


def _branches(words: Sequence[str]) -> list[list[str]]:
    """Part an expression at each `-o` outside brackets; words to execute stay together."""
    branches: list[list[str]] = [[]]
    level = 0
    is_command = False
    for word in words:
        if is_command:
            is_command = word not in {";", "+"}
        else:
            level += {"(": 1, ")": -1}.get(word, 0)
            is_command = word in EXECUTIONS
            if level == 0 and word in _OR:
                branches.append([])
                continue
        branches[-1].append(word)
    return branches


def _without_commands(branch: Sequence[str]) -> tuple[list[str], tuple[tuple[str, ...], ...]]:
    plain: list[str] = []
    commands: list[tuple[str, ...]] = []
    current: list[str] | None = None
    for word in branch:
        if current is not None and word in {";", "+"}:
            commands.append(tuple(current))
            current = None
        elif current is not None:
            current.append(word)
        elif word in EXECUTIONS:
            current = []
        else:
            plain.append(word)
    if current:
        commands.append(tuple(current))
    return plain, tuple(commands)


def _tests(words: Sequence[str], depth: int) -> _Tests:
    """Read one branch's tests; of several on names the last counts, as all must hold."""
    found = _Tests()
    number = 0
    is_negated = False
    while number < len(words):
        word = words[number]
        following = words[number + 1] if number + 1 < len(words) else ""
        end = number + 1
        if word == "(":
            end = _closing(words, number)
            inner = _alternatives(words[number + 1 : end - 1], depth + 1)
            if not is_negated:
                found.names = inner.names or found.names
                found.is_filtered = found.is_filtered or inner.is_filtered
        elif word in _NAMES | _PATHS and not is_negated:
            is_name = word in _NAMES
            found.names = (following if is_name else following.strip("*").strip("/") or "*",)
        elif word in _FILTERS and not is_negated:
            found.is_filtered = True
        is_negated = word in _NOT
        number = end
    return found


def _alternatives(words: Sequence[str], depth: int) -> _Tests:
    if depth > _MAX_DEPTH:
        return _Tests()
    branches = [_tests(branch, depth) for branch in _branches(words)]
    is_named = all(branch.names for branch in branches)
    names = tuple(name for branch in branches for name in branch.names) if is_named else ()
    return _Tests(names, all(branch.is_filtered or branch.names for branch in branches))


def _closing(words: Sequence[str], start: int) -> int:
    level = 0
    for number in range(start, len(words)):
        level += {"(": 1, ")": -1}.get(words[number], 0)
        if level == 0:
            return number + 1
    return len(words) + 1
