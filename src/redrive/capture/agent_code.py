"""Which files are the agent's own.

Knows files and folders. Must not know what is read or intercepted.

An agent's own code lies below its root: the project that its main script belongs to. Installed
packages are not its own, unless one is the root; the standard library and redrive never are.

Source: DESIGN.md §3 "Provenance manifest".
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "")


class AgentCode:
    """Says whether a file of Python code is the agent's own.

    Args:
        roots: folders below which the agent's own files lie. An installed package is the agent's
            where its own folder, or its one file, is a root.
    """

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))
        # A package of one file is its own root.
        self._inside = tuple(
            str(root) if root.suffix == ".py" else os.path.join(root, "") for root in self.roots
        )
        self._outside = _foreign_folders()

    def __call__(self, filename: str) -> bool:
        """Judge a file by its name; a relative one is taken from the current folder."""
        named = os.path.abspath(filename)
        if self._is_foreign(named):
            return False
        # Where it lies counts too: a package may be linked into the project, or the project itself.
        real = os.path.realpath(named)
        is_inside = named.startswith(self._inside) or real.startswith(self._inside)
        return is_inside and not self._is_foreign(real)

    def _is_foreign(self, path: str) -> bool:
        """Say whether a path lies outside, as seen from the nearest folder that is told of."""
        root = _length_of_nearest(path, self._inside)
        if _length_of_nearest(path, self._outside) > root:
            return True
        return not _INSTALLED.isdisjoint(path[root:].split(os.sep))


def _length_of_nearest(path: str, folders: Iterable[str]) -> int:
    return max((len(folder) for folder in folders if path.startswith(folder)), default=0)


def _foreign_folders() -> tuple[str, ...]:
    """List the folders of the interpreter, of its environment and of redrive."""
    folders = [*_paths("stdlib", "platstdlib", "purelib", "platlib"), _OWN_FOLDER]
    if sys.prefix != sys.base_prefix:
        folders += [os.path.join(sys.prefix, ""), os.path.join(os.path.realpath(sys.prefix), "")]
    return tuple(dict.fromkeys(folders))


def _paths(*names: str) -> Iterator[str]:
    for folder in map(sysconfig.get_path, names):
        yield os.path.join(folder, "")
        yield os.path.join(os.path.realpath(folder), "")


def is_machinery(filename: str) -> bool:
    """Say whether a file is redrive's or the standard library's, which are nobody's agent.

    A recorder that took its own look at the clock for the agent's would never come to an end.
    """
    real = os.path.realpath(filename)
    if real.startswith(_OWN_FOLDER):
        return True
    is_below = real.startswith(tuple(_paths("stdlib", "platstdlib")))
    return is_below and _INSTALLED.isdisjoint(real.split(os.sep))


def find_root(file: str | os.PathLike[str]) -> Path:
    """Find the folder of the project that a file belongs to.

    Returns:
        The nearest folder above that holds `.git`, `pyproject.toml`, `setup.py` or `setup.cfg`, but
        never the home folder or the file system's root; else the folder of the file, above the
        packages that it lies in.
    """
    folder = Path(os.path.realpath(file)).parent
    broad = {Path(folder.anchor), Path(os.path.realpath(os.path.expanduser("~")))}
    for above in (folder, *folder.parents):
        if above not in broad and any((above / marker).exists() for marker in _MARKERS):
            return above
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        folder = folder.parent
    return folder


def find_roots(frame: FrameType | None) -> tuple[Path, ...]:
    """Find the roots of the main script and of the code that calls.

    Args:
        frame: where to look for the caller: the first frame, outwards, whose file is not of redrive
            and not of the standard library.

    Returns:
        Each once. Of a caller in an installed package, the folder of that package; a main script
        that is installed (`python -m pytest`) is no agent. None where the agent is typed in.
    """
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    is_installed = isinstance(main, str) and not AgentCode([Path(os.sep)])(main)
    roots = [] if main is None or is_installed else [find_root(main)]
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith("<") and not is_machinery(name):
            roots.append(_find_package(name) or find_root(name))
            break
        frame = frame.f_back
    return tuple(dict.fromkeys(roots))


def _find_package(file: str) -> Path | None:
    """Find the top folder, or the file, of the installed package that a file belongs to."""
    parts = Path(os.path.realpath(file)).parts
    places = [index for index, part in enumerate(parts) if part in _INSTALLED]
    return Path(*parts[: places[-1] + 2]) if places else None


def is_typed_in(names: Mapping[str, Any]) -> bool:
    """Say whether a module's names are those of code without a file: typed in, or given by `-c`."""
    return names.get("__name__") == "__main__" and not isinstance(names.get("__file__"), str)
