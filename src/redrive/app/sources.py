"""Files to import: found, opened at a fixed size, and hashed.

Knows the file system. Must not know events or stores.
"""

import hashlib
import io
import os
import stat
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from redrive.errors import RecordError, UsageError

_CHUNK_BYTES = 1024 * 1024
_SKIPPED_FOLDERS = frozenset({".git", ".redrive", "node_modules", "__pycache__", ".venv"})


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
        data = self._file.read(wanted)
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
        RecordError: the file cannot be read, is empty, or is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            status = path.stat()
        except OSError as error:
            raise RecordError(f"{path}: {error.strerror}", where=str(path)) from error
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
            raise RecordError(f"{self._path}: {error.strerror}", where=self.path) from error
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


def find_files(paths: Iterable[str]) -> Iterator[tuple[Path, bool]]:
    """Yield (file, whether the user named it), folders walked in name order, links not followed.

    Raises:
        UsageError: a path does not exist.
    """
    listed = [Path(path) for path in paths]
    for path in listed:
        if not os.path.lexists(path):
            raise UsageError(f"{path}: no such file or folder", where=str(path))
    for path in listed:
        if path.is_dir():
            yield from ((file, False) for file in _walk(path))
        else:
            yield path, True


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            path = Path(root, name)
            if not path.is_symlink():
                yield path
