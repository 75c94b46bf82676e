"""Turns a tool's grants into what its worker sees of the run's workspace.

Knows paths and mounts. A path is only shown if no part of it is a link: a tool that may write could
have put one there, and the host would follow it. What may be written and is not there is made.

Source: DESIGN.md §6; `docs/reliability.md` "symlink, hardlink, rename races".
"""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from redrive.app.agent_folders import is_of_system
from redrive.audit.workflow import Grants
from redrive.errors import UsageError, quote
from redrive.sandbox.confinement import Bind

WHOLE = "."
_PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


class Shown(msgspec.Struct, frozen=True):
    """What a worker sees beside programs.

    Attributes:
        readable: seen read-only.
        writable: seen and changed for real.
        made: relative paths that were made in the workspace so that they can be shown.
    """

    readable: tuple[Bind, ...]
    writable: tuple[Bind, ...]
    made: tuple[str, ...] = ()


def show_grants(grants: Grants, workspace: Path, frame: Path, inside: str) -> Shown:
    """Resolve grants.

    Args:
        grants: of one tool.
        workspace: the run's private copy.
        frame: an empty folder that is made here: what the workspace looks like to a tool that may
            not read all of it.
        inside: absolute path of the workspace in the sandbox; where it is its own, nothing can be
            shown in its place, and `frame` is not made.

    Raises:
        UsageError: a path passes through a link.
    """
    written = _normal(grants.write)
    made = tuple(path for path in written if _make(workspace, path))
    inner = [path for path in _normal(grants.read) if not os.path.isabs(path)]
    # What may be written may be read.
    read = [p for p in inner if not _is_in(p, written) and _is_there(workspace, p)]
    outer = [p for p in grants.read if os.path.isabs(p) and os.path.exists(p)]
    is_whole = inside == str(workspace) or WHOLE in written or WHOLE in read
    if not is_whole:
        frame.mkdir(mode=_PRIVATE_FOLDER)
        for path in (*read, *written):
            _make_like(frame, path, workspace / path)
    around = () if is_whole else (Bind(str(frame), inside),)
    return Shown(
        readable=(
            *around,
            *(Bind(p) for p in dict.fromkeys(outer) if not is_of_system(p)),
            *_binds(workspace, read, inside),
        ),
        writable=tuple(_binds(workspace, written, inside)),
        made=made,
    )


def is_below_written(grants: Grants, others: Iterable[Grants]) -> bool:
    """Say whether another tool may swap a path of these grants for a link while it is shown."""
    own = [
        PurePosixPath(p) for p in _normal((*grants.read, *grants.write)) if not p.startswith("/")
    ]
    written = [PurePosixPath(path) for other in others for path in _normal(other.write)]
    return any(path != above and path.is_relative_to(above) for path in own for above in written)


def _is_in(path: str, folders: Iterable[str]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


def _normal(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(os.path.normpath(path) for path in paths))


def _binds(workspace: Path, paths: Iterable[str], inside: str) -> Iterator[Bind]:
    for path in paths:
        if path == WHOLE:
            yield Bind(str(workspace), inside)
        else:
            yield Bind(str(workspace / path), f"{inside}/{path}")


def _mode_of(workspace: Path, path: str) -> int | None:
    """Give the mode of a path's last part; `None` where it is not there.

    Raises:
        UsageError: a part of it is a link.
    """
    place, mode = workspace, stat.S_IFDIR
    for part in PurePosixPath(path).parts:
        place = place / part
        try:
            mode = place.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(mode):
            raise UsageError(f"the granted path {quote(path)} passes through a link")
    return mode


def _is_there(workspace: Path, path: str) -> bool:
    mode = _mode_of(workspace, path)
    return mode is not None and (stat.S_ISDIR(mode) or stat.S_ISREG(mode))


def _make(workspace: Path, path: str) -> bool:
    """Make what may be written and is not there: a file where its name looks like one's."""
    if _mode_of(workspace, path) is not None:
        return False
    place = workspace / path
    place.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    if "." in place.name.lstrip("."):
        place.touch(mode=_PRIVATE_FILE)
    else:
        place.mkdir(mode=_PRIVATE_FOLDER)
    return True


def _make_like(frame: Path, path: str, original: Path) -> None:
    place = frame / path
    if place.exists():
        return
    place.parent.mkdir(mode=_PRIVATE_FOLDER, parents=True, exist_ok=True)
    if original.is_dir():
        place.mkdir(mode=_PRIVATE_FOLDER)
    else:
        place.touch(mode=_PRIVATE_FILE)
