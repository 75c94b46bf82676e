"""Marks the episodes of a group by a check that runs in a process of its own."""

from collections.abc import Callable
from typing import Any

from redrive.graders.checking import check_all
from redrive.graders.outputs import Mark, grade_of, mark_of, one_line
from redrive.grading import GradedEpisode, GradeGroup, GroupGrade


def mark_checked(
    group: GradeGroup,
    kind: str,
    rule: Any,
    read: Callable[[GradedEpisode], Any],
    timeout_s: float,
    judge: Callable[[Mark], Mark] = lambda mark: mark,
) -> GroupGrade:
    """Read what is checked of each episode, check all in one process, and mark.

    Args:
        group: the episodes.
        kind: see `checking.check_all`.
        rule: of that kind.
        read: gives a JSON value; an episode of which it raises `LookupError` or `ValueError` fails
            without a check.
        timeout_s: for each.
        judge: makes the mark of what the check said.

    Raises:
        PluginError: the process does not start.
    """
    values: dict[str, Any] = {}
    marks: dict[str, Mark] = {}
    for episode in group.episodes:
        try:
            values[episode.key] = read(episode)
        except (LookupError, ValueError, RecursionError) as error:
            marks[episode.key] = mark_of(is_passed=False, reason=one_line(str(error.args[0])))
    checked = check_all(kind, rule, tuple(values.values()), timeout_s)
    marks |= {key: judge(mark) for key, mark in zip(values, checked, strict=True)}
    return grade_of(group, ((one, marks[one.key]) for one in group.episodes))
