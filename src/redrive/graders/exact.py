"""The grader `exact`: the output, or a part of it, equals what is expected.

Source: DESIGN.md §3 "compares JSON values in a versioned canonical form"; RFC 6901.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from redrive import canonical
from redrive.graders.options import check_pointer, read_options, wrong
from redrive.graders.outputs import Mark, mark_each, mark_of, one_line, read_output
from redrive.grading import (
    GradeContext,
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GroupGrade,
    TrialTask,
)


class ExactOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`expected`: compared with; without it, the task's. `at`: JSON pointer into the output."""

    expected: Any | UnsetType = UNSET
    at: str = ""


class ExactGrader:
    """Compares in canonical form: key order does not matter, `1` is `1.0` and not `true`."""

    def __init__(self, options: ExactOptions) -> None:
        self._options = options

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:  # noqa: ARG002 - the protocol's
        """Give 1 to outputs that are equal, 0 to all others."""
        expected = canonical.canonical(self._expected(group.task))

        def mark(episode: GradedEpisode) -> Mark:
            found = canonical.canonical(read_output(episode, self._options.at))
            if found == expected:
                return mark_of(is_passed=True)
            texts = (one_line(data.decode()) for data in (expected, found))
            return mark_of(is_passed=False, reason="expected {}, found {}".format(*texts))

        return mark_each(group, mark)

    def _expected(self, task: TrialTask) -> Any:
        if not isinstance(self._options.expected, UnsetType):
            return self._options.expected
        assert not isinstance(task.expected, UnsetType)  # noqa: S101 - held by open_grader
        return canonical.decode_value(bytes(task.expected))


def open_grader(setup: GraderSetup) -> ExactGrader:
    """Open `exact`.

    Raises:
        UsageError: an option is wrong, or a task says nothing that could be expected.
    """
    options = read_options(setup.spec, ExactOptions)
    check_pointer(setup.spec, options.at)
    if isinstance(options.expected, UnsetType):
        for task in setup.tasks:
            if isinstance(task.expected, UnsetType):
                raise wrong(
                    setup.spec,
                    f"task {task.name} has nothing expected",
                    'give each task "expected", or the grader `expected`',
                )
    return ExactGrader(options)
