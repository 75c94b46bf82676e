"""The folder a run works in: its digest, and a private copy for each run.

Knows trees of files. Must not know runs or sandboxes. What a workspace holds is data: nothing of it
is run, imported or followed here.

Source: DESIGN.md §6 "workspace (folder, archive or git commit, digest recorded)".
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from redrive import canonical
from redrive.app.trial_tree import CAPS, FILE, FOLDER, LINK, TreeCaps, TreeEntry, read_tree
from redrive.errors import UsageError, quote

_PRIVATE, _EXECUTABLE, _PLAIN = 0o700, 0o700, 0o600


def digest_workspace(path: str, kind: str, commit: str | None = None) -> str:
    """Give the digest of a workspace: sha256 in hex, equal for equal trees of whatever kind.

    One line for each file, link and empty folder, sorted by path: path, kind, whether the owner may
    execute it, the sha256 of its content or the target of the link.

    Args:
        path: of the folder, the archive or the repository.
        kind: `folder`, `archive` or `git`.
        commit: of a git workspace.

    Raises:
        UsageError: see `trial_tree.read_tree`.
    """
    digest = _TreeDigest()
    for entry in read_tree(kind, path, commit):
        content = hashlib.sha256()
        for chunk in entry.open():
            content.update(chunk)
        digest.add(entry, content.hexdigest())
    return digest.hexdigest()


class _TreeDigest:
    """Sums up entries in any order."""

    def __init__(self) -> None:
        self._lines: dict[str, bytes] = {}
        self._folders: set[str] = set()

    def add(self, entry: TreeEntry, content: str) -> None:
        """Take an entry; `content` is the sha256 of a file's content."""
        self._folders.update(_folders_above(entry.path))
        about = {FILE: content, LINK: entry.target, FOLDER: ""}[entry.kind]
        line = [entry.path, entry.kind, entry.is_executable, about]
        self._lines[entry.path] = canonical.encode(line) + b"\n"

    def hexdigest(self) -> str:
        """Sum up; a folder that holds something is told by what it holds."""
        total = hashlib.sha256()
        for path in sorted(self._lines, key=os.fsencode):
            if path not in self._folders:
                total.update(self._lines[path])
        return total.hexdigest()


def _folders_above(path: str) -> Iterator[str]:
    above = path.rpartition("/")[0]
    while above:
        yield above
        above = above.rpartition("/")[0]


def copy_workspace(
    target: Path, path: str, kind: str, commit: str | None = None, caps: TreeCaps = CAPS
) -> str:
    """Copy a workspace into a new folder that nobody else may enter; give its digest.

    Links are made as they are and never followed; files are plain or executable for their owner,
    and nothing more. What was written before an error stays: whoever made the folder around it
    removes it.

    Args:
        target: made here; its parent is there, and private.
        path: see `digest_workspace`.
        kind: see `digest_workspace`.
        commit: see `digest_workspace`.
        caps: what is more is refused.

    Raises:
        UsageError: see `trial_tree.read_tree`; or it cannot be written.
    """
    digest = _TreeDigest()
    try:
        target.mkdir(mode=_PRIVATE)
        for entry in read_tree(kind, path, commit, caps):
            # Nothing above it is a link: `read_tree` yields nothing below what is no folder.
            place = target / entry.path
            place.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            digest.add(entry, _write_entry(entry, place))
    except OSError as error:
        raise UsageError(f"the workspace {quote(path)} cannot be copied: {error}") from error
    return digest.hexdigest()


def _write_entry(entry: TreeEntry, place: Path) -> str:
    if entry.kind == FOLDER:
        with suppress(FileExistsError):
            place.mkdir(mode=_PRIVATE)
        return ""
    if entry.kind == LINK:
        place.symlink_to(entry.target)
        return ""
    content = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = _EXECUTABLE if entry.is_executable else _PLAIN
    with os.fdopen(os.open(place, flags, mode), "wb") as file:
        for chunk in entry.open():
            content.update(chunk)
            file.write(chunk)
    return content.hexdigest()
