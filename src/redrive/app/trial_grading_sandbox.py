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

from redrive.app.agent_folders import find_folders, is_of_system
from redrive.app.trial_grading_files import overlay, size_bytes, unpack
from redrive.errors import RecordError, UsageError, quote
from redrive.grading import GradedEpisode, JobEnd, SandboxJob
from redrive.sandbox.bubblewrap import run_confined
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
from redrive.sandbox.wiring import Wiring

_WORKSPACE, _COPIED_FROM, _EPISODES = "/workspace", "/redrive/workspace", "/redrive/episodes"
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
"""Opens the tar of an episode's collected workspace; `None` where nothing was collected."""


def run_job(
    job: SandboxJob,
    open_workspace: OpenWorkspace,
    caller: Mapping[str, str],
    stop: threading.Event | None = None,
) -> JobEnd:
    """Run a grader's command to its end.

    Args:
        job: what is run.
        open_workspace: see `OpenWorkspace`; the stream is closed here.
        caller: the caller's environment, of which `PATH`, `LANG` and `HOME` are looked at.
        stop: ends it as soon as it is set.

    Raises:
        ContainmentError: the sandbox is not proven here; nothing ran.
        UsageError: there is no such command or file.
        RecordError: a collected workspace cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="redrive-grade-") as name:
        folder = Path(name)
        episodes, workspace = folder / "episodes", folder / "workspace"
        episodes.mkdir(mode=0o700)
        for number, episode in enumerate(job.shown):
            _lay_out(open_workspace(episode), episodes / str(number))
        _lay_out(None if job.workspace is None else open_workspace(job.workspace), workspace)
        if job.overlay:
            overlay(Path(job.overlay), workspace)
        confinement = _confine(job, episodes, workspace, caller)
        words = tuple(_fill(word) for word in job.command)
        argv = ("/bin/sh", "-c", _COPY_SCRIPT, "sh", *words)
        result = run_confined(argv, confinement, job.stdin, Wiring(stop=stop))
    return _end_of(result, job.timeout_s)


def _lay_out(archive: BinaryIO | None, folder: Path) -> None:
    if archive is None:
        folder.mkdir(mode=0o700)
        return
    with archive:
        unpack(archive, folder)


def _fill(word: str) -> str:
    return word.replace("{python}", sys.executable).replace("{episodes}", _EPISODES)


def _confine(
    job: SandboxJob, episodes: Path, workspace: Path, caller: Mapping[str, str]
) -> Confinement:
    path = caller.get("PATH") or DEFAULT_PATH
    command = _check_command(job.command, path)
    home = caller.get("HOME") or os.path.expanduser("~")
    prefixes = sorted({sys.prefix, sys.base_prefix})
    shown = [*find_folders(command, path, prefixes, home), *job.readable]
    kept = dict.fromkeys(one for one in shown if not is_of_system(one))
    readable = [Bind(one) for one in kept if not any(lies_in(one, o) for o in kept if o != one)]
    return Confinement(
        readable=(
            *readable,
            Bind(str(workspace), _COPIED_FROM),
            Bind(str(episodes), _EPISODES),
        ),
        cwd=_WORKSPACE,
        scratch=(_WORKSPACE,),
        environment={
            "PATH": path,
            "LANG": caller.get("LANG") or "C.UTF-8",
            "HOME": SCRATCH_HOME,
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        limits=Limits(
            cpu_s=max(1, int(job.timeout_s) + 1),
            address_space_bytes=job.memory_bytes,
            file_bytes=_ROOM_BYTES,
            n_open_files=1024,
            scratch_bytes=size_bytes(workspace) + _ROOM_BYTES,
            output_bytes=job.output_bytes,
            wall_s=job.timeout_s,
        ),
    )


def _check_command(command: tuple[str, ...], path: str) -> str:
    """Give the program's name; one that lies in the workspace is looked up there.

    Raises:
        UsageError: it is on no path: an exit code of it would be no answer.
    """
    program = _fill(command[0])
    if "/" not in program and shutil.which(program, path=path) is None:
        raise UsageError(f"no such command: {quote(program)}", hint="it is looked up on PATH")
    return program


def _end_of(result: ConfinedResult, timeout_s: float) -> JobEnd:
    fault = ""
    if result.is_timeout:
        fault = f"did not end within {timeout_s:g} s"
    elif result.is_process_flood:
        fault = "started too many processes"
    elif result.exit_code == _COPY_FAILED and result.stderr.endswith(_COPY_MARK):
        raise RecordError("a collected workspace could not be copied into the sandbox")
    elif result.exit_code is None:
        fault = "was stopped" if result.is_stopped else "was ended"
    exit_code = None if fault else result.exit_code
    return JobEnd(exit_code, result.stdout, result.stderr, fault)
