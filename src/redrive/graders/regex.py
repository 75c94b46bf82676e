"""The grader `regex`: a pattern is found in the output.

The search runs in a process that can be killed: an output may be made to drive a pattern into
backtracking without end.
"""

import re

import msgspec

from redrive.graders.checked import mark_checked
from redrive.graders.options import check_pointer, check_timeout, read_options, wrong
from redrive.graders.outputs import Mark, read_output, text_of
from redrive.grading import (
    GradeContext,
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GroupGrade,
)

_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL, "x": re.VERBOSE, "a": re.ASCII}


class RegexOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options.

    Attributes:
        pattern: Python's syntax; searched anywhere, so anchor it to match as a whole.
        at: JSON pointer into the output.
        flags: letters of `imsxa`, as Python's inline flags.
        absent: whether it passes where the pattern is not found.
        timeout_s: processor time for one output.
    """

    pattern: str
    at: str = ""
    flags: str = ""
    absent: bool = False
    timeout_s: float = 2.0


class RegexGrader:
    """Searches a pattern in texts; another output is searched as canonical JSON."""

    def __init__(self, options: RegexOptions) -> None:
        self._options = options

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:  # noqa: ARG002 - the protocol's
        """Give 1 where it is found (or is not, with `absent`), 0 else."""
        options = self._options
        rule = {"pattern": options.pattern, "flags": _flags_of(options.flags)}

        def read(episode: GradedEpisode) -> str:
            return text_of(read_output(episode, options.at))

        def judge(mark: Mark) -> Mark:
            if mark.passed is None:
                return mark
            is_passed = mark.passed is not options.absent
            found = "the pattern is found" if mark.passed else "the pattern is not found"
            return Mark(float(is_passed), is_passed, "" if is_passed else found)

        return mark_checked(group, "regex", rule, read, options.timeout_s, judge)


def _flags_of(letters: str) -> int:
    value = re.NOFLAG
    for letter in letters:
        value |= _FLAGS[letter]
    return int(value)


def open_grader(setup: GraderSetup) -> RegexGrader:
    """Open `regex`.

    Raises:
        UsageError: an option is wrong, or the pattern does not compile.
    """
    options = read_options(setup.spec, RegexOptions)
    check_pointer(setup.spec, options.at)
    check_timeout(setup.spec, options.timeout_s)
    unknown = "".join(sorted(set(options.flags) - _FLAGS.keys()))
    if unknown:
        raise wrong(setup.spec, f"unknown flags {unknown!r}", f"letters of {''.join(_FLAGS)}")
    try:
        re.compile(options.pattern, _flags_of(options.flags))
    except (re.error, RecursionError, OverflowError, ValueError) as error:
        raise wrong(setup.spec, f"the pattern does not compile: {error}") from error
    return RegexGrader(options)
