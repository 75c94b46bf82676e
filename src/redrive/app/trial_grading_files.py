"""Makes folders of collected workspaces, so that graders can look at them.

Knows tar archives and files. An archive is hostile: what is made lies in its folder, links are made
as they are and never followed, and nothing else than files, folders and links is made.
"""

import os
import shutil
import stat
import tarfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO

from redrive import canonical
from redrive.errors import RecordError

_PRIVATE = 0o700
_MAX_ENTRIES = 200_000


def unpack(archive: BinaryIO, folder: Path) -> None:
    """Unpack a tar archive into a new folder.

    Args:
        archive: read as a stream.
        folder: made here, for its owner alone.

    Raises:
        RecordError: it is no archive, or holds too much.
    """
    folder.mkdir(mode=_PRIVATE, parents=True)
    try:
        with tarfile.open(fileobj=archive, mode="r|*") as members:
            for number, member in enumerate(members):
                if number >= _MAX_ENTRIES:
                    raise RecordError(f"a workspace of more than {_MAX_ENTRIES} entries")
                _make(members, member, folder)
    except tarfile.TarError as error:
        raise RecordError(f"a collected workspace is no archive: {error}") from error


def _make(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    parts = [part for part in member.name.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in member.name:
        return
    place = folder.joinpath(*parts)
    if not _make_above(folder, parts[:-1]) or os.path.lexists(place):
        return
    if member.isdir():
        place.mkdir(mode=_PRIVATE)
    elif member.issym():
        place.symlink_to(member.linkname)
    elif member.isreg():
        source = members.extractfile(member)
        mode = 0o700 if member.mode & stat.S_IXUSR else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(place, flags, mode), "wb") as file:
            if source is not None:
                shutil.copyfileobj(source, file)


def _make_above(folder: Path, parts: list[str]) -> bool:
    """Make the folders above an entry; false where one of them is something else."""
    for part in parts:
        folder /= part
        if not os.path.lexists(folder):
            folder.mkdir(mode=_PRIVATE)
        elif folder.is_symlink() or not folder.is_dir():
            return False
    return True


def overlay(source: Path, folder: Path) -> None:
    """Put the files of a folder over another one; what stands in their way there is removed.

    Links in `source` are copied as links; a link in `folder` is never written through.
    """
    for path, parts in _walk(source):
        _clear(folder, parts, is_folder=path.is_dir() and not path.is_symlink())
        place = folder.joinpath(*parts)
        if path.is_symlink():
            place.symlink_to(path.readlink())
        elif path.is_dir():
            place.mkdir(mode=_PRIVATE, exist_ok=True)
        elif path.is_file():
            shutil.copyfile(path, place, follow_symlinks=False)
            place.chmod(0o700 if path.stat().st_mode & stat.S_IXUSR else 0o600)


def restore(source: Path, folder: Path, removed: Collection[str]) -> None:
    """Copy what a folder lacks from another one, but for paths that were removed on purpose.

    Args:
        source: what is copied.
        folder: where it is missing.
        removed: as an episode's `files` write paths.
    """
    for path, parts in _walk(source):
        place = folder.joinpath(*parts)
        is_gone = canonical.safe_text("/".join(parts)) in removed
        if is_gone or os.path.lexists(place) or not _make_above(folder, list(parts[:-1])):
            continue
        if path.is_symlink():
            place.symlink_to(path.readlink())
        elif path.is_file():
            shutil.copy(path, place)
        else:
            place.mkdir(mode=_PRIVATE)


def _walk(source: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Yield what lies in a folder, outer before inner, with its parts below it."""
    for path in sorted(source.iterdir()):
        yield path, (path.name,)
        if path.is_dir() and not path.is_symlink():
            for below, parts in _walk(path):
                yield below, (path.name, *parts)


def _clear(folder: Path, parts: tuple[str, ...], *, is_folder: bool) -> None:
    """Remove what is in the way of a path: a link or file above it, anything at its place."""
    place = folder
    for number, part in enumerate(parts):
        place /= part
        is_real = place.is_dir() and not place.is_symlink()
        is_last = number == len(parts) - 1
        if not os.path.lexists(place) or (is_real and (is_folder or not is_last)):
            continue
        if is_real:
            shutil.rmtree(place)
        else:
            place.unlink()


def list_files(folder: Path) -> set[str]:
    """List the files in a folder, as an episode's `files` write paths."""
    return {canonical.safe_text("/".join(parts)) for path, parts in _walk(folder) if path.is_file()}


def size_bytes(folder: Path) -> int:
    """Give the size of all files in a folder; links are not followed."""
    return sum(
        Path(root, name).lstat().st_size for root, _, names in os.walk(folder) for name in names
    )
