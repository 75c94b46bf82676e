"""What `fd` hands to the program that it runs, as a search of `find`'s kind.

Knows `fd`'s options and the simple end of its patterns. Must not judge what is run.

Source: the manual page of fd.
"""

from collections.abc import Sequence

from redrive.policies.shell_command import read_options
from redrive.policies.shell_find import Search
from redrive.policies.shell_paths import REBUILT

_EXECUTIONS = frozenset({"-x", "--exec", "-X", "--exec-batch"})
_VALUES = (
    *("-e", "-t", "-d", "-E", "-S", "-o", "-c", "-j", "-C", "--extension", "--type", "--depth"),
    *("--max-depth", "--min-depth", "--exclude", "--size", "--owner", "--color", "--threads"),
    *("--changed-within", "--changed-before", "--base-directory", "--search-path", "--max-results"),
)
_FILTERS = ("-S", "-o", "--size", "--owner", "--changed-within", "--changed-before")


def read_fd(words: Sequence[str]) -> Search:
    """Read a search of `fd`.

    Args:
        words: what follows the program's name.
    """
    start = next((n for n, word in enumerate(words) if word in _EXECUTIONS), len(words))
    options = read_options(words[:start], _VALUES)
    pattern, *folders = options.operands or ("",)
    endings = options.values("-e", "--extension")
    name = pattern if options.has("-g", "--glob") else _as_glob(pattern)
    names = [f"{name or '*'}.{ending.lstrip('.')}" for ending in endings] or [name] * bool(name)
    roots = folders or options.values("-C", "--base-directory", "--search-path") or ["."]
    paths = tuple(f"{root.rstrip('/')}/{each}" for root in roots for each in names)
    run = tuple(words[start + 1 :])
    run = run[: run.index(";")] if ";" in run else run
    if run and not any("{" in word for word in run):
        run = (*run, "{}")
    return Search(
        paths or tuple(roots),
        is_named=bool(paths),
        is_filtered=options.has(*_FILTERS),
        is_pruned=False,
        deletes=False,
        commands=(run,) if run else (),
    )


def _as_glob(pattern: str) -> str:
    r"""Give the names that a pattern such as `\.bak$` finds; empty: any name."""
    plain = pattern.removeprefix("^").removesuffix("$").replace("\\.", ".").replace(".*", "*")
    if plain in {"", ".", "*"}:
        return ""
    if plain in REBUILT:
        return plain
    before = "" if pattern.startswith("^") else "*"
    return before + plain + ("" if pattern.endswith("$") else "*")
