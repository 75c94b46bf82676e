"""A grade survives the ledger, and what is no grade is refused."""

import pytest

from redrive.compare.judging import ShownOrder
from redrive.compare.tournament import PairResult
from redrive.compare.trial_document import (
    GroupGrade,
    dump_grade,
    grade_key,
    parse_grade,
    split_key,
)

GRADE = GroupGrade(
    "correct",
    "judge",
    "t1",
    scores={"a@1#1": 1.0, "b@1#1": 0.5, "b@1#2": None},
    passed={"a@1#1": True, "b@1#1": False, "b@1#2": None},
    pairs=(PairResult("t1", "a@1", "b@1", "tie", 1, position_dependent=True),),
    orders=(
        ShownOrder(("a@1", "b@1"), (("a@1",), ("b@1",))),
        ShownOrder(("b@1", "a@1"), None, reason="cut off"),
    ),
    simulated=("b@1#1",),
    reasons={"b@1#1": "expected 3, found 4"},
    notes=("the second order was cut off",),
)


def test_a_grade_is_read_back_as_it_was_written():
    assert parse_grade(dump_grade(GRADE)) == GRADE


def test_what_a_judge_said_in_broken_text_is_kept_too():
    grade = GroupGrade("g", "judge", "t", notes=("half a sign: \ud83d",))
    assert parse_grade(dump_grade(grade)) == grade


def test_a_key_gives_back_its_variant_whatever_signs_that_holds():
    assert split_key(grade_key("a#b@1", 12)) == ("a#b@1", 12)


@pytest.mark.parametrize("key", ["a@1", "a@1#", "a@1#x", "a@1#²", "a#-1"])
def test_what_names_no_episode_is_refused(key):
    with pytest.raises(ValueError, match="names no episode"):
        split_key(key)
    with pytest.raises(ValueError, match="names no episode"):
        parse_grade(dump_grade(GroupGrade("g", "exact", "t", passed={key: True})))


@pytest.mark.parametrize("score", [-0.1, 1.5])
def test_a_score_outside_its_range_is_refused(score):
    with pytest.raises(ValueError, match="expected 0 to 1"):
        parse_grade(dump_grade(GroupGrade("g", "exact", "t", scores={"a@1#1": score})))


def test_a_score_that_is_no_number_is_never_written():
    with pytest.raises(ValueError, match="not JSON"):
        dump_grade(GroupGrade("g", "exact", "t", scores={"a@1#1": float("nan")}))


def test_what_is_no_grade_is_refused():
    with pytest.raises(ValueError, match="grader"):
        parse_grade(b"{}")
