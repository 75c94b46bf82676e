"""Which folders of this machine a confined agent needs in order to start.

Knows how Python environments, version managers and conda lay out their folders. Shows as little as
starts a program: never the home folder, nor one that holds it.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from redrive.errors import UsageError
from redrive.sandbox.confinement import SYSTEM_FOLDERS, lies_in

_LIBRARIES = ("lib", "lib64", "libexec")
_VENV_MARK, _CONDA_MARK = "pyvenv.cfg", "conda-meta"
_SHIMS, _VERSIONS = "shims", "versions"


def find_folders(command: str, path: str, python: Iterable[str], home: str) -> tuple[str, ...]:
    """List the folders with the programs on a path and what these load.

    Args:
        command: the program that is started; where it really lies is added.
        path: entries as in `PATH`; relative ones and those that do not exist are passed over.
        python: prefixes of Python environments that are needed as well.
        home: the user's home folder.

    Returns:
        Absolute paths that exist, outside the system's folders, which are shown anyway; none lies
        in another; sorted.
    """
    entries = [*path.split(os.pathsep), *(os.path.join(prefix, "bin") for prefix in python)]
    found = shutil.which(command, path=path)
    if found is not None:
        entries += [os.path.dirname(found), os.path.dirname(os.path.realpath(found))]
    folders: set[str] = set()
    for entry in entries:
        if os.path.isabs(entry):
            folders.update(_around(os.path.normpath(entry)))
    for folder in tuple(folders):
        folders.update(_linked_sources(Path(folder)))
    shown = {folder for folder in folders if _may_be_shown(folder, home)}
    return tuple(sorted(f for f in shown if not any(lies_in(f, o) for o in shown - {f})))


def check_cwd(cwd: str, home: str) -> str:
    """Give the absolute path of a working folder that may be shown.

    Raises:
        UsageError: it is no folder, or it is or holds the home folder.
    """
    folder = os.path.abspath(cwd)
    if not os.path.isdir(folder):
        raise UsageError(f"no such folder to run the agent in: {cwd!r}")
    if _holds(folder, home):
        raise UsageError(
            f"the folder {cwd!r} holds the home folder",
            hint="run it from a project folder: a confined agent does not see the home folder",
        )
    return folder


def find_pipes(folder: str) -> tuple[str, ...]:
    """List the named pipes in a folder and below, as they are now.

    A folder that is shown read-only still lets its pipes be written to, and a program of this
    machine may read there.

    Cost: one look at each entry; links are not followed.
    """
    return tuple(
        os.path.join(root, name)
        for root, _, names in os.walk(folder)
        for name in names
        if _is_pipe(os.path.join(root, name))
    )


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.lstat(path).st_mode)
    except OSError:
        return False


def is_of_system(path: str) -> bool:
    """Say whether a path lies in a folder that every confined process sees."""
    return any(lies_in(path, system) for system in SYSTEM_FOLDERS)


def _may_be_shown(folder: str, home: str) -> bool:
    return os.path.isdir(folder) and not is_of_system(folder) and not _holds(folder, home)


def _holds(folder: str, home: str) -> bool:
    return lies_in(home, folder) or lies_in(os.path.realpath(home), os.path.realpath(folder))


def _around(folder: str, *, is_base: bool = False) -> Iterator[str]:
    """Yield a folder of programs, and what these need from around it."""
    parent = os.path.dirname(folder)
    settings = os.path.join(parent, _VENV_MARK)
    if os.path.isfile(settings):
        yield parent
        base = _read_base(settings)
        if base is not None and not is_base:
            yield from _around(base, is_base=True)
    elif _is_whole(parent, os.path.basename(folder)):
        yield parent
    else:
        yield folder
        if os.path.basename(folder) == "bin":
            yield from (os.path.join(parent, name) for name in _LIBRARIES)


def _is_whole(parent: str, name: str) -> bool:
    """Say whether programs need all that lies beside them: conda's, and those of pyenv's shims."""
    mark = _VERSIONS if name == _SHIMS else _CONDA_MARK
    return os.path.isdir(os.path.join(parent, mark))


def _read_base(file: str) -> str | None:
    """Read the folder of the interpreter that an environment was made with."""
    values = _read_settings(file)
    base = values.get("home", "")
    return os.path.normpath(base) if os.path.isabs(base) else None


def _read_settings(file: str) -> Mapping[str, str]:
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    pairs = (line.partition("=") for line in text.splitlines())
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _linked_sources(folder: Path) -> Iterator[str]:
    """Yield the folders that an environment imports from by a path file: editable installations."""
    for pattern in ("lib/python3*/site-packages/*.pth", "python3*/site-packages/*.pth"):
        for file in folder.glob(pattern):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            yield from (os.path.normpath(line.strip()) for line in lines if line.startswith("/"))
