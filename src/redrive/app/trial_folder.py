"""The private folder of one run: its copy of the workspace and, where need be, of the code.

Knows folders. Made for one run, entered by nobody else, gone after it.

Source: DESIGN.md §6; `docs/reliability.md` "Sandbox".
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from redrive.app.trial_code_digest import digest_code, find_place
from redrive.app.trial_confinement import RunPlace, find_hidden
from redrive.app.trial_messages import CodePlace
from redrive.app.trial_ports import EpisodeJob
from redrive.app.trial_workspace import copy_workspace
from redrive.errors import UsageError
from redrive.sandbox.door import BUBBLEWRAP
from redrive.sandbox.private_folder import open_private_folder

_PREFIX = "redrive-run-"
MAX_CODE_FILES = 5000
MAX_CODE_BYTES = 128 * 1024 * 1024


@contextmanager
def open_place(job: EpisodeJob, level: str) -> Iterator[RunPlace]:
    """Make the place of a run, and remove it with all that is in it.

    Raises:
        UsageError: the code or the workspace cannot be read, or is not the planned one any more.
        ContainmentError: it cannot be removed.
    """
    with open_private_folder(_PREFIX) as folder:
        code = _find_code(job)
        workspace = folder / "workspace"
        _copy_workspace(job, workspace)
        if level != BUBBLEWRAP:
            code = copy_code(code, folder / "code")
        yield RunPlace(folder, workspace, code, job.store, job.caller, job.limits, level)


def _find_code(job: EpisodeJob) -> CodePlace:
    workflow = job.workflow
    code = find_place(workflow.place or workflow.source, Path())
    if digest_code(code) != workflow.digest:
        raise UsageError(
            f"the code of {workflow.label} is not the planned one any more",
            where=workflow.source,
            hint="plan the trial again, or put the code back",
        )
    return code


def _copy_workspace(job: EpisodeJob, target: Path) -> None:
    task = job.task
    if task.workspace is None:
        target.mkdir(mode=0o700)
        return
    held = task.workspace
    if copy_workspace(target, held.path, held.kind, held.commit) != held.digest:
        raise UsageError(
            f"the workspace of task {task.name} is not the planned one any more",
            where=held.path,
            hint="plan the trial again, or put the workspace back",
        )


def copy_code(code: CodePlace, target: Path) -> CodePlace:
    """Copy a folder of code without what is hidden: where nothing can be covered.

    Raises:
        UsageError: it is too large.
    """
    hidden = set(find_hidden(code.folder))
    n_files = n_bytes = 0

    def ignore(folder: str, names: list[str]) -> list[str]:
        nonlocal n_files, n_bytes
        kept = [name for name in names if os.path.join(folder, name) not in hidden]
        for name in kept:
            n_files += 1
            n_bytes += os.lstat(os.path.join(folder, name)).st_size
        if n_files > MAX_CODE_FILES or n_bytes > MAX_CODE_BYTES:
            raise UsageError(
                f"the workflow's folder {code.folder!r} is too large to be copied for each run",
                hint="keep workflows in a folder of their own",
            )
        return [name for name in names if name not in kept]

    shutil.copytree(code.folder, target, symlinks=True, ignore=ignore)
    file = str(target / os.path.relpath(code.file, code.folder)) if code.file else ""
    return replace(code, file=file, folder=str(target))
