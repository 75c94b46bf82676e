"""Which files are the agent's own.

Knows files and folders. Must not know what is read or intercepted.

An agent's own code lies below its root: the project that its main script belongs to. Installed
packages, the standard library and redrive itself are not its own, wherever they lie.

Source: DESIGN.md §3 "Provenance manifest".
"""

import os
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

_MARKERS = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OWN_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "")


class AgentCode:
    """Says whether a file of Python code is the agent's own.

    Args:
        roots: folders below which the agent's own files lie.
    """

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = tuple(dict.fromkeys(Path(os.path.realpath(root)) for root in roots))
        self._inside = tuple(os.path.join(root, "") for root in self.roots)
        self._outside = _foreign_folders()

    def __call__(self, filename: str) -> bool:
        """Judge a file by its name; a relative one is taken from the current folder."""
        forms = {os.path.abspath(filename), os.path.realpath(filename)}
        if any(form.startswith(self._outside) for form in forms):
            return False
        if any(_INSTALLED.intersection(form.split(os.sep)) for form in forms):
            return False
        return any(form.startswith(self._inside) for form in forms)


def _foreign_folders() -> tuple[str, ...]:
    """List the folders of the interpreter, of its environment and of redrive."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    folders = [sysconfig.get_path(name) for name in names]
    if sys.prefix != sys.base_prefix:
        folders.append(sys.prefix)
    found = {form for folder in folders for form in (folder, os.path.realpath(folder))}
    return (_OWN_FOLDER, *(os.path.join(folder, "") for folder in sorted(found)))


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
        Each once; none where the agent is typed in and has no file.
    """
    is_foreign = _foreign_folders()
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    files = [main] if isinstance(main, str) else []
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith("<") and not os.path.realpath(name).startswith(is_foreign):
            files.append(name)
            break
        frame = frame.f_back
    own = [name for name in files if not os.path.realpath(name).startswith(is_foreign)]
    return tuple(dict.fromkeys(find_root(name) for name in own))


def is_typed_in(names: Mapping[str, Any]) -> bool:
    """Say whether a module's names are those of code without a file: typed in, or given by `-c`."""
    return names.get("__name__") == "__main__" and not isinstance(names.get("__file__"), str)
