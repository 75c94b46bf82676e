from pathlib import Path
from typing import Any

import pytest

from redrive.errors import UsageError
from redrive.graders.regex import open_grader
from redrive.grading import GroupGrade
from tests.grading import FakeContext, end_of, make_group, setup_of


def _grade(options: dict[str, Any], outputs: dict[str, Any]) -> GroupGrade:
    grader = open_grader(setup_of(Path(), "regex", options))
    return grader.grade(make_group(outputs), FakeContext())


def test_a_pattern_is_searched_in_texts_and_in_the_canonical_form_of_others() -> None:
    outputs = {"A@1": "code E12", "B@1": "code", "C@1": {"z": 1, "a": "E07"}, "D@1": end_of()}
    grade = _grade({"pattern": r"E\d\d"}, outputs)
    assert list(grade.scores.values()) == [1, 0, 1, 0]
    assert grade.reasons["B@1#1"] == "the pattern is not found"
    assert list(_grade({"pattern": r'^\{"a":'}, outputs).scores.values()) == [0, 0, 1, 0]


def test_flags_pointer_and_absence() -> None:
    assert _grade({"pattern": "^error$", "flags": "im"}, {"A@1": "x\nERROR"}).scores["A@1#1"] == 1
    outputs = {"A@1": {"log": "fine"}, "B@1": {"log": "error"}, "C@1": {}}
    grade = _grade({"pattern": "error", "at": "/log", "absent": True}, outputs)
    assert list(grade.scores.values()) == [1, 0, 0]
    assert grade.reasons["B@1#1"] == "the pattern is found"


def test_a_catastrophic_pattern_costs_its_own_output_alone() -> None:
    outputs = {"A@1": "aab", "B@1": "a" * 60 + "!", "C@1": "ab", "D@1": "no"}
    grade = _grade({"pattern": r"^(a|a)*b$", "timeout_s": 0.3}, outputs)
    assert grade.scores == {"A@1#1": 1, "B@1#1": None, "C@1#1": 1, "D@1#1": 0}
    assert grade.passed["B@1#1"] is None
    assert "did not end within 0.3 s" in grade.reasons["B@1#1"]


def test_hostile_texts_pass_through_the_checking_process() -> None:
    outputs = {"A@1": "x" * 3_000_000 + "\nend", "B@1": "\ud800\x00\u2028end", "C@1": "\n\n"}
    assert list(_grade({"pattern": "end"}, outputs).scores.values()) == [1, 1, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "missing required field `pattern`"),
        ({"pattern": "("}, "does not compile"),
        ({"pattern": "x", "flags": "iz"}, "unknown flags 'z'"),
        ({"pattern": "x", "timeout_s": 0}, "timeout_s"),
        ({"pattern": "x", "at": "y"}, "no JSON pointer"),
        ({"pattern": "x", "patern": "y"}, "unknown field"),
    ],
)
def test_a_wrong_option_is_refused_at_load(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_grader(setup_of(Path(), "regex", options))
