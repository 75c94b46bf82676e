"""What a run left in its workspace: collected without following a link.

Knows trees of files by descriptors. Everything in the folder was written by a run and is hostile: a
link may point at the host's files, a pipe would block, a name may be swapped. Nothing of it is run,
imported or followed; what is no file, folder or link is named and not collected.

Source: `docs/reliability.md` "a symlink planted in the work folder", "planted git hooks".
"""

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterator, Set
from contextlib import suppress
from pathlib import Path

import msgspec

from redrive import canonical
from redrive.app.trial_tree import FILE, FOLDER, LINK, read_tree
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import OutputFile, Workspace

MAX_ARCHIVE_BYTES = 64 * 1024 * 1024
MAX_FILES = 20_000
MAX_DEPTH = 64
REMOVED, OTHER = "removed", "other"
_CHUNK_BYTES = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXECUTABLE, _PLAIN = 0o755, 0o644


class Collected(msgspec.Struct, frozen=True):
    """What was found.

    Attributes:
        files: what was added, changed or removed, by path.
        archive: tar of the whole workspace as it is now, the same for the same content; `None`
            where nothing changed.
        n_files: in the archive.
        notes: what was left out, and why.
        is_cut: there is more than may be looked at: of what is not in `files` nothing is known.
    """

    files: tuple[OutputFile, ...] = ()
    archive: bytes | None = None
    n_files: int = 0
    notes: tuple[str, ...] = ()
    is_cut: bool = False


def collect_workspace(
    workspace: Path, before: Workspace | None, made: Set[str], limits: RunLimits
) -> Collected:
    """Collect what a run left, after its last process has ended.

    Args:
        workspace: the run's copy.
        before: what it was made of: as many files and folders do not count, nor so deep ones.
        made: relative paths that were made empty, so that a tool could be shown them.
        limits: of the run.
    """
    known = _read_before(before)
    collector = _Collector(
        min(MAX_ARCHIVE_BYTES, limits.disk_bytes),
        most_files=MAX_FILES + len(known),
        most_depth=max([MAX_DEPTH, *(path.count("/") for path in known)]),
    )
    root = os.open(workspace, _FOLDER_FLAGS)
    try:
        collector.walk(root, "", 0)
    finally:
        os.close(root)
    found = {path: item for path, item in collector.found.items() if not _is_untouched(item, made)}
    changed = [item for path, (item, mode) in found.items() if known.get(path) != (item, mode)]
    if not collector.is_cut:
        changed += [OutputFile(path, REMOVED) for path in known if path not in collector.found]
    if not changed:
        return Collected(notes=tuple(collector.notes), is_cut=collector.is_cut)
    return Collected(
        files=tuple(map(_told, sorted(changed, key=lambda item: os.fsencode(item.path)))),
        archive=collector.archive(found),
        n_files=sum(item.kind == FILE for item, _ in found.values()),
        notes=tuple(collector.notes),
        is_cut=collector.is_cut,
    )


_Known = tuple[OutputFile, bool]
"""A thing in a workspace, and whether its owner may execute it."""


def _is_untouched(item: _Known, made: Set[str]) -> bool:
    file = item[0]
    return file.path in made and (file.kind == FOLDER or not file.size_bytes)


def _told(item: OutputFile) -> OutputFile:
    """Write names as texts: other bytes than UTF-8 as escapes, two names never as one."""
    target = None if item.target is None else canonical.safe_text(item.target)
    return msgspec.structs.replace(item, path=canonical.safe_text(item.path), target=target)


def _read_before(before: Workspace | None) -> dict[str, _Known]:
    known: dict[str, _Known] = {}
    if before is None:
        return known
    for entry in read_tree(before.kind, before.path, before.commit):
        for above in _folders_above(entry.path):
            known.setdefault(above, (OutputFile(above, FOLDER), False))
        digest, size = hashlib.sha256(), 0
        for chunk in entry.open():
            digest.update(chunk)
            size += len(chunk)
        if entry.kind == FILE:
            item = OutputFile(entry.path, FILE, size, digest.hexdigest())
        else:
            item = OutputFile(entry.path, entry.kind, target=entry.target or None)
        known[entry.path] = (item, entry.is_executable)
    return known


def _folders_above(path: str) -> Iterator[str]:
    above = path.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


class _Collector:
    """Walks a folder by descriptors, and keeps what fits."""

    def __init__(self, most_bytes: int, most_files: int, most_depth: int) -> None:
        self.found: dict[str, _Known] = {}
        self.notes: dict[str, None] = {}
        self._kept: dict[str, bytes] = {}
        self.is_cut = False
        self._left_bytes = most_bytes
        self._most_files = most_files
        self._most_depth = most_depth

    def walk(self, folder: int, prefix: str, depth: int) -> None:
        """Take what a folder holds."""
        if depth > self._most_depth:
            self._cut(f"folders below {self._most_depth} others are not collected")
            return
        for name in sorted(os.listdir(folder)):
            if len(self.found) >= self._most_files:
                self._cut(f"more than {self._most_files} files: the others are not collected")
                return
            with suppress(FileNotFoundError):
                self._take(folder, name, prefix + name, depth)

    def _cut(self, note: str) -> None:
        self.is_cut = True
        self.notes[note] = None

    def _take(self, folder: int, name: str, path: str, depth: int) -> None:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            self._add(OutputFile(path, LINK, target=os.readlink(name, dir_fd=folder)))
        elif stat.S_ISDIR(mode):
            self._add(OutputFile(path, FOLDER))
            with _readable(folder, name, mode, _FOLDER_FLAGS) as below:
                self.walk(below, path + "/", depth + 1)
        elif stat.S_ISREG(mode):
            with _readable(folder, name, mode, _FILE_FLAGS) as file:
                self._read(file, path)
        else:
            self._add(OutputFile(path, OTHER))

    def _add(self, item: OutputFile, *, is_executable: bool = False) -> None:
        self.found[item.path] = (item, is_executable)

    def _read(self, descriptor: int, path: str) -> None:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self._add(OutputFile(path, OTHER))
            return
        digest, size, parts = hashlib.sha256(), 0, []
        while chunk := os.read(descriptor, _CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            if size <= self._left_bytes:
                parts.append(chunk)
        if size <= self._left_bytes:
            self._left_bytes -= size
            self._kept[path] = b"".join(parts)
        else:
            self.notes["some files are too large to be kept: their digests are"] = None
        is_executable = bool(status.st_mode & stat.S_IXUSR)
        self._add(OutputFile(path, FILE, size, digest.hexdigest()), is_executable=is_executable)

    def archive(self, found: dict[str, _Known]) -> bytes:
        """Write what was kept as tar: no owner, no time, no bit that gives anyone rights."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(found, key=os.fsencode):
                item, is_executable = found[path]
                info = tarfile.TarInfo(path)
                info.mode = _EXECUTABLE if is_executable or item.kind == FOLDER else _PLAIN
                if item.kind == FOLDER:
                    info.type = tarfile.DIRTYPE
                    archive.addfile(info)
                elif item.kind == LINK:
                    info.type, info.linkname = tarfile.SYMTYPE, item.target or ""
                    archive.addfile(info)
                elif path in self._kept:
                    info.size = item.size_bytes
                    archive.addfile(info, io.BytesIO(self._kept[path]))
        return data.getvalue()


class _readable:  # noqa: N801 - reads as a function
    """Opens a name below a folder, and gives its owner the right to read it where it has none."""

    def __init__(self, folder: int, name: str, mode: int, flags: int) -> None:
        try:
            self._descriptor = os.open(name, flags, dir_fd=folder)
        except PermissionError:
            # Of a path that is no link, seen just now; no process of the run is left to swap it.
            os.chmod(name, stat.S_IMODE(mode) & 0o777 | stat.S_IRWXU, dir_fd=folder)
            self._descriptor = os.open(name, flags, dir_fd=folder)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
