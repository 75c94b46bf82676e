"""Reads what a task starts from, as entries: a folder, an archive, or the tree of a git commit.

Knows three ways in and what is refused of each. Nothing is written, no link is followed, and
nothing that is read is run: of git only objects are read, without hooks, filters or fetching.

Source: DESIGN.md §6; `docs/reliability.md` "Hostile input".
"""

import bz2
import gzip
import lzma
import os
import stat
import subprocess
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, Any

import msgspec

from redrive.errors import UsageError, quote

MIB = 1024 * 1024
FILE, FOLDER, LINK = "file", "folder", "link"
STORE_FOLDER = ".redrive"
_CHUNK_BYTES = 256 * 1024
_MAX_READ_BYTES = 16 * MIB
_GIT_TIMEOUT_S = 120.0
_GIT_LINK, _GIT_MODULE, _GIT_EXECUTABLE = "120000", "160000", "100755"
_GIT_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
# The last four: what is encrypted, compressed in an unknown way, or links to nothing.
_UNREADABLE = (
    *(OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(ValueError, NotImplementedError, RuntimeError, LookupError),
)
_COMPRESSED: tuple[tuple[bytes, Callable[..., Any]], ...] = (
    (b"\x1f\x8b", gzip.open),
    (b"BZh", bz2.open),
    (b"\xfd7zXZ\0", lzma.open),
)


class TreeCaps(msgspec.Struct, frozen=True):
    """How large a workspace may be.

    Attributes:
        n_entries: files, folders and links.
        total_bytes: of all files.
        ratio: how many times its own size an archive may unpack to, beyond `free_bytes`.
        free_bytes: what an archive may unpack to, however small it is.
    """

    n_entries: int = 200_000
    total_bytes: int = 4096 * MIB
    ratio: int = 200
    free_bytes: int = 64 * MIB


CAPS = TreeCaps()


class TreeEntry(msgspec.Struct, frozen=True):
    """One thing in a workspace.

    Attributes:
        path: relative, `/` between names, no `.` or `..`; other bytes than UTF-8 as lone
            surrogates.
        kind: `file`, `folder` or `link`.
        is_executable: of a file.
        target: of a link, as text.
        open: gives a file's content in pieces; before the next entry is asked for, at most once.
    """

    path: str
    kind: str
    is_executable: bool = False
    target: str = ""
    open: Callable[[], Iterator[bytes]] = lambda: iter(())


def read_tree(
    kind: str, path: str, commit: str | None = None, caps: TreeCaps = CAPS
) -> Iterator[TreeEntry]:
    """Read a workspace, each path once; a folder comes before what it holds, if it comes at all.

    Pipes, sockets, devices and the folder `.redrive` of the root are left out.

    Args:
        kind: `folder`, `archive` or `git`.
        path: of the folder, the archive (tar, plain or compressed, or zip) or the repository.
        commit: of a git workspace.
        caps: what is more is refused.

    Raises:
        UsageError: it is not there or cannot be read; it is larger than allowed; an archive that
            leads outside, names a path twice, or holds what no archive of files does.
    """
    if kind == "folder":
        entries = _folder_entries(path)
    elif kind == "archive":
        entries = _archive_entries(path)
    elif kind == "git":
        entries = _git_entries(path, commit or "")
    else:
        raise UsageError(f"a workspace is a folder, an archive or git, not {quote(kind)}")
    return _checked(entries, path, kind, caps)


def _checked(
    entries: Iterator[TreeEntry], path: str, kind: str, caps: TreeCaps
) -> Iterator[TreeEntry]:
    """Hold the caps, and that no entry lies outside or below a file."""
    seen: dict[str, str] = {}
    counter = _Counter(path, _most_bytes(kind, path, caps))
    with _unreadable(path):
        for entry in entries:
            if entry.path.split("/", 1)[0] == STORE_FOLDER:
                continue
            if _is_known(entry, seen, path):
                continue
            if len(seen) > caps.n_entries:
                raise UsageError(f"{path}: more than {caps.n_entries} files and folders")
            yield msgspec.structs.replace(entry, open=partial(counter.read, entry))


@contextmanager
def _unreadable(path: str) -> Iterator[None]:
    try:
        yield
    except _UNREADABLE as error:
        raise UsageError(f"the workspace {quote(path)} cannot be read: {error}") from error


def _is_known(entry: TreeEntry, seen: dict[str, str], path: str) -> bool:
    """Note an entry and the folders above it; true for a folder that was noted already.

    Raises:
        UsageError: it comes twice, or lies below what is no folder.
    """
    known = seen.get(entry.path)
    if known is not None and not known == entry.kind == FOLDER:
        raise UsageError(f"{path}: {quote(entry.path)} is there twice")
    above = entry.path.rpartition("/")[0]
    while above and seen.get(above) is None:
        seen[above] = FOLDER
        above = above.rpartition("/")[0]
    if above and seen[above] != FOLDER:
        raise UsageError(f"{path}: {quote(entry.path)} lies below what is no folder")
    seen[entry.path] = entry.kind
    return known is not None


def _most_bytes(kind: str, path: str, caps: TreeCaps) -> int:
    if kind != "archive":
        return caps.total_bytes
    try:
        size_bytes = os.stat(path).st_size
    except OSError:
        return caps.total_bytes  # said where it is opened
    return min(caps.total_bytes, max(caps.free_bytes, size_bytes * caps.ratio))


class _Counter:
    """Counts what is read, and refuses what is too much before it is handed on."""

    def __init__(self, path: str, most_bytes: int) -> None:
        self._path = path
        self._most_bytes = most_bytes
        self._n_bytes = 0

    def read(self, entry: TreeEntry) -> Iterator[bytes]:
        with _unreadable(self._path):
            for chunk in entry.open():
                self._n_bytes += len(chunk)
                if self._n_bytes > self._most_bytes:
                    raise UsageError(
                        f"{self._path}: more than {self._most_bytes // MIB} MiB of files",
                        hint="a workspace holds what a task needs, and no more",
                    )
                yield chunk


# --- folders ----------------------------------------------------------------------------------


def _folder_entries(path: str) -> Iterator[TreeEntry]:
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield from _entries_below(root, "")
    finally:
        os.close(root)


def _entries_below(folder: int, prefix: str) -> Iterator[TreeEntry]:
    """Walk by descriptors, so that a name that is swapped for a link meanwhile leads nowhere."""
    for name in sorted(os.listdir(folder)):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        path = prefix + name
        if stat.S_ISLNK(status.st_mode):
            yield TreeEntry(path, LINK, target=os.readlink(name, dir_fd=folder))
        elif stat.S_ISREG(status.st_mode):
            is_executable = bool(status.st_mode & stat.S_IXUSR)
            opener = partial(_read_file, folder, name)
            yield TreeEntry(path, FILE, is_executable, open=opener)
        elif stat.S_ISDIR(status.st_mode):
            yield TreeEntry(path, FOLDER)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=folder)
            try:
                yield from _entries_below(below, path + "/")
            finally:
                os.close(below)


def _read_file(folder: int, name: str) -> Iterator[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"{quote(name)} is no file any more")
        yield from _chunks(file)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk


# --- archives ---------------------------------------------------------------------------------


def _archive_entries(path: str) -> Iterator[TreeEntry]:
    with open(path, "rb") as file:
        is_zip = zipfile.is_zipfile(file)
    yield from (_zip_entries if is_zip else _tar_entries)(path)


def _tar_entries(path: str) -> Iterator[TreeEntry]:
    with _unpacked(path) as file, tarfile.open(path, "r:", fileobj=file) as archive:
        for member in archive:
            name = _inside(member.name, path)
            if not name:
                continue
            if member.isdir():
                yield TreeEntry(name, FOLDER)
            elif member.issym():
                yield TreeEntry(name, LINK, target=_link_target(name, member.linkname, path))
            elif member.isreg() or member.islnk():
                if member.islnk():
                    _inside(member.linkname, path)
                opener = partial(_read_member, archive, member)
                yield TreeEntry(name, FILE, bool(member.mode & stat.S_IXUSR), open=opener)
            else:
                raise UsageError(f"{path}: {quote(name)} is neither file, folder nor link")


class _Stream:
    """A file of which no piece is too large: a header that claims gigabytes is not read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _MAX_READ_BYTES:
            raise UsageError(f"an archive's header is {size} bytes long")
        return self._read(size)


@contextmanager
def _unpacked(path: str) -> Iterator[Any]:
    with open(path, "rb") as file:
        magic = file.read(8)
        file.seek(0)
        opener = next((one for start, one in _COMPRESSED if magic.startswith(start)), None)
        if opener is None:
            yield _Stream(file)
            return
        with opener(file) as unpacked:
            yield _Stream(unpacked)


def _read_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    found = archive.getmember(member.linkname) if member.islnk() else member
    if not found.isreg():
        raise UsageError(f"{quote(member.name)} links to what is no file")
    with archive.extractfile(found) as file:  # type: ignore[union-attr] # a regular member has one
        yield from _chunks(file)


def _zip_entries(path: str) -> Iterator[TreeEntry]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = _inside(member.filename, path)
            mode = member.external_attr >> 16
            if not name:
                continue
            if member.is_dir():
                yield TreeEntry(name, FOLDER)
            elif stat.S_ISLNK(mode):
                target = os.fsdecode(b"".join(_read_zipped(archive, member, 4096)))
                yield TreeEntry(name, LINK, target=_link_target(name, target, path))
            else:
                opener = partial(_read_zipped, archive, member)
                yield TreeEntry(name, FILE, bool(mode & stat.S_IXUSR), open=opener)


def _read_zipped(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, most_bytes: int | None = None
) -> Iterator[bytes]:
    with archive.open(member) as file:
        yield from [file.read(most_bytes)] if most_bytes else _chunks(file)


def _inside(name: str, path: str) -> str:
    """Give a member's path below the root; empty for the root itself.

    Raises:
        UsageError: it is absolute, or leads upwards.
    """
    words = [word for word in name.split("/") if word not in ("", ".")]
    if name.startswith("/") or ".." in words or "\0" in name or "\\" in name:
        raise UsageError(
            f"{path}: {quote(name)} leads outside",
            hint="an archive of a workspace holds relative paths without .. alone",
        )
    return "/".join(words)


def _link_target(name: str, target: str, path: str) -> str:
    """Give a link's target.

    Raises:
        UsageError: it leads outside of the archive.
    """
    above = name.split("/")[:-1]
    depth = len(above)
    for word in target.split("/"):
        depth += {"..": -1, "": 0, ".": 0}.get(word, 1)
        if depth < 0:
            break
    if not target or target.startswith("/") or depth < 0:
        raise UsageError(f"{path}: the link {quote(name)} leads outside, to {quote(target)}")
    return target


# --- git --------------------------------------------------------------------------------------


def _git_entries(path: str, commit: str) -> Iterator[TreeEntry]:
    """Read the objects of a commit; a sub-module is an empty folder, as in a plain checkout."""
    if not commit or commit.startswith("-"):
        raise UsageError(f"the git workspace {quote(path)} names no commit: {quote(commit)}")
    listed = _git(path, "ls-tree", "-r", "-z", "--full-tree", f"{commit}^{{commit}}")
    with _git_objects(path) as read:
        for line in listed.split(b"\0")[:-1]:
            about, _, raw = line.partition(b"\t")
            mode, _, digest = about.decode("ascii").split(" ")
            name = _inside(os.fsdecode(raw), path)
            if mode == _GIT_MODULE:
                yield TreeEntry(name, FOLDER)
            elif mode == _GIT_LINK:
                yield TreeEntry(name, LINK, target=os.fsdecode(b"".join(read(digest))))
            else:
                yield TreeEntry(name, FILE, mode == _GIT_EXECUTABLE, open=partial(read, digest))


def _git_words(path: str) -> tuple[str, ...]:
    off = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never")
    return ("git", "-C", path, *(word for one in off for word in ("-c", one)))


def _git_variables() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, **_GIT_ENVIRONMENT}


def _git(path: str, *words: str) -> bytes:
    try:
        done = subprocess.run(
            (*_git_words(path), *words),
            env=_git_variables(),
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git cannot read {quote(path)}: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise UsageError(f"git cannot read {quote(path)}: {said[:300]}")
    return done.stdout


@contextmanager
def _git_objects(path: str) -> Iterator[Callable[[str], Iterator[bytes]]]:
    """Give what reads an object's bytes by its id, through one process."""
    process = subprocess.Popen(
        (*_git_words(path), "cat-file", "--batch"),
        env=_git_variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None  # noqa: S101 - it was asked for
    assert stdout is not None  # noqa: S101 - it was asked for

    def read(digest: str) -> Iterator[bytes]:
        stdin.write(f"{digest}\n".encode())
        stdin.flush()
        head = stdout.readline().split()
        if len(head) != 3:
            raise UsageError(f"git {quote(path)} lacks the object {digest}")
        left = int(head[2])
        while left:
            chunk = stdout.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise UsageError(f"git {quote(path)} gave half of the object {digest}")
            left -= len(chunk)
            yield chunk
        stdout.read(1)

    try:
        yield read
    finally:
        process.kill()
        process.wait()
        stdin.close()
        stdout.close()
