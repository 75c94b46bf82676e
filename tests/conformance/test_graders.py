"""Runs the checks that every grader must pass on every grader that is registered."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from redrive import plugins
from redrive.errors import UsageError
from redrive.grading import (
    GradeContext,
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GroupGrade,
    JobEnd,
    Question,
)
from redrive.testing import ConformanceError, check_grader

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "exact": {},
    "regex": {"pattern": "words"},
    "json_schema": {"schema": {"type": "string"}},
    "callable": {"function": "checks.py:grade"},
    "tests": {"command": ["sh", "-c", "true"]},
    "judge": {"model": "small", "criteria": "The better one.", "show": "pairs"},
}
LOADED = b'{"loaded":true}\n' + b'{"found":0.5}\n' * 99


@pytest.mark.parametrize("kind", sorted(OPTIONS))
def test_a_grader_keeps_its_promises_on_hostile_outputs(kind: str, tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("def grade(task, output, files): return True\n")
    check_grader(
        plugins.load(plugins.GRADERS, kind),
        OPTIONS[kind],
        base=tmp_path,
        model="small",
        answer=lambda _: '{"ranking": "1 > 2"}',
        end=JobEnd(0, LOADED, b"\x1b[31mwords"),
    )


@pytest.mark.parametrize("answer", [None, "", "words", "[" * 100_000, '{"ranking": "2"}'])
def test_a_judge_keeps_its_promises_whatever_the_model_says(answer: str | None) -> None:
    opened = plugins.load(plugins.GRADERS, "judge")
    check_grader(opened, OPTIONS["judge"], model="small", answer=lambda _: answer)


def test_every_grader_that_is_registered_is_checked_here() -> None:
    assert set(OPTIONS) == set(plugins.names(plugins.GRADERS))


Grade = Callable[[GradeGroup, GradeContext], GroupGrade]


def _opening(grade: Grade, *, refuses: type[Exception] | None = UsageError) -> Callable[..., Any]:
    class Mine:
        def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:
            return grade(group, context)

    def open_grader(setup: GraderSetup) -> Mine:
        if setup.spec.options and refuses is not None:
            raise refuses("unknown")
        return Mine()

    return open_grader


def _scores(mark: Callable[[GradedEpisode], Any]) -> Grade:
    return lambda group, _: GroupGrade("", "", "", scores={e.key: mark(e) for e in group.episodes})


def test_a_grader_that_keeps_them_passes() -> None:
    check_grader(_opening(_scores(lambda _: 0.5)), {})


def _asking(group: GradeGroup, context: GradeContext) -> GroupGrade:
    context.ask(Question("small", "s", "t", 1, 9))
    return GroupGrade("", "", "")


def _raising(group: GradeGroup, context: GradeContext) -> GroupGrade:
    raise KeyError("x")


_DRAWS = iter(range(10**6))


@pytest.mark.parametrize(
    ("grade", "says"),
    [
        (_raising, "raised KeyError"),
        (_scores(lambda _: 2.0), "expected 0 to 1"),
        (_scores(lambda _: float("nan")), "second time|expected 0 to 1"),
        (_scores(lambda _: next(_DRAWS) / 10**6), "second time"),
        (_asking, "1 calls, and plan_calls says 0"),
        (lambda *_: GroupGrade("", "", "", scores={"z@1#1": 1.0}), "not given"),
        (lambda *_: GroupGrade("", "", "", reasons={"variant0@1#1": "a\nb"}), "no printable line"),
    ],
)
def test_a_broken_promise_is_named(grade: Grade, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_grader(_opening(grade), {})


@pytest.mark.parametrize(
    ("refuses", "says"), [(None, "not refused"), (TypeError, "raised TypeError")]
)
def test_an_unknown_option_must_be_refused(refuses: type[Exception] | None, says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_grader(_opening(_scores(lambda _: 1.0), refuses=refuses), {})
