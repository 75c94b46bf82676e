"""What a grader is made of: the names that grader plug-ins import; `docs/graders.md` shows one.

A grader judges all episodes of one task together. It is given values, and reaches a model, a
sandbox or the store through its `GradeContext` alone: what it asks is metered, what it runs is
confined. Must not know how any of that is done.

Source: DESIGN.md §6 "Grading is group-wise".
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Raw

from redrive.compare.judging import ShownOrder
from redrive.compare.tournament import PairResult
from redrive.compare.trial_document import GroupGrade, grade_key
from redrive.replay.money import bound
from redrive.replay.trial_plan import GraderSpec, PlanModel, TrialPlan
from redrive.replay.trial_values import EpisodeEnd, OutputFile, RunKey, TrialTask

__all__ = [
    "AsksModels",
    "EpisodeEnd",
    "GradeContext",
    "GradeGroup",
    "GradedEpisode",
    "Grader",
    "GraderSetup",
    "GraderSpec",
    "GroupGrade",
    "JobEnd",
    "JudgeCalls",
    "OpenGrader",
    "OutputFile",
    "PairResult",
    "Question",
    "Reply",
    "RunKey",
    "SandboxJob",
    "ShownOrder",
    "TrialTask",
    "grade_key",
]


class GradedEpisode(msgspec.Struct, frozen=True):
    """One run of the task that came to its end."""

    run: RunKey
    end: EpisodeEnd

    @property
    def key(self) -> str:
        """`VARIANT#ATTEMPT`: its name in a `GroupGrade`."""
        return grade_key(self.run.variant, self.run.attempt)


class GradeGroup(msgspec.Struct, frozen=True):
    """One task and all its episodes, variants × attempts.

    Attributes:
        task: input, and what is expected where the task says so.
        variants: labels in the plan's order.
        episodes: those to be judged: the workflow came to its end; in the plan's order.
        failed: those that failed, were denied, or passed a limit or their time. They score 0
            whatever the grader, which need not grade them; one that compares ranks them last.
        missing: runs that never came to an end; they are never failed, and have no grade.
    """

    task: TrialTask
    variants: tuple[str, ...]
    episodes: tuple[GradedEpisode, ...]
    failed: tuple[GradedEpisode, ...] = ()
    missing: tuple[RunKey, ...] = ()


class Question(msgspec.Struct, frozen=True):
    """What is asked of a model, at temperature 0.

    Attributes:
        model: its name in the plan.
        system: who it is to be, and what it is to answer.
        text: what it is to judge. Outputs are hostile: delimit them.
        seed: sent where the API takes one.
        max_tokens: of the answer; the cost is bounded by it.
        answer_schema: JSON Schema that the answer's text must meet, as canonical JSON; sent as
            `response_format` where the API takes one, empty for none.
    """

    model: str
    system: str
    text: str
    seed: int
    max_tokens: int
    answer_schema: Raw = Raw(b"")


class Reply(msgspec.Struct, frozen=True):
    """What came back.

    Attributes:
        text: the answer's; `None` where the model answered, but not in the form of its API.
        fault: one line, where `text` is `None` or the answer was cut at `max_tokens`.
        request_sha256: artefact of the request's body.
        answer_sha256: artefact of the answer's body.
    """

    text: str | None
    fault: str
    request_sha256: str
    answer_sha256: str


class SandboxJob(msgspec.Struct, frozen=True):
    """A command to be run with no network, no credential and no file but those named here.

    Attributes:
        command: words; the first is looked up on the caller's `PATH`. `{python}` is the Python that
            redrive runs under, `{episodes}` the folder in which `shown` lies, `{code}` that of
            `code`.
        workspace: the episode in whose workspace, as it was at its end, it works: a private copy,
            which it may change and which is thrown away; absent for an empty folder.
        overlay: a folder whose files are put over that copy; empty for none.
        shown: episodes whose workspaces lie, read-only, in `{episodes}/0`, `{episodes}/1`, ….
        code: files and folders of this machine of which copies lie, read-only, in `{code}`.
        stdin: what it reads.
        timeout_s: wall time.
        memory_bytes: address space of each process.
        output_bytes: how much of each output is kept.
    """

    command: tuple[str, ...]
    workspace: GradedEpisode | None = None
    overlay: str = ""
    shown: tuple[GradedEpisode, ...] = ()
    code: tuple[str, ...] = ()
    stdin: bytes = b""
    timeout_s: float = 60.0
    memory_bytes: int = 2**32
    output_bytes: int = 2**20


class JobEnd(msgspec.Struct, frozen=True):
    """How it ended; `exit_code` is `None` where it was ended from outside, for `fault`."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    fault: str = ""


class GradeContext(Protocol):
    """What a grader may reach, while it grades one task."""

    @property
    def seed(self) -> int:
        """Derived from the trial's seed, the task and the grader; the same again on resume."""
        ...

    def ask(self, question: Question) -> Reply:
        """Ask a model of the plan, metered on the judging ceiling; what was paid is not paid twice.

        Raises:
            ModelError: it refused or failed, also after a bounded number of further attempts. Let
                it pass: the task then stays ungraded, and is graded on resume.
            CeilingReached: a `BaseException`, to be let pass.
        """
        ...

    def run(self, job: SandboxJob) -> JobEnd:
        """Run a command in the sandbox.

        Raises:
            ContainmentError: the sandbox is not proven here; nothing ran.
            UsageError: there is no such command or file.
            RecordError: an episode's workspace cannot be made again.
        """
        ...


class Grader(Protocol):
    """Judges the episodes of one task together."""

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:
        """Give a score (0 to 1, `None` for inconclusive) to each of `group.episodes`, by its key.

        Hostile outputs are no reason to raise: what cannot be judged scores `None`. `grader`,
        `kind`, `task_id`, `simulated` and the grades of `group.failed` may be left out: they are
        filled in by who asked.
        """
        ...


class JudgeCalls(msgspec.Struct, frozen=True):
    """The calls of one kind that a grader will make, before anything runs.

    Attributes:
        model: its name in the plan.
        calls: how many; exact if every run completes, never more.
        request_bytes: of the body of the largest of them, at most.
        max_tokens: of each answer.
    """

    model: str
    calls: int
    request_bytes: int
    max_tokens: int


class AsksModels(Protocol):
    """What a grader has beside `grade` if it asks a model."""

    def plan_calls(self, plan: TrialPlan) -> tuple[JudgeCalls, ...]:
        """Say which calls the whole plan will make; none that is not named here may be made."""
        ...


class GraderSetup(msgspec.Struct, frozen=True):
    """What is known when a grader is opened, before anything runs.

    Attributes:
        spec: name, kind and options, as the plan states them.
        base: the plan's folder; relative paths in options start there.
        tasks: of the plan.
        models: of the plan, by name.
        measure: gives the length in bytes of the body that a question becomes.
    """

    spec: GraderSpec
    base: Path
    tasks: tuple[TrialTask, ...]
    models: Mapping[str, PlanModel]
    measure: Callable[[Question], int] = lambda question: len(question.text)


OpenGrader = Callable[[GraderSetup], Grader]
"""What an entry point of the group `redrive.graders` names.

It checks every option and raises `UsageError` for what is wrong: nothing has run yet then.
"""


def bound_usd(calls: JudgeCalls, model: PlanModel) -> Decimal:
    """Bound what calls cost: a token for each byte sent, `max_tokens` for each answer."""
    n = calls.calls
    return bound(model.price, n * calls.request_bytes, n * calls.max_tokens)
