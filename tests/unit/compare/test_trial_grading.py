"""Grades add up to what the report says, and what is missing is named and never failed."""

import pytest

from redrive.compare.gate import parse_gate
from redrive.compare.judging import ShownOrder
from redrive.compare.tournament import PairResult
from redrive.compare.trial_document import Cell, GroupGrade, NotRanked, grade_key
from redrive.compare.trial_grading import GradedTrial, games_of, sum_up
from redrive.errors import UsageError
from redrive.replay.trial_values import RunKey

VARIANTS = (("a", "incumbent"), ("b", "challenger"))


def grade(task, scores, grader="g", passed=None, **more):
    """`scores`: episode → score; above one half it passed."""
    known = {key: None if score is None else score > 0.5 for key, score in scores.items()}
    return GroupGrade(
        grader, "exact", task, scores=scores, passed=known if passed is None else passed, **more
    )


def trial(*grades, tasks=("t1", "t2"), attempts=1, gate="", unfinished=(), **more):
    labels = [label for label, _ in more.get("variants", VARIANTS)]
    runs = {RunKey(v, t, n) for v in labels for t in tasks for n in range(1, attempts + 1)}
    return GradedTrial(
        **{
            "variants": VARIANTS,
            "tasks": tuple((task, f"name of {task}") for task in tasks),
            "attempts": attempts,
            "graders": (("g", "exact"),),
            "grades": grades,
            "finished": runs - set(unfinished),
            "gate": parse_gate(gate) if gate else None,
            "resamples": 50,
        }
        | more
    )


def test_scores_make_games_within_an_attempt():
    found = games_of(
        grade(
            "t",
            {
                "a#1": 1,
                "b#1": 0.5,
                "a#2": 0.5,
                "b#2": 0.5,
                "b#3": 1,
                "a#4": 1,
                "b#4": None,
                "c#4": 0.2,
            },
        )
    )
    assert found == (
        PairResult("t", "a", "b", "first", 1),
        PairResult("t", "a", "b", "tie", 2),
        PairResult("t", "a", "b", "inconclusive", 4),
        PairResult("t", "a", "c", "first", 4),
        PairResult("t", "b", "c", "inconclusive", 4),
    )
    assert games_of(grade("t", {"a#1": 0, "b#1": 1}))[0].outcome == "second"


def test_games_of_a_grader_that_compares_are_its_own_or_those_of_its_orders():
    own = (PairResult("t", "a", "b", "tie"),)
    assert games_of(grade("t", {"a#1": 1, "b#1": 0}, pairs=own)) == own
    orders = (ShownOrder(("a", "b"), (("b",), ("a",))), ShownOrder(("b", "a"), (("b",), ("a",))))
    assert games_of(GroupGrade("g", "judge", "t", orders=orders))[0].outcome == "second"


def test_a_grader_is_summed_up_by_variant_and_by_task():
    report = sum_up(
        trial(
            grade("t2", {"a#1": 1, "b#1": 0.25}, reasons={"b#1": "found 4"}, notes=("slow",)),
            grade("t1", {"a#1": 1, "b#1": 1}, simulated=("b#1",), notes=("slow", "odd")),
        )
    )
    (grader,) = report.graders
    assert (grader.grader, grader.kind, grader.judge) == ("g", "exact", None)
    assert [row.task_id for row in grader.tasks] == ["t1", "t2"]
    assert grader.tasks[1].name == "name of t2"
    assert grader.tasks[1].cells == (
        Cell("a", 1, 1, passed=True, simulated=False, reason=""),
        Cell("b", 1, 0.25, passed=False, simulated=False, reason="found 4"),
    )
    one, other = grader.variants
    assert (one.variant, one.role, one.graded, one.judged, one.successes) == (
        "a",
        "incumbent",
        2,
        2,
        2,
    )
    assert (other.successes, other.mean_score, other.scored_tasks) == (1, 0.625, 2)
    assert [(rate.k, rate.value) for rate in other.pass_at] == [(1, 0.5)]
    assert [(rate.k, rate.value) for rate in other.pass_all] == [(1, 0.5)]
    assert (one.simulated, other.simulated, grader.simulated) == (0, 1, True)
    assert grader.notes == ("slow", "odd")
    assert grader.not_ranked == ()
    assert [rating.variant for rating in grader.ranking.groups[0].ratings] == ["a", "b"]
    assert (report.gate, report.gate_basis, report.simulated) == (None, "", True)
    assert report.gate_simulated is False


def test_a_task_counts_once_however_many_attempts_have_a_score():
    scores = {"a#1": 1, "a#2": 0, "a#3": None, "b#1": 0, "b#2": 0, "b#3": 0}
    report = sum_up(trial(grade("t1", scores), grade("t2", {"a#1": 1, "b#1": 0}), attempts=3))
    one = report.graders[0].variants[0]
    assert (one.graded, one.judged, one.successes) == (4, 3, 2)
    assert one.mean_score == 0.75
    assert [(rate.k, rate.value, rate.n_tasks) for rate in one.pass_at] == [
        (1, 0.75, 2),
        (2, 1.0, 1),
        (3, None, 0),
    ]


def test_many_attempts_are_told_up_to_ten_and_for_all():
    scores = {grade_key(v, n): 1.0 for v in "ab" for n in range(1, 16)}
    report = sum_up(trial(grade("t1", scores), tasks=("t1",), attempts=15))
    assert [rate.k for rate in report.graders[0].variants[0].pass_all] == [*range(1, 11), 15]


def test_a_run_that_did_not_finish_leaves_its_block_out_and_is_not_failed():
    report = sum_up(
        trial(
            grade("t1", {"a#1": 1}),
            grade("t2", {"a#1": 1, "b#1": 0}),
            unfinished=[RunKey("b", "t1", 1)],
        )
    )
    (grader,) = report.graders
    assert grader.not_ranked == (NotRanked("t1", "name of t1", 1, ("b",), (), "did not finish: b"),)
    assert (grader.ranking.n_tasks, grader.ranking.n_games) == (1, 1)
    assert grader.variants[1].graded == 1


def test_what_was_not_graded_is_told_from_what_did_not_finish():
    report = sum_up(trial(unfinished=[RunKey("a", "t1", 1)]))
    first, second = report.graders[0].not_ranked
    assert first.reason == "did not finish: a; was not graded: b"
    assert second.reason == "was not graded: a, b"
    assert report.graders[0].variants[0].mean_score is None
    assert report.graders[0].variants[0].pass_at == ()
    assert report.graders[0].ranking.not_ranked == ("a", "b")


def test_a_block_of_three_of_which_one_is_missing_does_not_rank_the_other_two():
    variants = (*VARIANTS, ("c", ""))
    report = sum_up(
        trial(
            grade("t1", {"a#1": 1, "b#1": 0}),
            grade("t2", {"a#1": 1, "b#1": 0, "c#1": 0}),
            variants=variants,
            unfinished=[RunKey("c", "t1", 1)],
        )
    )
    assert [gap.task_id for gap in report.graders[0].not_ranked] == ["t1"]
    assert report.graders[0].ranking.n_games == 3


def judged(task, *rankings):
    shown = (("a", "b"), ("b", "a"))
    orders = tuple(
        ShownOrder(o, tuple((v,) for v in r)) for o, r in zip(shown, rankings, strict=True)
    )
    return GroupGrade("g", "judge", task, orders=orders)


def test_a_judge_is_ranked_and_its_bias_told():
    report = sum_up(trial(judged("t1", "ab", "ba"), judged("t2", "ba", "ba")))
    (grader,) = report.graders
    assert grader.judge.judgements == 4
    assert grader.judge.position_dependent == 1
    assert grader.ranking.n_position_dependent == 1
    assert grader.variants[0].pass_at == ()
    assert [rating.variant for rating in grader.ranking.groups[0].ratings] == ["b", "a"]


def test_a_gate_rests_on_the_scores_of_the_first_grader():
    graders = (("g", "exact"), ("h", "exact"))
    grades = [grade(f"t{n}", {"a#1": 0, "b#1": 1}) for n in range(8)]
    grades += [grade(f"t{n}", {"a#1": 1, "b#1": 0}, grader="h") for n in range(8)]
    tasks = tuple(f"t{n}" for n in range(9))
    report = sum_up(trial(*grades, tasks=tasks, graders=graders, gate="challenger beats incumbent"))
    assert (report.gate.status, report.gate_basis) == ("passed", "scores")
    assert (report.gate.one, report.gate.other, report.gate.n_tasks) == ("b", "a", 8)
    assert report.gate.left_out == ("t8",)
    assert len(report.graders) == 2


def test_a_gate_compares_the_attempts_that_both_have():
    scores = {"a#1": 1, "b#1": 1, "a#2": 0, "b#2": None, "a#3": 0}
    report = sum_up(trial(grade("t1", scores), tasks=("t1",), attempts=3, gate="b within 0.5 of a"))
    assert (report.gate.difference, report.gate.n_tasks) == (0.0, 1)


def test_a_gate_of_a_judge_that_gives_no_scores_rests_on_games():
    tasks = tuple(f"t{n}" for n in range(8))
    grades = [judged(task, "ba", "ba") for task in tasks[1:]]
    grades.append(GroupGrade("g", "judge", "t0", orders=(ShownOrder(("a", "b"), None),)))
    report = sum_up(trial(*grades, tasks=tasks, gate="b beats a"))
    assert (report.gate.status, report.gate_basis, report.gate.n_tasks) == ("passed", "games", 7)
    assert report.gate.left_out == ("t0",)
    back = sum_up(trial(*grades, tasks=tasks, gate="a beats b"))
    assert (back.gate.status, back.gate.difference) == ("failed", -1.0)


def test_a_gate_of_simulated_episodes_says_so():
    tasks = ("t1", "t2")
    plain = [grade(task, {"a#1": 1, "b#1": 1, "c#1": 1}) for task in tasks]
    marked = grade("t2", {"a#1": 1, "b#1": 1, "c#1": 1}, simulated=("c#1",))
    variants = (*VARIANTS, ("c", ""))
    for gate, expected in (("b beats a", False), ("c beats a", True), ("b beats c", True)):
        report = sum_up(trial(plain[0], marked, variants=variants, gate=gate))
        assert report.gate_simulated is expected
        assert report.simulated


def test_without_grades_or_graders_a_gate_shows_nothing():
    report = sum_up(trial(gate="b beats a"))
    assert (report.gate.status, report.gate.n_tasks) == ("inconclusive", 0)
    assert sum_up(trial(graders=(), gate="b beats a")).gate is None


def test_a_gate_of_nobody_is_refused():
    with pytest.raises(UsageError, match="no variant"):
        sum_up(trial(gate="x beats a"))
