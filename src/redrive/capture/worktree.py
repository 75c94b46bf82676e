"""What git says of the agent's code: the commit, and a digest of what differs from it.

Knows git's commands. Must not know what is done with the answer. Names of files stay out of it:
what is not committed may be named after a secret.

Source: DESIGN.md §3 "Provenance manifest".
"""

import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

_TIMEOUT_S: Final = 10.0
_MAX_DIFF_BYTES: Final = 64 * 1024 * 1024
_MAX_NAMES_BYTES: Final = 1024 * 1024
_MAX_FILES: Final = 1000
_MAX_FILE_BYTES: Final = 32 * 1024 * 1024
_CHUNK_BYTES: Final = 1024 * 1024

# The repository's own settings may start programs and change the text of a difference.
_GIT: Final = (
    "git", "--no-optional-locks",
    "-c", "core.fsmonitor=false",
    "-c", f"core.hooksPath={os.devnull}",
)  # fmt: skip
_DIFF: Final = (
    "diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--full-index",
    "--binary", "--unified=3", "--diff-algorithm=myers", "--src-prefix=a/", "--dst-prefix=b/",
    "--submodule=short", "HEAD",
)  # fmt: skip
_UNTRACKED: Final = ("ls-files", "--others", "--exclude-standard", "-z")


class _GitError(Exception):
    """Git is not there, refuses, or takes too long; the text says which, in our own words."""


def describe_worktree(root: Path) -> dict[str, Any]:
    """Describe the state of the repository that a folder lies in.

    Returns:
        `state`: `clean`, `dirty`, `no_commit`, `no_repository`, `no_git` or `failed`. With a
        commit: `commit`; where dirty: `dirty_digest`, one sha256 of the difference from the commit
        and of the untracked files' contents; `cut` names what was too much to be hashed whole.

    Cost: at most 64 MiB of difference and 32 MiB in 1,000 untracked files, 10 s per command.
    """
    try:
        return _describe(root)
    except _GitError as error:
        return {"state": str(error)}


def _describe(root: Path) -> dict[str, Any]:
    top = Path(os.fsdecode(_ask(root, "rev-parse", "--show-toplevel").rstrip(b"\n")))
    try:
        commit = _ask(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    except _GitError:
        return {"state": "no_commit"}
    cut: list[str] = []
    whole = hashlib.sha256()
    is_dirty = _hash_difference(top, whole, cut)
    is_dirty |= _hash_untracked(top, whole, cut)
    found: dict[str, Any] = {"state": "dirty" if is_dirty else "clean", "commit": commit}
    if is_dirty:
        found["dirty_digest"] = whole.hexdigest()
    return found | ({"cut": cut} if cut else {})


def _hash_difference(top: Path, whole: "hashlib._Hash", cut: list[str]) -> bool:
    n_bytes = 0
    with _running(top, *_DIFF) as out:
        while chunk := out.read(min(_CHUNK_BYTES, _MAX_DIFF_BYTES - n_bytes)):
            whole.update(chunk)
            n_bytes += len(chunk)
        if n_bytes == _MAX_DIFF_BYTES and out.read(1):
            cut.append("difference")
    return n_bytes > 0


def _hash_untracked(top: Path, whole: "hashlib._Hash", cut: list[str]) -> bool:
    names = _ask(top, *_UNTRACKED).split(b"\0")
    if names[-1]:
        # Git ends each name with a NUL: the last one was cut.
        names[-1] = b""
        cut.append("untracked files")
    digests: list[bytes] = []
    n_bytes = 0
    for name in filter(None, names):
        path = top / os.fsdecode(name)
        size = path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
        if len(digests) >= _MAX_FILES or n_bytes + size > _MAX_FILE_BYTES:
            cut.append("untracked files")
            break
        n_bytes += size
        digests.append(hashlib.sha256(_read_file(path)).digest())
    for digest in sorted(digests):
        whole.update(digest)
    return bool(digests)


def _read_file(path: Path) -> bytes:
    """Read a file; of a link, where it points; of what cannot be read, nothing."""
    try:
        if path.is_symlink():
            return os.fsencode(path.readlink())
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def _ask(folder: Path, *args: str) -> bytes:
    with _running(folder, *args) as out:
        return out.read(_MAX_NAMES_BYTES)


@contextmanager
def _running(folder: Path, *args: str) -> Iterator[IO[bytes]]:
    """Give the output of a git command; it is ended where it is not read to its end, or late."""
    command = [*_GIT, *args]
    environment = {**os.environ, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise _GitError("no_git" if isinstance(error, FileNotFoundError) else "failed") from error
    late = threading.Timer(_TIMEOUT_S, process.kill)
    late.start()
    try:
        with process:
            out = process.stdout
            if out is None or process.stderr is None:
                raise _GitError("failed")
            yield out
            is_whole = not out.read(1)
            if not is_whole:
                process.kill()
            said = process.stderr.read(_CHUNK_BYTES)
        if is_whole and process.returncode != 0:
            missing = b"not a git repository" in said
            raise _GitError("no_repository" if missing else "failed")
    finally:
        late.cancel()
