"""Files to import: found, opened at a fixed size, and hashed.

Knows the file system. Must not know events or stores. What is not read is told apart: a file that
cannot be read is an `UnreadableError`, one that holds nothing to read any other `RecordError`.
"""

import codecs
import hashlib
import io
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from redrive.errors import RecordError, UnreadableError, UsageError

_CHUNK_BYTES = 1024 * 1024
_SKIPPED_FOLDERS = frozenset({".git", ".redrive", "node_modules", "__pycache__", ".venv"})
_STANDARD_INPUT = "-"
_MARKS = (  # the longer mark of 32 bits begins like that of 16
    (codecs.BOM_UTF32_LE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF32_BE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16"),
)


class BoundedFile(io.RawIOBase):
    """The first `size` bytes of a file, as a stream; what is appended meanwhile is not read."""

    def __init__(self, file: io.FileIO, size: int, start: int = 0) -> None:
        super().__init__()
        self._file = file
        self._size = size
        self._position = start
        file.seek(start)

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Fill a buffer with what is left, at most up to `size`."""
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        try:
            data = self._file.read(wanted)
        except OSError as error:
            raise _unreadable(self._file.name, error) from error
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        self._file.seek(self._position)
        return self._position

    def close(self) -> None:
        """Close the file under it."""
        self._file.close()
        super().close()


class FileSource:
    """A regular file as it was when it was first looked at; satisfies `SourceFile`.

    Raises:
        UnreadableError: the file cannot be read, now or later.
        RecordError: it is empty, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            status = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from error
        if not stat.S_ISREG(status.st_mode):
            raise RecordError(f"{path}: not a regular file", where=str(path))
        if status.st_size == 0:
            raise RecordError(f"{path}: the file is empty", where=str(path))
        self.size = status.st_size

    @property
    def path(self) -> str:
        """Where it lies, as the user named it."""
        return str(self._path)

    def head(self, size: int = 65536) -> bytes:
        """Give the first bytes."""
        with self.open() as file:
            return file.read(size)

    def open(self, start: int = 0) -> BinaryIO:
        """Open a fresh stream over the snapshot, from byte `start`."""
        try:
            file = self._path.open("rb", buffering=0)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        raw = BoundedFile(file, self.size, start)
        return io.BufferedReader(raw, _CHUNK_BYTES)

    @cached_property
    def sha256(self) -> str:
        """Digest of the snapshot, hex."""
        return self.hash_prefixes(())[0]

    def hash_prefixes(self, sizes: Iterable[int]) -> tuple[str, dict[int, str]]:
        """Hash the whole snapshot, and its first N bytes for each N asked, in one pass."""
        wanted = sorted({size for size in sizes if 0 < size < self.size}, reverse=True)
        digest, found, position = hashlib.sha256(), {}, 0
        with self.open() as file:
            while data := file.read(
                min(_CHUNK_BYTES, wanted[-1] - position) if wanted else _CHUNK_BYTES
            ):
                digest.update(data)
                position += len(data)
                if wanted and position == wanted[-1]:
                    found[wanted.pop()] = digest.copy().hexdigest()
        self.__dict__["sha256"] = digest.hexdigest()
        return digest.hexdigest(), found


def _unreadable(path: object, error: OSError) -> UnreadableError:
    place = os.fsdecode(path) if isinstance(path, bytes) else str(path)
    return UnreadableError(f"{place}: cannot be read: {error.strerror or error}", where=place)


def check_encoding(source: FileSource) -> None:
    """Refuse a text that a byte order mark says to be UTF-16 or UTF-32.

    Raises:
        UnreadableError: it begins like JSON.
        RecordError: it does not.
    """
    head = source.head(256)
    for mark, name, codec in _MARKS:
        if head.startswith(mark):
            is_json = head.decode(codec, "ignore").lstrip()[:1] in ("{", "[")
            raise (UnreadableError if is_json else RecordError)(
                f"{source.path}: the text is {name}, expected UTF-8",
                where=source.path,
                hint=f"iconv -f {name} -t UTF-8",
            )


@dataclass(slots=True)
class Found:
    """What lies below the paths that the user named.

    Attributes:
        files: (file, whether the user named it) in the order named, folders in name order.
        unreadable: (folder, whether the user named it, why) for each that cannot be listed.
        links: number of links inside folders, to files or folders; none was followed.
        folders_left_out: folders that hold no recordings by their name, such as `.git`.
    """

    files: list[tuple[Path, bool]] = field(default_factory=list)
    unreadable: list[tuple[Path, bool, UnreadableError]] = field(default_factory=list)
    links: int = 0
    folders_left_out: list[Path] = field(default_factory=list)


def find_files(paths: Iterable[str]) -> Found:
    """Find the files to import: those that the user named, and those below folders.

    Raises:
        UsageError: a path does not exist, or is `-`.
    """
    listed = list(paths)
    for name in listed:
        _check_existence(name)
    found = Found()
    for path in map(Path, listed):
        if os.path.isdir(path):  # `Path.is_dir` raises where a folder above it is closed
            _walk(path, found)
        else:
            found.files.append((path, True))
    return found


def _check_existence(path: str) -> None:
    if path == _STANDARD_INPUT:
        raise UsageError(
            "standard input is not read",
            where=path,
            hint="name a file, since what is imported is stored as it lies; ./- is a file named -",
        )
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = ", but a link that leads nowhere" if os.path.islink(path) else ""
        raise UsageError(f"{path}: no such file or folder{what}", where=path) from error
    except OSError:
        return  # it is there, and is reported when it is opened


def _walk(folder: Path, found: Found) -> None:
    def refuse(error: OSError) -> None:
        place = Path(error.filename)
        found.unreadable.append((place, place == folder, _unreadable(place, error)))

    for root, folders, files in os.walk(folder, onerror=refuse):
        walked = []
        for name in sorted(folders):
            path = Path(root, name)
            if os.path.islink(path):
                found.links += 1
            elif name in _SKIPPED_FOLDERS:
                found.folders_left_out.append(path)
            else:
                walked.append(name)
        folders[:] = walked
        for name in sorted(files):
            path = Path(root, name)
            if os.path.islink(path):
                found.links += 1
            else:
                found.files.append((path, False))
