"""Measures what hostile trees take on disk, ends a run that takes too much, removes what it left.

Knows folders of the host that a confined process writes: it may nest them without end, fill them
with links, and change them while they are looked at. No link is followed, and no path is opened but
name by name below the folder. What cannot be measured counts as too much: a folder nested too
deep, or one that its owner made unreadable.

An entry counts as its allocated blocks and `ENTRY_BYTES` for its inode, so that empty files are
bounded too; a file with several names counts once. Files without a name count as long as a process
of the run holds them open; one that is only mapped does not.

Source: DESIGN.md §6 "It is proven"; docs/reliability.md "Sandbox".
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from redrive.errors import ContainmentError
from redrive.sandbox.confinement import lies_in
from redrive.sandbox.processes import list_descendants

ENTRY_BYTES = 1024
MAX_DEPTH = 200
_BLOCK_BYTES = 512
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SHORTEST_PAUSE_S = 0.05
# Of the time of one processor, a quarter at most goes into looking.
_PAUSE_PER_LOOK = 3
_GONE = (FileNotFoundError, NotADirectoryError)
_Names = tuple[str, ...]


class DiskBudget(msgspec.Struct, frozen=True):
    """What some folders may take together, counted from nothing: also what is in them before.

    Args:
        folders: absolute paths of folders or files; one that lies in another counts once.
        most_bytes: more than that is too much.
    """

    folders: tuple[str, ...]
    most_bytes: int


class _TooMuch(Exception):  # noqa: N818 - ends a look early; nobody else sees it
    pass


def exceeds(budget: DiskBudget, pids: Iterable[int] = ()) -> bool:
    """Say whether folders take more than they may, or cannot be measured.

    Args:
        budget: of which folders.
        pids: processes whose open files without a name count as well.

    Cost: one look at each entry, up to the budget divided by `ENTRY_BYTES` of them.
    """
    try:
        _Look(budget).take(pids)
    except (OSError, _TooMuch):
        return True
    return False


class _Look:
    """One look at all folders of a budget."""

    def __init__(self, budget: DiskBudget) -> None:
        self._folders = _outermost(budget.folders)
        self._left_bytes = budget.most_bytes
        self._seen: set[tuple[int, int]] = set()
        self._devices: set[int] = set()

    def take(self, pids: Iterable[int]) -> None:
        for folder in self._folders:
            self._take_tree(folder)
        for pid in pids:
            self._take_nameless(pid)

    def _take_tree(self, path: str) -> None:
        try:
            about = os.lstat(path)
        except _GONE:
            return
        self._devices.add(about.st_dev)
        if not stat.S_ISDIR(about.st_mode):
            self._count(about)
            return
        root = os.open(path, _FOLDER_FLAGS)
        try:
            open_folders: list[_Names] = [()]
            while open_folders:
                open_folders += self._take_folder(root, open_folders.pop())
        finally:
            os.close(root)

    def _take_folder(self, root: int, names: _Names) -> Iterator[_Names]:
        """Count what a folder holds, and give the folders in it."""
        if len(names) > MAX_DEPTH:
            raise _TooMuch
        with _opened(root, names) as folder:
            if folder is None:
                return
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        about = entry.stat(follow_symlinks=False)
                    except _GONE:
                        continue
                    self._count(about)
                    if stat.S_ISDIR(about.st_mode):
                        yield (*names, entry.name)

    def _take_nameless(self, pid: int) -> None:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    about = entry.stat()
                    is_here = about.st_dev in self._devices and not about.st_nlink
                    if is_here and stat.S_ISREG(about.st_mode):
                        self._count(about)

    def _count(self, about: os.stat_result) -> None:
        if about.st_nlink != 1 and not stat.S_ISDIR(about.st_mode):
            key = (about.st_dev, about.st_ino)
            if key in self._seen:
                return
            self._seen.add(key)
        self._left_bytes -= about.st_blocks * _BLOCK_BYTES + ENTRY_BYTES
        if self._left_bytes < 0:
            raise _TooMuch


def _outermost(folders: Sequence[str]) -> list[str]:
    found: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in folders}, key=len):
        if not any(lies_in(folder, outer) for outer in found):
            found.append(folder)
    return found


@contextmanager
def _opened(root: int, names: _Names) -> Iterator[int | None]:
    """Open a folder below another, name by name; `None` if it is not there any more, or a link.

    Two descriptors at a time, however deep it lies.
    """
    at = os.dup(root)
    try:
        for name in names:
            try:
                deeper = os.open(name, _FOLDER_FLAGS, dir_fd=at)
            except _GONE:
                # A link gives `NotADirectoryError` with these flags.
                yield None
                return
            os.close(at)
            at = deeper
        yield at
    finally:
        os.close(at)


class DiskWatch:
    """Looks at budgets again and again, in a thread of its own, until one is exceeded."""

    def __init__(self, budgets: Sequence[DiskBudget], find_root: Callable[[], int | None]) -> None:
        """Take what to watch.

        Args:
            budgets: none of them may be exceeded.
            find_root: gives the process below which the run lies, once it is known.
        """
        self._budgets = tuple(budget for budget in budgets if budget.folders)
        self._find_root = find_root
        self._is_over = threading.Event()
        self._is_full = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="redrive-disk", daemon=True)

    @property
    def is_full(self) -> bool:
        """Say whether a look showed too much."""
        return self._is_full.is_set()

    def __enter__(self) -> "DiskWatch":
        if self._budgets:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._budgets:
            self._thread.join()

    def look(self) -> bool:
        """Look once, now, and say whether it is or was too much."""
        if not self.is_full:
            root = self._find_root() if self._budgets else None
            pids = () if root is None else tuple(list_descendants(root))
            if any(exceeds(budget, pids) for budget in self._budgets):
                self._is_full.set()
        return self.is_full

    def _watch(self) -> None:
        pause_s = 0.0
        while not self._is_over.wait(pause_s):
            started_s = time.monotonic()
            if self.look():
                return
            pause_s = max(_SHORTEST_PAUSE_S, _PAUSE_PER_LOOK * (time.monotonic() - started_s))


def remove_tree(folder: str) -> None:
    """Remove a folder that nobody writes any more, however deep, long or closed its tree is.

    Nested folders are moved up and emptied there, so that neither the stack, nor the number of
    descriptors, nor the length of a path grows with the depth. No link is followed.

    Raises:
        ContainmentError: something in it cannot be removed.
    """
    try:
        if os.path.islink(folder):
            os.unlink(folder)
            return
        os.chmod(folder, stat.S_IRWXU)
        root = os.open(folder, _FOLDER_FLAGS)
        try:
            number = 0
            while found := _names_in(root):
                for name, is_folder in found:
                    if not is_folder:
                        os.unlink(name, dir_fd=root)
                        continue
                    number = _empty_into(root, name, number)
                    os.rmdir(name, dir_fd=root)
        finally:
            os.close(root)
        os.rmdir(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ContainmentError(f"what a run left behind cannot be removed: {error}") from error


def _empty_into(root: int, name: str, number: int) -> int:
    """Empty a folder; the folders in it move up under numbers, of which the last is given."""
    _unlock(root, name)
    inner = os.open(name, _FOLDER_FLAGS, dir_fd=root)
    try:
        for child, is_folder in _names_in(inner):
            if not is_folder:
                os.unlink(child, dir_fd=inner)
                continue
            _unlock(inner, child)
            number += 1
            while _exists(root, str(number)):
                number += 1
            os.rename(child, str(number), src_dir_fd=inner, dst_dir_fd=root)
    finally:
        os.close(inner)
    return number


def _exists(root: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        os.lstat(name, dir_fd=root)
        return True
    return False


def _unlock(parent: int, name: str) -> None:
    # Only its owner can have closed it, and nobody can have put a link in its place.
    if os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)


def _names_in(folder: int) -> list[tuple[str, bool]]:
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
