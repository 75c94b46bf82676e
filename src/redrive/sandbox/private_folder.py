"""Folders of this machine that one run has to itself, and that are gone when it has ended.

Knows names and locks. A process that is killed leaves its folders behind: the next one that makes
a folder of the same kind removes them, and no other's.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from redrive.errors import ContainmentError
from redrive.sandbox.disk import remove_tree

LEFT_S = 60.0
"""A folder without a lock is left behind once it is older: a younger one may not be locked yet."""


@contextmanager
def open_private_folder(prefix: str) -> Iterator[Path]:
    """Make a folder of mode 0700 for temporary files, and remove it with all that is in it.

    Args:
        prefix: of its name, the same for all folders that are swept alike.

    Raises:
        ContainmentError: it cannot be removed.
    """
    parent = os.path.realpath(tempfile.gettempdir())
    sweep(parent, prefix)
    folder = tempfile.mkdtemp(prefix=prefix, dir=parent)
    try:
        # Held while it is in use: it tells `sweep` that this is not left behind.
        with locked(folder):
            yield Path(folder)
    finally:
        remove_tree(folder)


@contextmanager
def locked(folder: str) -> Iterator[None]:
    """Hold a folder for as long as this lasts.

    Raises:
        OSError: another process holds it, or it is none.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def sweep(parent: str, prefix: str, left_s: float = LEFT_S) -> None:
    """Remove the folders of runs whose redrive was killed before it could."""
    for folder in Path(parent).glob(f"{prefix}*"):
        with suppress(OSError, ContainmentError):
            about = folder.lstat()
            if about.st_uid == os.geteuid() and time.time() - about.st_ctime > left_s:
                with locked(str(folder)):
                    remove_tree(str(folder))
