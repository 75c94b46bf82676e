"""What a trial is made of, as values: tasks, runs, what became of them, what a call cost.

Knows no process, file or model. Money is `Decimal` in USD, never a float.

Source: DESIGN.md §1, §6.
"""

from decimal import Decimal
from enum import StrEnum

import msgspec
from msgspec import UNSET, Raw, UnsetType


class Purpose(StrEnum):
    """What spend is for; each has a ceiling of its own."""

    LIVE = "live"
    REPLAY = "replay"
    JUDGING = "judging"
    INFERENCE = "inference"


class Outcome(StrEnum):
    """How one run of a trial ended."""

    COMPLETE = "complete"  # the workflow came to its end
    FAILED = "failed"  # the workflow raised, or its command exited other than 0
    DENIED = "denied"  # it called what it may not; recorded even where its code swallowed that
    LIMIT = "limit"  # cpu, memory, processes, disk or output
    TIMEOUT = "timeout"
    CEILING = "ceiling"  # the next call would have passed a ceiling
    CANCELLED = "cancelled"  # interrupted; it is run again on resume
    MODEL = "model"  # it failed because a model refused or failed; it is run again on resume


FINISHED = frozenset(
    (Outcome.COMPLETE, Outcome.FAILED, Outcome.DENIED, Outcome.LIMIT, Outcome.TIMEOUT)
)
"""Outcomes after which a run counts as finished and is never run again."""


class Workspace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The folder a task starts from.

    Attributes:
        kind: `folder`, `archive` or `git`.
        path: absolute path of the folder, the archive or the repository.
        digest: sha256 over sorted paths, modes and contents, links as links.
        commit: of a git workspace.
    """

    kind: str
    path: str
    digest: str
    commit: str | None = None


class TrialTask(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task input.

    Attributes:
        task_id: first 16 hex digits of the sha256 over canonical input and workspace digest.
        name: for people; unique within a trial.
        input: any JSON value.
        workspace: absent where the task has none.
        expected: what checks compare with, any JSON value.
        session_id: the recorded session that it was taken from.
        environment: the recorded environment (case 61), a JSON object.
        origin: where the input was read, such as `tasks.jsonl:3` or `stated task`.
    """

    task_id: str
    name: str
    input: Raw
    workspace: Workspace | None = None
    expected: Raw | UnsetType = UNSET
    session_id: str | None = None
    environment: Raw | UnsetType = UNSET
    origin: str = ""


class RunKey(msgspec.Struct, frozen=True, order=True):
    """Names one run of a trial: variant (`ID@VERSION`), task, attempt (from 1)."""

    variant: str
    task_id: str
    attempt: int = 1

    def __str__(self) -> str:
        """`VARIANT TASK #ATTEMPT`, as reports and errors name it."""
        return f"{self.variant} {self.task_id} #{self.attempt}"


class PlannedRun(msgspec.Struct, frozen=True):
    """A run that is to be made; `seed` is derived from the trial's seed and the key."""

    key: RunKey
    seed: int


class Price(msgspec.Struct, frozen=True):
    """What a model costs, USD per million tokens; 0 must be written down to count as known.

    Cached input, read or written, costs as other input does where nothing else is stated.
    """

    input_usd: Decimal
    output_usd: Decimal
    cached_input_usd: Decimal | None = None
    cache_write_usd: Decimal | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Token counts of one answer; `input_tokens` includes those read from or written to a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0


class DeniedCall(msgspec.Struct, frozen=True):
    """A call that was refused: the tool (or `model:NAME`, `network HOST:PORT`), and why."""

    tool: str
    reason: str


class OutputFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run left in its workspace: added, changed or removed against the task's.

    Attributes:
        path: relative, `/` between names.
        kind: `file`, `folder`, `link` (never followed), `removed`, or `other` (not collected).
        size_bytes: of a file.
        sha256: of a file's content.
        target: of a link, as text.
    """

    path: str
    kind: str
    size_bytes: int = 0
    sha256: str | None = None
    target: str | None = None


class EpisodeEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one run.

    Attributes:
        outcome: see `Outcome`.
        output: what the workflow gave back; UNSET where it gave nothing.
        error: one line, where it failed.
        denied: every refused call, in order, swallowed or not.
        simulated: ids of tools whose simulator answered: what rests on them is *simulated*.
        session_id: the episode in the store; empty where none was begun.
        isolation: the proven level it ran at.
        wall_s: how long it took.
        files: what it changed in its workspace.
        files_artefact: sha256 of the stored tar of its workspace, where something was collected.
        notes: what a report should add.
    """

    outcome: Outcome
    output: Raw | UnsetType = UNSET
    error: str | None = None
    denied: tuple[DeniedCall, ...] = ()
    simulated: tuple[str, ...] = ()
    session_id: str = ""
    isolation: str = ""
    wall_s: float = 0.0
    files: tuple[OutputFile, ...] = ()
    files_artefact: str | None = None
    notes: tuple[str, ...] = ()
