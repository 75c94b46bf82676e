"""A control group of its own for a run, in which the kernel holds the number of its processes.

RLIMIT_NPROC does not hold the superuser of the machine, also not inside a user namespace; the pids
controller holds everyone. Knows the control groups of Linux, versions 1 and 2. Does not know what
is run in one.

Source: cgroups(7); the kernel's "Process Number Controller" and "Control Group v2".
"""

import fcntl
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import msgspec

from redrive.errors import ContainmentError

_PREFIX = "redrive-run-"
_END_TIMEOUT_S = 5.0
_TICK_S = 0.002
_JOIN_SCRIPT = 'echo $$ > "$1" && shift && exec "$@"'
# The shell itself reads, so that it is the one process there is to count.
_ONE_COUNTED_SCRIPT = 'read n < "$1" && [ "$n" = 1 ]'


class ControlGroup(msgspec.Struct, frozen=True):
    """A group that exists, with its limit set."""

    folder: str

    def joining(self) -> tuple[str, ...]:
        """Give the words in front of a command with which it joins before it is executed."""
        return ("/bin/sh", "-c", _JOIN_SCRIPT, "sh", f"{self.folder}/cgroup.procs")

    def has_refused(self) -> bool:
        """Say whether a process was refused for the limit, ever.

        Raises:
            ContainmentError: the group was taken away from outside.
        """
        try:
            return _n_refused(self.folder) > 0
        except OSError as error:
            raise ContainmentError(f"the control group of a run is gone: {error}") from error


@contextmanager
def open_group(parent: str, n_most: int) -> Iterator[ControlGroup]:
    """Make a group below another; at the end, kill what is left in it and remove it.

    Args:
        parent: folder as `find_parent` gives it.
        n_most: processes, threads counted, that it may hold at once.

    Raises:
        OSError: it cannot be made; nothing is left of it.
        ContainmentError: at the end, a process in it could not be killed.
    """
    folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    try:
        # Held while the group is in use: it tells `_sweep` that this is not left behind.
        with _locked(folder):
            # Read first: in a folder that is no control group, nothing may be written.
            _n_refused(folder)
            Path(folder, "pids.max").write_text(f"{n_most}\n", encoding="ascii")
            yield ControlGroup(folder)
    finally:
        _remove(folder)


@cache
def find_parent(about: str = "/proc/self") -> str | None:
    """Find where this process may make groups that hold; the first call tries one.

    Args:
        about: folder with the files `cgroup` and `mountinfo` of this process.

    Returns:
        Absolute path of a folder; `None` for an ordinary user, whom RLIMIT_NPROC holds, and where
        there is no pids controller that can be used.
    """
    if os.geteuid() != 0:
        return None
    with suppress(OSError, ValueError):
        for candidate in _candidates(about):
            _sweep(candidate)
            if _holds(candidate):
                return candidate
    return None


def _n_refused(folder: str) -> int:
    words = Path(folder, "pids.events").read_text(encoding="ascii").split()
    return int(words[words.index("max") + 1])


def _holds(parent: str) -> bool:
    try:
        with open_group(parent, 1) as group:
            counted = ("/bin/sh", "-c", _ONE_COUNTED_SCRIPT, "sh", f"{group.folder}/pids.current")
            done = subprocess.run(
                (*group.joining(), *counted),
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_END_TIMEOUT_S,
                check=False,
            )
    except (OSError, ValueError, subprocess.TimeoutExpired, ContainmentError):
        return False
    return done.returncode == 0


def _candidates(about: str) -> Iterator[str]:
    """Yield the folders of the groups that this process lies in, and that count processes."""
    own: dict[str, str] = {}
    for line in Path(about, "cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    for line in Path(about, "mountinfo").read_text(encoding="utf-8").splitlines():
        place, _, kind = line.partition(" - ")
        root, mount = place.split(" ")[3:5]
        words = kind.split(" ")
        if words[0] == "cgroup" and "pids" in words[2].split(",") and "pids" in own:
            yield from _below(mount, root, own["pids"])[:1]
        elif words[0] == "cgroup2" and "" in own:
            yield from _with_controller(_below(mount, root, own[""]))


def _below(mount: str, root: str, path: str) -> list[str]:
    """List the folder of a group and those around it, up to the mount point; empty if not there."""
    root = root.rstrip("/")
    if ".." in path.split("/") or not f"{path}/".startswith(f"{root}/"):
        return []
    parts = [part for part in path[len(root) :].split("/") if part]
    return ["/".join((mount, *parts[:n])) for n in range(len(parts), -1, -1)]


def _with_controller(folders: list[str]) -> Iterator[str]:
    """Yield the first folder whose subgroups count processes, as far out as no limit is left.

    In version 2 a group with processes hands no controller on, so that it may be one further out.
    """
    for folder in folders:
        if "pids" in Path(folder, "cgroup.subtree_control").read_text(encoding="ascii").split():
            yield folder
            return
        if any(_is_limit(file) for file in Path(folder).glob("*.max")):
            return


def _is_limit(file: Path) -> bool:
    """Say whether a file bounds something that a group outside would not; processes aside."""
    if file.name.startswith(("cgroup.", "pids.")):
        return False
    return file.read_text(encoding="ascii").split()[:1] not in ([], ["max"])


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _sweep(parent: str) -> None:
    """Remove the groups of runs whose redrive was killed before it could."""
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        with suppress(OSError, ContainmentError), _locked(str(folder)):
            _remove(str(folder))


def _remove(folder: str) -> None:
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            if time.monotonic() > deadline_s:
                raise ContainmentError(f"what ran in {folder} did not end: {error}") from error
            _kill_members(folder)
            time.sleep(_TICK_S)
        else:
            return


def _kill_members(folder: str) -> None:
    with suppress(OSError):
        # Nothing new, so that all are reached.
        Path(folder, "pids.max").write_text("0\n", encoding="ascii")
        for word in Path(folder, "cgroup.procs").read_text(encoding="ascii").split():
            # A process that this one cannot see is listed as 0, which would mean this one's group.
            if int(word) > 0:
                with suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
