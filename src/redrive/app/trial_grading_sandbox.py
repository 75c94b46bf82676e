"""Runs what graders run: in the sandbox, with no network and no file but those that are named.

Knows the sandbox and what a Python needs to start. Must not know graders.

Source: DESIGN.md §6.
"""

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec.structs import replace

from redrive.app.agent_folders import find_folders, is_of_system
from redrive.app.trial_collecting import REMOVED
from redrive.app.trial_grading_files import list_files, overlay, restore, size_bytes, unpack
from redrive.app.trial_tree import FILE
from redrive.app.trial_workspace import copy_workspace
from redrive.errors import RecordError, UsageError, quote
from redrive.grading import GradedEpisode, JobEnd, SandboxJob
from redrive.replay.trial_values import Workspace
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    MIB,
    SCRATCH_HOME,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
    lies_in,
)
from redrive.sandbox.disk import remove_tree
from redrive.sandbox.door import BUBBLEWRAP, find_level, run_at
from redrive.sandbox.wiring import Wiring

_WORKSPACE, _COPIED_FROM = "/workspace", "/redrive/workspace"
_EPISODES, _CODE = "/redrive/episodes", "/redrive/code"
_COPY_FAILED = 125
_COPY_MARK = b"redrive: the workspace was not copied\n"
# A copy in memory: what the command changes is gone with it, and nothing of it reaches the host.
_COPY_SCRIPT = f"""
cp -RP {_COPIED_FROM}/. {_WORKSPACE}/ || {{
  echo 'redrive: the workspace was not copied' >&2; exit {_COPY_FAILED}; }}
exec "$@"
"""
_ROOM_BYTES = 256 * MIB

OpenWorkspace = Callable[[GradedEpisode], BinaryIO | None]
"""Opens the tar of an episode's collected workspace; `None` where nothing was changed in it."""


class Workspaces(msgspec.Struct, frozen=True):
    """Where the workspaces of a task's episodes come from.

    Attributes:
        open_collected: see `OpenWorkspace`; what it opens is closed here.
        before: what every run of the task started from; absent for an empty folder.
    """

    open_collected: OpenWorkspace
    before: Workspace | None = None


class _Places(msgspec.Struct, frozen=True):
    """Where folders lie on this machine and, by the level, inside."""

    level: str
    folder: Path

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def shown(self) -> tuple[Bind, Bind]:
        """Episodes and code, at paths of their own where the level can show them there."""
        episodes, code = str(self.folder / "episodes"), str(self.folder / "code")
        if self.level == BUBBLEWRAP:
            return Bind(episodes, _EPISODES), Bind(code, _CODE)
        return Bind(episodes), Bind(code)

    def fill(self, word: str) -> str:
        """Put paths into a word of a command."""
        episodes, code = (bind.inside for bind in self.shown)
        filled = word.replace("{python}", sys.executable)
        return filled.replace("{episodes}", episodes).replace("{code}", code)


def run_job(
    job: SandboxJob,
    workspaces: Workspaces,
    caller: Mapping[str, str],
    stop: threading.Event | None = None,
) -> JobEnd:
    """Run a grader's command to its end, at the best level that is proven here.

    Args:
        job: what is run.
        workspaces: see `Workspaces`.
        caller: the caller's environment, of which `PATH`, `LANG` and `HOME` are looked at.
        stop: ends it as soon as it is set.

    Raises:
        ContainmentError: no level is proven here; nothing ran.
        UsageError: there is no such command or file.
        RecordError: a workspace cannot be read, or is no longer what the runs started from.
    """
    level = find_level().name
    folder = Path(tempfile.mkdtemp(prefix="redrive-grade-"))
    try:
        places = _Places(level, folder)
        for name in ("episodes", "code"):
            (folder / name).mkdir(mode=0o700)
        for number, episode in enumerate(job.shown):
            _lay_out(episode, workspaces, folder / "episodes" / str(number))
        for path in map(Path, job.code):
            _copy_code(path, folder / "code" / path.name)
        _lay_out(job.workspace, workspaces, places.workspace)
        if job.overlay:
            overlay(Path(job.overlay), places.workspace)
        words = tuple(map(places.fill, job.command))
        copying = ("/bin/sh", "-c", _COPY_SCRIPT, "sh") if level == BUBBLEWRAP else ()
        confinement = _confine(job, places, caller)
        result = run_at(level, (*copying, *words), confinement, job.stdin, Wiring(stop=stop))
    finally:
        remove_tree(str(folder))
    return _end_of(result, job.timeout_s)


def _lay_out(episode: GradedEpisode | None, workspaces: Workspaces, folder: Path) -> None:
    """Make the folder of an episode's workspace; `None` for an empty one."""
    before = None if episode is None else workspaces.before
    archive = None if episode is None else workspaces.open_collected(episode)
    if archive is None and before is None:
        folder.mkdir(mode=0o700)
    if archive is None and before is not None:
        _copy(before, folder)
    if archive is None or episode is None:
        return
    with archive:
        unpack(archive, folder)
    if before is not None and episode.end.notes:  # something may have been too large to collect
        whole = folder.with_name(f"{folder.name}-before")
        _copy(before, whole)
        removed = {file.path for file in episode.end.files if file.kind == REMOVED}
        restore(whole, folder, removed)
        remove_tree(str(whole))
    _check_whole(episode, folder)


def _copy(before: Workspace, folder: Path) -> None:
    found = copy_workspace(folder, before.path, before.kind, before.commit)
    if found != before.digest:
        raise RecordError("the task's workspace is not what its runs started from")


def _check_whole(episode: GradedEpisode, folder: Path) -> None:
    """Hold that every file is there that the run added or changed.

    Raises:
        RecordError: one was too large to collect: tests would fail for its lack.
    """
    there = list_files(folder)
    for file in episode.end.files:
        if file.kind == FILE and file.path not in there:
            raise RecordError(f"the run's {quote(file.path)} was too large to be collected")


def _copy_code(path: Path, target: Path) -> None:
    try:
        if path.is_dir():
            shutil.copytree(path, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(path, target)
    except (OSError, shutil.Error) as error:
        raise UsageError(f"a grader's code cannot be read: {path.name}") from error


def _confine(job: SandboxJob, places: _Places, caller: Mapping[str, str]) -> Confinement:
    path = caller.get("PATH") or DEFAULT_PATH
    command = _check_command(places.fill(job.command[0]), path)
    home = caller.get("HOME") or os.path.expanduser("~")
    shown = [*find_folders(command, path, sorted({sys.prefix, sys.base_prefix}), home)]
    kept = dict.fromkeys(one for one in shown if not is_of_system(one))
    readable = [Bind(one) for one in kept if not any(lies_in(one, o) for o in kept if o != one)]
    confinement = Confinement(
        readable=(*readable, *places.shown),
        writable=(Bind(str(places.workspace)),),
        cwd=str(places.workspace),
        environment={
            "PATH": path,
            "LANG": caller.get("LANG") or "C.UTF-8",
            "HOME": SCRATCH_HOME,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        limits=_limits(job, size_bytes(places.workspace)),
    )
    if places.level != BUBBLEWRAP:
        return confinement
    return replace(
        confinement,
        readable=(*confinement.readable, Bind(str(places.workspace), _COPIED_FROM)),
        writable=(),
        cwd=_WORKSPACE,
        scratch=(_WORKSPACE,),
    )


def _limits(job: SandboxJob, workspace_bytes: int) -> Limits:
    return Limits(
        cpu_s=max(1, int(job.timeout_s) + 1),
        address_space_bytes=job.memory_bytes,
        file_bytes=_ROOM_BYTES,
        n_open_files=1024,
        scratch_bytes=workspace_bytes + _ROOM_BYTES,
        disk_bytes=workspace_bytes + _ROOM_BYTES,
        output_bytes=job.output_bytes,
        wall_s=job.timeout_s,
    )


def _check_command(program: str, path: str) -> str:
    """Give the program's name; one that lies in the workspace is looked up there.

    Raises:
        UsageError: it is on no path: an exit code of it would be no answer.
    """
    if "/" not in program and shutil.which(program, path=path) is None:
        raise UsageError(f"no such command: {quote(program)}", hint="it is looked up on PATH")
    return program


def _end_of(result: ConfinedResult, timeout_s: float) -> JobEnd:
    fault = ""
    if result.is_timeout:
        fault = f"did not end within {timeout_s:g} s"
    elif result.is_process_flood:
        fault = "started too many processes"
    elif result.is_disk_full:
        fault = "wrote too much"
    elif result.exit_code == _COPY_FAILED and result.stderr.endswith(_COPY_MARK):
        raise RecordError("a collected workspace could not be copied into the sandbox")
    elif result.exit_code is None:
        fault = "was stopped" if result.is_stopped else "was ended"
    exit_code = None if fault else result.exit_code
    return JobEnd(exit_code, result.stdout, result.stderr, fault)
