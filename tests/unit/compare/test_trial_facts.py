"""What a ledger folds to is what the report says."""

from decimal import Decimal

import msgspec
import pytest
from msgspec import Raw

from redrive.compare.trial_document import GroupGrade, dump_grade, grade_key
from redrive.compare.trial_facts import read_facts, report_ledger, sum_up_grades
from redrive.errors import RecordError
from redrive.replay.ledger import (
    Entry,
    Finished,
    Graded,
    Ledger,
    Opened,
    Reserved,
    Settled,
    Started,
    Stopped,
    fold,
)
from redrive.replay.trial_plan import plan_runs
from redrive.replay.trial_values import EpisodeEnd, Outcome, Purpose
from tests.trial_reports import plan_of_size

PLAN = plan_of_size(2, 2)
RUNS = tuple(plan_runs(PLAN))
CEILINGS = {Purpose.REPLAY: Decimal(1), Purpose.JUDGING: Decimal("0.5")}
OPENED = Opened("triage-dddddddd", PLAN.digest, RUNS, CEILINGS)


def reserved(charge: str, subject: str, purpose: Purpose = Purpose.REPLAY) -> Reserved:
    return Reserved(charge, purpose, subject, "small", Decimal("0.10"), charge * 8, 0)


def ledger_of(*facts) -> Ledger:
    return fold(Entry(number, number, fact) for number, fact in enumerate((OPENED, *facts)))


def graded(task: int, score: float) -> Graded:
    task_id = PLAN.tasks[task].task_id
    scores = {grade_key(entry.label, 1): score for entry in PLAN.workflows}
    return Graded(
        task_id, "correct", Raw(dump_grade(GroupGrade("correct", "exact", task_id, scores)))
    )


def test_runs_cost_what_their_charges_cost_and_name_who_answered() -> None:
    key, subject = RUNS[0].key, str(RUNS[0].key)
    ledger = ledger_of(
        Started(key, 1),
        reserved("a", subject),
        Settled("a", Decimal("0.01"), "usage", fingerprint="engine-1"),
        reserved("b", subject),
        Settled("b", Decimal("0.02"), "usage", fingerprint="engine-1"),
        reserved("c", subject),
        Settled("c", Decimal("0.10"), "reservation"),
        reserved("d", subject),
        Finished(key, EpisodeEnd(Outcome.COMPLETE)),
        reserved("j", "grade:x:style", Purpose.JUDGING),
        Settled("j", Decimal(0), "error"),
        Stopped("no more", Purpose.REPLAY),
        Stopped("interrupted"),
    )
    facts = read_facts(ledger)
    run = facts.runs[0]
    assert (run.spent_usd, run.reserved_usd) == (Decimal("0.13"), Decimal("0.10"))
    assert run.fingerprints == ("engine-1",)
    assert [other.execution for other in facts.runs] == [1, 0, 0, 0]
    replay, judging = facts.spend[Purpose.REPLAY], facts.spend[Purpose.JUDGING]
    assert (replay.calls, replay.unsettled, replay.ceiling_usd) == (4, 2, Decimal(1))
    assert (judging.calls, judging.unsettled, judging.spent_usd) == (1, 0, Decimal(0))
    assert [stop.purpose for stop in facts.stops] == ["replay", None]
    report = report_ledger(PLAN, ledger)
    assert (report.trial_id, report.finished, len(report.not_run)) == ("triage-dddddddd", 1, 3)
    assert report.grading is None


def test_a_ledger_without_entries_is_a_trial_that_never_began() -> None:
    report = report_ledger(PLAN, Ledger())
    assert (report.trial_id, report.planned, report.spend) == ("", 4, {})


def test_grades_are_summed_up_with_the_gate_of_the_plan() -> None:
    facts = [fact for run in RUNS for fact in (Started(run.key, 1), done(run.key))]
    ledger = ledger_of(*facts, graded(0, 1.0), graded(1, 0.0))
    plan = msgspec.structs.replace(PLAN, gate="challenger within 0.05 of incumbent")
    grading = report_ledger(plan, ledger).grading
    assert grading is not None
    assert grading.gate is not None
    assert (grading.gate.one, grading.gate.n_tasks) == ("triage@2", 2)
    assert [entry.graded for entry in grading.graders[0].variants] == [2, 2]
    plain = sum_up_grades(PLAN, ledger)
    assert plain is not None
    assert plain.gate is None


def done(key) -> Finished:
    return Finished(key, EpisodeEnd(Outcome.COMPLETE))


def test_a_grade_that_is_none_is_refused() -> None:
    bad = Graded(PLAN.tasks[0].task_id, "correct", Raw(b'{"grader":1}'))
    with pytest.raises(RecordError, match="the grade of task 0000000000000001 by correct"):
        report_ledger(PLAN, ledger_of(bad))


def test_a_ledger_of_another_plan_is_refused() -> None:
    other = msgspec.structs.replace(PLAN, digest="e" * 64)
    with pytest.raises(RecordError, match="belongs to another plan"):
        report_ledger(other, ledger_of())
