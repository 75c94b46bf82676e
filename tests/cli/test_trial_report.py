"""`redrive trial report` on stored trials: exit codes, every form, and no secret in any."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec import Raw

from redrive.app.trial_ledger import TrialLedger
from redrive.compare.trial_document import GroupGrade, dump_grade, grade_key
from redrive.replay.ledger import Graded
from redrive.replay.plan_document import dump_plan
from redrive.replay.trial_plan import TrialPlan, plan_runs
from redrive.replay.trial_values import DeniedCall, EpisodeEnd, Outcome, Purpose
from tests.schemas import check
from tests.trial_plans import LINES, WHOLE, plan_of

SECRET = "sk-proj-" + "fakefakefakefakefakefakefake01"
END = EpisodeEnd(Outcome.COMPLETE, Raw(b'{"label":"x"}'), isolation="bubblewrap", wall_s=1.0)


def store_trial(
    folder: Path,
    plan: TrialPlan,
    *,
    scores: dict[str, float] | None = None,
    ceiling: Purpose | None = None,
    n_ended: int | None = None,
    end: EpisodeEnd = END,
) -> None:
    """Store a trial in the test's store; `scores` by variant, the same on every task."""
    with TrialLedger.begin(folder / "store.db", plan, dump_plan(plan)) as ledger:
        for run in list(plan_runs(plan))[:n_ended]:
            ledger.start_run(run.key)
            ledger.finish_run(run.key, end)
        for task in plan.tasks if scores is not None else ():
            known = {grade_key(label, 1): score for label, score in scores.items()}
            grade = GroupGrade("correct", "exact", task.task_id, known)
            ledger.grade(Graded(task.task_id, "correct", Raw(dump_grade(grade))))
        if ceiling is not None:
            ledger.stop("the next call would pass it", ceiling)


def many(folder: Path, n_tasks: int = 8) -> TrialPlan:
    lines = "".join(f'{{"input": {n}}}\n' for n in range(n_tasks))
    return plan_of(folder, WHOLE.replace("within 0.05", "within 0.33"), lines)


@pytest.mark.parametrize(
    ("scores", "status", "code"),
    [
        ({"workflows@1": 1.0, "workflows@2": 1.0}, "passed", 0),
        ({"workflows@1": 1.0, "workflows@2": 0.0}, "failed", 1),
    ],
)
def test_the_gate_decides_the_exit_code(redrive, tmp_path: Path, scores, status, code) -> None:
    store_trial(tmp_path, many(tmp_path), scores=scores)
    found = check(redrive.json("trial", "report", "triage", code=code), "trial_report")
    assert found["grading"]["gate"]["status"] == status
    assert (found["planned"], found["finished"], found["not_run"]) == (16, 16, [])


def test_a_gate_that_few_tasks_cannot_decide_is_exit_3(redrive, tmp_path: Path) -> None:
    scores = {"workflows@1": 1.0, "workflows@2": 1.0}
    store_trial(tmp_path, plan_of(tmp_path), scores=scores)
    found = redrive.json("trial", "report", tmp_path / "plan.toml", code=3)
    assert found["grading"]["gate"]["status"] == "inconclusive"


def test_a_ceiling_is_exit_5_and_names_what_is_not_run(redrive, tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    store_trial(tmp_path, plan, n_ended=1, ceiling=Purpose.REPLAY)
    found = check(redrive.json("trial", "report", "triage", code=5), "trial_report")
    assert (found["planned"], found["started"], found["finished"]) == (4, 1, 1)
    assert found["not_run"] == [str(run.key) for run in list(plan_runs(plan))[1:]]
    assert found["spend"]["replay"]["ceiling_usd"] == "1.00"
    text = redrive("trial", "report", "triage")
    assert text.code == 5
    assert "STOPPED at the ceiling of replay" in text.out


def test_an_unfinished_trial_is_inconclusive(redrive, tmp_path: Path) -> None:
    store_trial(tmp_path, plan_of(tmp_path), n_ended=2)
    assert len(redrive.json("trial", "report", "triage", code=3)["not_run"]) == 2


def test_a_report_is_written_in_every_form(redrive, tmp_path: Path) -> None:
    store_trial(tmp_path, plan_of(tmp_path, WHOLE.replace('gate = "', '# "')))
    page, junit = tmp_path / "report.html", tmp_path / "report.xml"
    found = redrive("trial", "report", "triage", "--html", page, "--junit", junit)
    assert found.code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert junit.read_text().startswith("<?xml")
    assert redrive("trial", "report", "triage", "--html", tmp_path).code == 2


def test_no_secret_is_in_any_form_not_even_half_of_one(redrive, tmp_path: Path) -> None:
    denied = (DeniedCall("push", f"asked with {SECRET}"),)
    error = "words " * 330 + SECRET  # a cut at 2000 characters would leave half of it
    end = EpisodeEnd(
        Outcome.DENIED,
        Raw(json.dumps({"key": SECRET, "text": f"use {SECRET}"}).encode()),
        error=error,
        denied=denied,
        isolation="bubblewrap",
        notes=(SECRET,),
    )
    lines = json.dumps({"name": f"call with {SECRET}", "input": 1}) + "\n" + LINES
    store_trial(tmp_path, plan_of(tmp_path, lines=lines), end=end)
    page, junit = tmp_path / "report.html", tmp_path / "report.xml"
    found = redrive("trial", "report", "triage", "--html", page, "--junit", junit)
    document = redrive("trial", "report", "triage", "--json")
    for text in (found.out, document.out, page.read_text(), junit.read_text(), found.err):
        assert "fakefake" not in text
        assert "sk-proj" not in text
    assert "[redacted:" in found.out
    check(document.document, "trial_report")


def test_a_trial_that_is_not_there_is_exit_2(redrive, tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert redrive("trial", "report", "triage").code == 2
    store_trial(tmp_path, plan)
    found = redrive("trial", "report", "other")
    assert (found.code, found.out) == (2, "")
    (tmp_path / "other.toml").write_text(WHOLE.replace('"triage"', '"other"'))
    found = redrive("trial", "report", "other.toml")
    assert found.code == 2
    assert "no trial of the plan 'other' is stored" in found.err


def test_money_is_shown_to_the_last_digit(redrive, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, WHOLE.replace('"1.00"', '"0.000000000001"'))
    store_trial(tmp_path, plan)
    spend = redrive.json("trial", "report", "triage", code=3)["spend"]
    assert Decimal(spend["replay"]["left_usd"]) == Decimal("0.000000000001")
    assert spend["replay"]["left_usd"] == "0.000000000001"
