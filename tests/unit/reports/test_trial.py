"""The text of a report: the matrix, the ranking, what it cost, and all that is not run."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from redrive.compare.trial_report import StopFacts, TrialFacts, report_trial
from redrive.reports.trial import SHOWN_ITEMS, SHOWN_TASKS, matrix_lines, progress, trial_lines
from tests.policy_documents import HOSTILE_TEXTS
from tests.trial_reports import ENDS, plan_of_size, report_of_size


def text_of(report) -> str:
    return "\n".join(trial_lines(report))


def test_the_first_line_says_how_far_it_came() -> None:
    assert progress(report_of_size(2, 3, n_ended=4)) == (
        "2 variants × 3 tasks: 6 planned, 5 started, 4 finished, 2 not run"
    )


def test_a_cell_says_end_success_cost_time_denied_and_simulated() -> None:
    text = text_of(report_of_size())
    (line,) = (line for line in text.splitlines() if line.startswith("task 1 "))
    assert line.split("  ")[-3:] == [
        "ok- $0.00102 2.5s    ".strip(),
        "     ok+ $0.00102 3.2s ~".strip(),
        "     ok+ $0.00102 0.5s".strip(),
    ] or ("ok- $0.00102 2.5s" in line and "ok+ $0.00102 3.2s ~" in line)
    assert "DENIED- $0.00102 4.0s !2" in text
    assert "TIMEOUT- $0.00102 2m00s" in text
    assert "8/8 $0.00816 1.8s" in text


def test_a_trial_that_stopped_names_the_ceiling_and_all_that_is_not_run() -> None:
    report = report_of_size(2, 3, n_ended=3)
    text = text_of(report)
    assert "STOPPED at the ceiling of replay: the next call would pass it" in text
    assert [line for line in text.splitlines() if line.startswith("not run: ")] == [
        f"not run: {name}" for name in report.not_run
    ]
    interrupted = replace(report, stopped=(StopFacts("interrupted"),))
    assert "STOPPED: interrupted" in text_of(interrupted)


def test_several_attempts_are_counted_by_their_ends() -> None:
    text = text_of(report_of_size(2, 3, 3, n_ended=9))
    assert "2×ok,1×not run ++. $0.00204 1.5s" in text
    assert "3×not run" in text


def test_many_variants_stand_in_tables_below_each_other_and_many_tasks_are_cut() -> None:
    lines = list(matrix_lines(report_of_size(10, SHOWN_TASKS + 3, is_graded=False, gate="")))
    assert max(map(len, lines)) <= 160
    assert sum(line.startswith("task  ") for line in lines) > 1
    assert "… 3 more tasks, in --json and --html" in lines
    shown = {word for line in lines if line.startswith("task  ") for word in line.split()[1:]}
    assert shown == {f"triage@{n}" for n in range(1, 11)}


def test_cost_is_spelled_out_by_purpose() -> None:
    text = text_of(report_of_size())
    assert "  judging: USD 0.02 of a ceiling of USD 0.20 (12 model calls)" in text
    assert (
        "  runs (replay): USD 0.1234 of a ceiling of USD 1.00, USD 0.05 still held back"
        " (40 model calls, 1 unsettled, which count with their reservation)" in text
    )
    assert "a trial is the most expensive rung" in text


def test_the_gate_and_the_ranking_carry_their_intervals() -> None:
    text = text_of(report_of_size())
    assert "Gate triage@2 within 0.05 of triage@1: INCONCLUSIVE: difference +0.125 [-0.351" in text
    assert "1 (1–3)   triage@2  wins 53% [26%, 71%]  3 won, 11 even, 2 lost  best in 47%" in text
    assert "  judge: 16 judgements, 0 unreadable" in text
    assert "SIMULATED" in text
    assert "pass@1 25% [3%, 65%]" in text
    attempts = text_of(report_of_size(2, 3, 3))
    assert "pass@3" in attempts
    assert "pass^3" in attempts


def test_doubts_are_said() -> None:
    report = report_of_size(4, 2)
    assert report.grading is not None
    grader = report.grading.graders[0]
    (group,) = grader.ranking.groups
    halves = (replace(group, ratings=group.ratings[:2]), replace(group, ratings=group.ratings[2:]))
    ranking = replace(
        grader.ranking,
        groups=halves,
        not_ranked=("triage@9",),
        no_data=(("triage@1", "triage@3"),),
        n_inconclusive=1,
        n_position_dependent=2,
    )
    gate = replace(report.grading.gate, left_out=("a", "b"))
    grading = replace(
        report.grading,
        graders=(replace(grader, ranking=ranking, notes=("a note",)),),
        gate=gate,
        simulated=False,
    )
    text = text_of(replace(report, grading=grading))
    for wanted in (
        "group 2, not comparable with the others",
        "not ranked: triage@9: no game that counts",
        "no data: triage@1 and triage@3",
        "inconclusive: 1 game, not counted",
        "position: 2 ties since the judge contradicted itself",
        "note: a note",
        "left out: 2 tasks in which one has no score",
    ):
        assert wanted in text
    assert "SIMULATED" not in text


def test_a_trial_that_never_began_has_a_report() -> None:
    text = text_of(report_trial(plan_of_size(1, 1), TrialFacts("")))
    assert text.startswith("Trial triage  1 variant × 1 task: 1 planned, 0 started")
    assert "nothing was spent" in text
    assert "nothing ran" in text


def test_a_run_without_an_end_shows_no_time() -> None:
    text = text_of(report_of_size(1, 2, n_ended=1, is_graded=False, gate=""))
    assert "cut off $0.00 -" in text


def test_environments_that_differ_are_named() -> None:
    plan = plan_of_size(1, 1)
    task = replace(plan.tasks[0], environment=Raw(b'{"name":"a"}'))
    plan = replace(plan, tasks=(task,), environment=Raw(b'{"name":"b"}'))
    text = text_of(report_trial(plan, TrialFacts("t")))
    assert 'task 1: environment differs: name: recorded "a", given "b"' in text


def test_long_lists_are_cut_with_their_count() -> None:
    text = text_of(report_of_size(3, 20, ends=ENDS[3:], is_graded=False, gate=""))
    assert f"failed: … {40 - SHOWN_ITEMS} more of 40, in --json" in text


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_is_escaped_and_keeps_to_its_line(text: str) -> None:
    for line in trial_lines(report_of_size(n_ended=20, text=text + "x" * 300)):
        assert line.isprintable()
        assert line.encode() or not line
