"""What graders read of an episode's output, and how per-episode marks become a grade.

Knows JSON values. An output is hostile: whatever it is, reading it gives a value or one line on why
not.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UnsetType

from redrive import canonical
from redrive.graders.options import follow
from redrive.grading import GradedEpisode, GradeGroup, GroupGrade

_REASON_CHARS = 300


class Mark(msgspec.Struct, frozen=True):
    """What one episode gets: a score from 0 to 1, or `None` where that could not be told."""

    score: float | None
    passed: bool | None = None
    reason: str = ""


INCONCLUSIVE, FAILED, PASSED = Mark(None), Mark(0.0, passed=False), Mark(1.0, passed=True)


def mark_of(*, is_passed: bool, reason: str = "") -> Mark:
    """Mark what passes or fails."""
    return Mark(float(is_passed), is_passed, reason)


def read_output(episode: GradedEpisode, at: str = "") -> Any:
    """Give the output, or what lies at a JSON pointer in it.

    Raises:
        LookupError: the episode has no output, or nothing lies there.
        ValueError: the output is no JSON that can be compared.
    """
    output = episode.end.output
    if isinstance(output, UnsetType):
        raise LookupError("the episode has no output")
    decoded = canonical.decode(bytes(output))
    if not decoded.is_exact:
        raise ValueError("the output holds a number that cannot be represented")
    return follow(decoded.value, at)


def text_of(value: Any) -> str:
    """Give a text as it is, and any other value as canonical JSON."""
    return value if isinstance(value, str) else canonical.canonical(value).decode()


def one_line(text: str) -> str:
    """Make one printable line of a text, cut where it is long."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line if len(line) <= _REASON_CHARS else line[: _REASON_CHARS - 1] + "…"


def mark_each(group: GradeGroup, mark: Callable[[GradedEpisode], Mark]) -> GroupGrade:
    """Mark episode by episode; an output that is not there or not comparable fails."""

    def safely(episode: GradedEpisode) -> Mark:
        try:
            return mark(episode)
        except (LookupError, ValueError, RecursionError) as error:
            return mark_of(is_passed=False, reason=one_line(str(error.args[0])))

    return grade_of(group, ((one, safely(one)) for one in group.episodes))


def grade_of(
    group: GradeGroup, marks: Iterable[tuple[GradedEpisode, Mark]], notes: tuple[str, ...] = ()
) -> GroupGrade:
    """Sum marks up to a grade; who asked fills in what names the grader."""
    by_key = {episode.key: mark for episode, mark in marks}
    return GroupGrade(
        grader="",
        kind="",
        task_id=group.task.task_id,
        scores={key: mark.score for key, mark in by_key.items()},
        passed={key: mark.passed for key, mark in by_key.items()},
        reasons={key: mark.reason for key, mark in by_key.items() if mark.reason},
        notes=notes,
    )
