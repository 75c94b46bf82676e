"""The grader `tests`: a command on a copy of each episode's workspace; exit 0 is a pass.

It runs in the sandbox, without network: what an agent planted in its workspace runs there too, and
reaches nothing.
"""

import msgspec

from redrive.errors import RecordError
from redrive.graders.options import check_timeout, read_options, wrong
from redrive.graders.outputs import Mark, grade_of, mark_of, one_line
from redrive.grading import (
    GradeContext,
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GroupGrade,
    JobEnd,
    SandboxJob,
)

_MIB = 1024 * 1024
_TAIL_CHARS = 280


class SuiteOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options.

    Attributes:
        command: words, such as `["{python}", "-m", "pytest", "-q"]`; run in the workspace.
        files: a folder, from the plan's, whose files are put over the copy: tests that the agent
            did not see, or must not have changed.
        timeout_s: wall time for one episode; what takes longer fails.
        memory_mib: address space of each process.
    """

    command: tuple[str, ...]
    files: str = ""
    timeout_s: float = 120.0
    memory_mib: int = 4096


class SuiteGrader:
    """Runs one command for each episode."""

    def __init__(self, options: SuiteOptions, overlay: str) -> None:
        self._options = options
        self._overlay = overlay

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:
        """Give 1 to episodes on whose workspace the command exits 0, 0 to the others."""
        return grade_of(group, [(one, self._mark(one, context)) for one in group.episodes])

    def _mark(self, episode: GradedEpisode, context: GradeContext) -> Mark:
        job = SandboxJob(
            command=self._options.command,
            workspace=episode,
            overlay=self._overlay,
            timeout_s=self._options.timeout_s,
            memory_bytes=self._options.memory_mib * _MIB,
        )
        try:
            end = context.run(job)
        except RecordError as error:  # nothing ran, so nothing failed
            return Mark(None, reason=one_line(error.message))
        how = end.fault or f"exit {end.exit_code}"
        tail = one_line(_tail(end))
        return mark_of(is_passed=end.exit_code == 0, reason=f"{how}: {tail}" if tail else how)


def _tail(end: JobEnd) -> str:
    """Give the end of what it wrote: the last words are the ones that tell."""
    text = (end.stdout + b"\n" + end.stderr).decode("utf-8", "replace")
    return " ".join(text.split())[-_TAIL_CHARS:]


def open_grader(setup: GraderSetup) -> SuiteGrader:
    """Open `tests`.

    Raises:
        UsageError: an option is wrong, the command is empty, or there is no such folder.
    """
    options = read_options(setup.spec, SuiteOptions)
    check_timeout(setup.spec, options.timeout_s)
    if not options.command or not options.command[0] or any("\0" in w for w in options.command):
        raise wrong(setup.spec, "command is empty", 'command = ["{python}", "-m", "pytest"]')
    if options.memory_mib < 64:
        raise wrong(setup.spec, "memory_mib is at least 64")
    if not options.files:
        return SuiteGrader(options, "")
    folder = (setup.base / options.files).absolute()
    if not folder.is_dir():
        raise wrong(setup.spec, f"no such folder: {options.files!r}")
    return SuiteGrader(options, str(folder))
