"""What each process of a run sees: the workflow's, each tool's worker, a command.

Knows confinements as values. What holds secrets beside a workflow's code (the store, `.env` files,
git's folder) is covered, and so are pipes and sockets, which a read-only folder still lets through.

Source: DESIGN.md §6 "Three layers".
"""

import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

import redrive
from redrive.app.agent_folders import check_cwd
from redrive.app.confined_agent import find_shown
from redrive.app.trial_messages import CodePlace
from redrive.app.trial_processes import RunConfined
from redrive.errors import UsageError, quote
from redrive.replay.trial_plan import RunLimits
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    MIB,
    SCRATCH_HOME,
    Bind,
    Confinement,
    Limits,
    lies_in,
)
from redrive.sandbox.door import BUBBLEWRAP, run_at

WORKSPACE = "/workspace"
PROXY_PORT = 42118
SLACK_S = 5.0
"""What a sandbox may outlast its run, which ends it itself before that."""
_SCRATCH_BYTES = 64 * MIB
_HIDDEN = frozenset((".redrive", ".git", ".env", ".envrc", ".netrc", ".pypirc", ".npmrc"))
_HIDDEN_START = ".env."
_STORE_TAILS = ("", "-wal", "-shm", "-journal")
_MOST_LOOKED_AT = 200_000
_BOOT = "import sys; sys.path.append({folder!r}); from {module} import main; sys.exit(main())"


class RunPlace(msgspec.Struct, frozen=True):
    """Where one run lies on this machine.

    Attributes:
        folder: private to the run, gone after it.
        workspace: the run's copy, in `folder`.
        code: of the workflow.
        store: no process of a run sees it.
        caller: the caller's environment, of which grants may name variables.
        limits: of the run.
        level: of the sandbox, proven.
    """

    folder: Path
    workspace: Path
    code: CodePlace
    store: Path
    caller: Mapping[str, str]
    limits: RunLimits
    level: str

    @property
    def inside(self) -> str:
        """The path of the workspace inside; without namespaces that is where it lies."""
        return WORKSPACE if self.level == BUBBLEWRAP else str(self.workspace)

    @property
    def run(self) -> RunConfined:
        """What runs a command at the run's level."""
        return partial(run_at, self.level)


def python_command(module: str) -> tuple[str, ...]:
    """Give the words that start one of our modules inside, with the user's Python environment."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(redrive.__file__)))
    boot = _BOOT.format(folder=folder, module=module)
    return (sys.executable, "-s", "-P", "-B", "-c", boot)


def confine(
    place: RunPlace,
    *,
    wall_s: float,
    seed: int = 0,
    readable: Sequence[Bind] = (),
    writable: Sequence[Bind] = (),
    environment: Mapping[str, str] | None = None,
    cwd: str = "/",
    command: str = "",
) -> Confinement:
    """Confine a process of a run.

    Args:
        place: of the run.
        wall_s: what is left of the run's time.
        seed: of the run; Python's order of sets follows it.
        readable: what it sees beside programs and the workflow's folder.
        writable: what it may change.
        environment: variables beside those that every process has.
        cwd: its working folder, inside.
        command: the program that is started, where it is not this Python.

    Raises:
        UsageError: the workflow's folder cannot be shown.
    """
    home = place.caller.get("HOME") or os.path.expanduser("~")
    path = place.caller.get("PATH") or DEFAULT_PATH
    code = check_cwd(place.code.folder, home) if place.code.folder else ""
    shown = find_shown(command or sys.executable, path, home, [code] if code else [])
    covers = tuple(_covers(place, code, [*shown, *readable]))
    if covers and place.level != BUBBLEWRAP:
        raise UsageError(
            f"{covers[0].inside!r} cannot be covered at the level {place.level}",
            hint="grant a folder that does not hold it",
        )
    return Confinement(
        readable=(*shown, *readable, *covers),
        writable=tuple(writable),
        cwd=cwd,
        environment={
            "PATH": path,
            "LANG": place.caller.get("LANG") or "C.UTF-8",
            "HOME": SCRATCH_HOME,
            "PYTHONHASHSEED": str(seed % 2**32),
            "PYTHONDONTWRITEBYTECODE": "1",
            **(environment or {}),
        },
        limits=_limits(place.limits, wall_s),
    )


def _limits(limits: RunLimits, wall_s: float) -> Limits:
    return Limits(
        cpu_s=limits.cpu_s,
        address_space_bytes=limits.memory_bytes,
        n_processes=limits.n_processes,
        file_bytes=limits.disk_bytes,
        n_open_files=256,
        scratch_bytes=min(_SCRATCH_BYTES, limits.disk_bytes),
        output_bytes=limits.output_bytes,
        wall_s=wall_s + SLACK_S,
        disk_bytes=limits.disk_bytes,
    )


def _covers(place: RunPlace, code: str, shown: Sequence[Bind]) -> Iterator[Bind]:
    """Cover what no run may see in the folders that it sees."""
    empty = place.folder / "empty"
    empty.mkdir(mode=0o700, exist_ok=True)
    nothing = place.folder / "nothing"
    nothing.touch(mode=0o600)
    covered = dict.fromkeys(find_hidden(code)) if code else {}
    for tail in _STORE_TAILS:
        store = f"{place.store}{tail}"
        if os.path.exists(store) and not any(lies_in(store, other) for other in covered):
            covered[store] = None
    for path in covered:
        # A copy of the run's own is shown elsewhere; nothing of it lies at the host's path.
        if any(lies_in(path, bind.inside) for bind in shown if bind.source == bind.inside):
            yield cover(path, str(empty), str(nothing))


def cover(path: str, empty: str, nothing: str) -> Bind:
    """Cover a path with an empty folder or an empty file; a device could not be opened there."""
    return Bind(empty if os.path.isdir(path) else nothing, path)


def find_hidden(folder: str) -> Iterator[str]:
    """List what is covered in a folder of code: by name, and every pipe and socket.

    Raises:
        UsageError: it holds too much to look at.
    """
    n_seen = 0
    for root, folders, files in os.walk(folder):
        n_seen += len(folders) + len(files)
        if n_seen > _MOST_LOOKED_AT:
            raise UsageError(
                f"the workflow's folder {quote(folder)} holds too much to be shown",
                hint="keep workflows in a folder of their own",
            )
        for name in (*folders, *files):
            path = os.path.join(root, name)
            if name in _HIDDEN or name.startswith(_HIDDEN_START) or _lets_through(path):
                yield path
        folders[:] = [name for name in folders if name not in _HIDDEN]


def _lets_through(path: str) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
