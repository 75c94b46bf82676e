from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from redrive.errors import UsageError
from redrive.graders.exact import open_grader
from tests.grading import FakeContext, end_of, make_group, make_task, setup_of


def _grade(told: Any, outputs: dict[str, Any], **options: Any) -> dict[str, float | None]:
    task = make_task(told)
    grader = open_grader(setup_of(Path(), "exact", options, [task]))
    return dict(grader.grade(make_group(outputs, task=task), FakeContext()).scores)


def test_outputs_are_compared_as_json_values() -> None:
    outputs = {
        "A@1": {"b": 1, "a": [True]},
        "B@1": {"a": [True], "b": 1.0},
        "C@1": {"a": [1], "b": 1},
        "D@1": {"a": [True], "b": "1"},
        "E@1": None,
    }
    assert list(_grade({"a": [True], "b": 1}, outputs).values()) == [1, 1, 0, 0, 0]


def test_integers_are_exact_and_text_is_not_normalised() -> None:
    assert _grade(2**64, {"A@1": 2**64, "B@1": 2**64 + 1}) == {"A@1#1": 1, "B@1#1": 0}
    assert _grade("é", {"A@1": "é", "B@1": "e\u0301"}) == {"A@1#1": 1, "B@1#1": 0}


def test_a_part_of_the_output_is_compared_at_a_pointer() -> None:
    outputs = {"A@1": {"a/b": ["x", "yes"]}, "B@1": {"a/b": ["yes"]}, "C@1": "yes", "D@1": {}}
    task = make_task("yes")
    grader = open_grader(setup_of(Path(), "exact", {"at": "/a~1b/1"}, [task]))
    grade = grader.grade(make_group(outputs, task=task), FakeContext())
    assert list(grade.scores.values()) == [1, 0, 0, 0]
    assert grade.reasons["B@1#1"] == "the output has no '/a~1b/1'"
    assert grade.passed["A@1#1"] is True


def test_the_option_wins_over_what_the_task_expects() -> None:
    assert _grade("no", {"A@1": "yes"}, expected="yes") == {"A@1#1": 1}
    assert _grade("no", {"A@1": None}, expected=None) == {"A@1#1": 1}


@pytest.mark.parametrize(
    "output",
    [
        Raw(b'{"a":'),
        Raw(b"[" * 100_000),
        Raw(b"NaN"),
        Raw(b"9" * 5000),
        Raw(b'"\xff"'),
        "\x1b[2J" + "x" * 10_000,
        "\ud800",
    ],
)
def test_a_hostile_output_fails_and_says_why_in_one_short_line(output: Any) -> None:
    task = make_task("yes")
    grader = open_grader(setup_of(Path(), "exact", {}, [task]))
    end = end_of(output) if isinstance(output, Raw) else output
    grade = grader.grade(make_group({"A@1": end, "B@1": "yes"}, task=task), FakeContext())
    assert grade.scores == {"A@1#1": 0, "B@1#1": 1}
    assert grade.reasons["A@1#1"].isprintable()
    assert len(grade.reasons["A@1#1"]) < 700


def test_an_episode_without_output_fails() -> None:
    assert _grade("yes", {"A@1": end_of()}) == {"A@1#1": 0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expectd": 1}, "unknown field"),
        ({"at": 3}, "Expected `str`"),
        ({"at": "label"}, "no JSON pointer"),
        ({"at": "/a~2"}, "no JSON pointer"),
    ],
)
def test_a_wrong_option_is_refused_at_load(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_grader(setup_of(Path(), "exact", options))


def test_a_task_without_anything_expected_is_refused_at_load_by_name() -> None:
    with pytest.raises(UsageError, match="task t9 has nothing expected"):
        open_grader(setup_of(Path(), "exact", {}, [make_task("yes"), make_task(name="t9")]))
