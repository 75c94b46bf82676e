"""Finds a workflow's code on this machine without running it, and sums it up.

Knows sources (`PATH.py:NAME`, entry points), files and what one module may import beside it.

Source: DESIGN.md §6, §8 "Specs".
"""

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from redrive import canonical, plugins
from redrive.app.trial_messages import CodePlace
from redrive.errors import PluginError, UsageError, quote
from redrive.sandbox.modules import find_neighbours

WORKFLOW_HINT = "a workflow's name, or PATH.py:NAME"
MOST_FILES = 2000
MOST_BYTES = 64 * 1024 * 1024
_FILE_SOURCE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")
_TARGET = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")


def find_place(source: str, base: Path) -> CodePlace:
    """Find where a workflow's code lies; nothing is imported.

    Args:
        source: `PATH.py:NAME`, relative to `base`, or an entry point of `redrive.workflows`.
        base: a folder.

    Raises:
        UsageError: there is no such file or entry point.
        PluginError: the entry point's code is not there.
    """
    match = _FILE_SOURCE.fullmatch(source)
    if match is None:
        return _find_plugin(source)
    path = Path(os.path.abspath(base / match["path"]))
    if not path.is_file():
        raise UsageError(f"no such file: {match['path']}", hint=WORKFLOW_HINT)
    return CodePlace(match["name"], file=str(path), folder=str(path.parent))


def digest_code(place: CodePlace) -> str:
    """Sum up a workflow's file and every module beside it that it may import, the same anywhere.

    Of a file these are all Python files of its folder, and all below those of its sub-folders that
    one of them names in an import; of a module all those of its package.

    Raises:
        UsageError: there are too many, or they are too large.
        PluginError: one cannot be read.
    """
    parts: dict[str, str] = {}
    size_bytes = 0
    for path in _files(place):
        data = _read(path)
        size_bytes += len(data)
        if len(parts) >= MOST_FILES or size_bytes > MOST_BYTES:
            raise UsageError(
                f"the code beside the workflow is more than {MOST_FILES} files, or too large",
                where=place.folder,
                hint="keep workflows in a folder of their own",
            )
        parts[path.relative_to(place.folder).as_posix()] = canonical.digest(data)
    own = os.path.relpath(place.file, place.folder) if place.file else place.module
    return canonical.value_digest({"code": own, "name": place.name, "files": parts})


def _find_plugin(source: str) -> CodePlace:
    target = next((t for n, t in plugins.targets(plugins.WORKFLOWS) if n == source), None)
    if target is None:
        known = ", ".join(plugins.names(plugins.WORKFLOWS)) or "none"
        raise UsageError(
            f"no workflow named {quote(source)}", hint=f"known: {known}; or PATH.py:NAME"
        )
    match = _TARGET.fullmatch(target)
    folder = None if match is None else _find_package(match["module"].partition(".")[0])
    if match is None or folder is None:
        raise PluginError(f"the workflow {source} ({target}) has no Python source here")
    return CodePlace(match["name"], module=match["module"], folder=folder)


def _find_package(name: str) -> str | None:
    """Find the folder of a top-level package, or of a lone module; neither is run."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    if found is None or not found.has_location:
        return None
    return os.path.dirname(os.path.realpath(str(found.origin)))


def _files(place: CodePlace) -> Iterator[Path]:
    folder = Path(place.folder)
    if not place.file:
        alone = folder / f"{place.module}.py"
        yield from (alone,) if alone.is_file() else _below(folder)
        return
    beside = sorted(path for path in folder.glob("*.py") if path.is_file())
    yield from beside
    names = {name for path in beside for name in find_neighbours(_text(path))}
    for name in sorted(names):
        if (folder / name).is_dir():
            yield from _below(folder / name)


def _below(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".py") and Path(root, name).is_file():
                yield Path(root, name)


def _text(path: Path) -> str:
    return _read(path).decode("utf-8", "replace")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PluginError(f"cannot be read: {error}", where=str(path)) from error
