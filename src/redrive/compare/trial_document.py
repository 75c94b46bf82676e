"""What graders say of a trial, as values: one grader's result for one task.

Knows the shape of grades. Must not know episodes, models, or where grades lie.

Source: DESIGN.md §6 "Grading is group-wise", §8 "JSON contract".
"""

from collections.abc import Mapping

import msgspec

from redrive import canonical
from redrive.compare.judging import ShownOrder
from redrive.compare.tournament import PairResult


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
