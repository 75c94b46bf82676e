"""What graders say of a trial, as values: one grader's result for one task, and all of them summed.

Knows the shape of grades and of the report's `grading`, whose JSON keys are the names here. Must
not know episodes, models, or where grades lie; `compare.trial_grading` sums up.

Source: DESIGN.md §6 "Grading is group-wise", §8 "JSON contract".
"""

from collections.abc import Mapping

import msgspec

from redrive import canonical
from redrive.compare.gate import GateResult
from redrive.compare.judging import PositionBias, ShownOrder
from redrive.compare.passes import PassRate
from redrive.compare.tournament import PairResult, Ranking


class GroupGrade(msgspec.Struct, frozen=True, omit_defaults=True):
    """One grader's result for all episodes of one task together: the `result` of a `Graded` entry.

    Attributes:
        grader: its name in the plan.
        kind: as in the plan, such as `exact` or `judge`.
        task_id: of the task.
        scores: `grade_key(variant, attempt)` → 0 to 1; `None` where the grader could not tell. An
            episode that never finished has no entry: missing is never failed.
        passed: the same keys → whether it counts as a success; `None` where that is not known.
        pairs: games between variants, where the grader compares; a grader that only scores leaves
            them out, and they follow from the scores.
        orders: what a judge was shown and answered, in the order asked.
        simulated: keys whose episode rests on a simulated tool.
        reasons: key → one line on why it was graded so, where there is something to say.
        notes: what a report should add.
    """

    grader: str
    kind: str
    task_id: str
    scores: Mapping[str, float | None] = {}
    passed: Mapping[str, bool | None] = {}
    pairs: tuple[PairResult, ...] = ()
    orders: tuple[ShownOrder, ...] = ()
    simulated: tuple[str, ...] = ()
    reasons: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()


def grade_key(variant: str, attempt: int) -> str:
    """Name one episode among those of a task: `VARIANT#ATTEMPT`."""
    return f"{variant}#{attempt}"


def split_key(key: str) -> tuple[str, int]:
    """Give back variant and attempt of a `grade_key`.

    Raises:
        ValueError: it is none.
    """
    variant, sign, attempt = key.rpartition("#")
    if not (sign and attempt.isascii() and attempt.isdigit()):
        raise ValueError(f"{key!r} names no episode: expected VARIANT#ATTEMPT")
    return variant, int(attempt)


def dump_grade(grade: GroupGrade) -> bytes:
    """Write a grade as JSON, as a ledger keeps it.

    Raises:
        ValueError: a score is no number.
    """
    return canonical.encode(grade)


def parse_grade(data: bytes) -> GroupGrade:
    """Read a grade back.

    Raises:
        ValueError: it is no grade, a key names no episode, or a score lies outside 0 to 1.
    """
    grade = msgspec.convert(canonical.decode_value(data), GroupGrade)
    for key in (*grade.scores, *grade.passed, *grade.simulated, *grade.reasons):
        split_key(key)
    for key, score in grade.scores.items():
        if score is not None and not 0 <= score <= 1:
            raise ValueError(f"{key}: a score of {score}: expected 0 to 1")
    return grade


# --- the report's `grading`


class Cell(msgspec.Struct, frozen=True):
    """One episode as one grader sees it.

    Attributes:
        score, passed: `None` where the grader could not tell, or only compares.
        simulated: whether it rests on a simulated tool.
        reason: one line; empty where there is none.
    """

    variant: str
    attempt: int
    score: float | None
    passed: bool | None
    simulated: bool
    reason: str


class TaskRow(msgspec.Struct, frozen=True):
    """One task: its cells by the order of the variants, then by attempt; only what was graded."""

    task_id: str
    name: str
    cells: tuple[Cell, ...]


class VariantGrade(msgspec.Struct, frozen=True):
    """What one grader says of one variant, over all tasks.

    Attributes:
        role: as in the plan; empty for none.
        graded: episodes that were graded.
        judged: of these, the ones of which it is known whether they succeeded.
        successes: of these, the ones that did.
        mean_score: mean over tasks of the mean over attempts; `None` where nothing has a score.
        scored_tasks: tasks that it is the mean of.
        pass_at: pass@k for k from 1: at least one of k attempts succeeds.
        pass_all: pass^k: all of k attempts succeed.
        simulated: episodes that rest on a simulated tool; where there are any, each figure does.
    """

    variant: str
    role: str
    graded: int
    judged: int
    successes: int
    mean_score: float | None
    scored_tasks: int
    pass_at: tuple[PassRate, ...]
    pass_all: tuple[PassRate, ...]
    simulated: int


class NotRanked(msgspec.Struct, frozen=True):
    """An attempt at a task that the ranking does not rest on, and why.

    Attributes:
        unfinished: variants whose run never finished: missing is never failed.
        ungraded: variants whose run finished, but was not graded.
        reason: one line.
    """

    task_id: str
    name: str
    attempt: int
    unfinished: tuple[str, ...]
    ungraded: tuple[str, ...]
    reason: str


class GraderReport(msgspec.Struct, frozen=True):
    """Everything that one grader says.

    Attributes:
        variants: in the plan's order.
        tasks: in the plan's order; tasks without a grade are left out.
        ranking: of the variants.
        not_ranked: incomplete blocks, in the plan's order.
        judge: where it was shown orders.
        simulated: whether any of its figures rests on a simulated tool.
        notes: of its grades, each once.
    """

    grader: str
    kind: str
    variants: tuple[VariantGrade, ...]
    tasks: tuple[TaskRow, ...]
    ranking: Ranking
    not_ranked: tuple[NotRanked, ...]
    judge: PositionBias | None
    simulated: bool
    notes: tuple[str, ...]


class GradingReport(msgspec.Struct, frozen=True):
    """The report's `grading`.

    Attributes:
        graders: in the plan's order; the first one decides success and the gate.
        gate: what the gate says; `None` where the plan has none.
        gate_basis: `scores`, or `games` where the first grader only compares: the score of a side
            is then its share of the points of its games against the other one.
        gate_simulated: whether an episode of either side of the gate rests on a simulated tool.
        simulated: whether any figure does.
    """

    graders: tuple[GraderReport, ...]
    gate: GateResult | None
    gate_basis: str
    gate_simulated: bool
    simulated: bool
