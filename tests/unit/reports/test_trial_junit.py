"""A run is a case: what ended badly fails, what is not known is an error."""

import xml.etree.ElementTree as ElementTree

import pytest
from msgspec.structs import replace

from redrive.reports.trial_junit import trial_junit
from tests.policy_documents import HOSTILE_TEXTS
from tests.trial_reports import report_of_size


def read(report):
    return ElementTree.fromstring(trial_junit(report))  # noqa: S314 - made above, and of no entity


def cases(root, suite):
    (found,) = (entry for entry in root if entry.get("name") == suite)
    return {case.get("name"): case for case in found.iter("testcase")}


def test_a_suite_per_variant_a_case_per_run_and_one_for_the_gate() -> None:
    root = read(report_of_size())
    assert dict(root.attrib) == {
        "name": "redrive trial triage",
        "tests": "25",
        "failures": "12",
        "errors": "1",
    }
    assert [suite.get("name") for suite in root] == ["triage@1", "triage@2", "triage@3", "gate"]
    denied = cases(root, "triage@2")["task 2 #1"][0]
    assert (denied.tag, denied.get("type")) == ("failure", "denied")
    assert (
        denied.get("message") == "denied: it called what it may not, and nothing of that happened"
    )
    assert denied.text == "denied: push: not granted\ndenied: push: not granted"
    failed = cases(root, "triage@1")["task 2 #1"][0]
    assert failed.get("message") == "failed: ValueError: no label"


def test_a_run_that_ended_well_and_did_not_succeed_passes_and_says_so() -> None:
    (output,) = cases(read(report_of_size()), "triage@1")["task 1 #1"]
    assert output.tag == "system-out"
    assert "did not succeed: expected bug" in output.text
    assert "session redrive:trial-0" in output.text
    simulated = cases(read(report_of_size()), "triage@2")["task 1 #1"][0]
    assert "simulated: mail" in simulated.text


def test_what_never_ended_is_an_error() -> None:
    root = read(report_of_size(2, 3, n_ended=3))
    missing = cases(root, "triage@2")["task 2 #1"][0]
    assert (missing.tag, missing.get("type")) == ("error", "missing")
    assert missing.get("message").startswith("interrupted: it was begun and never ended")
    assert cases(root, "triage@1")["task 3 #1"][0].get("message").startswith("not_started")


def test_a_run_that_cannot_be_judged_is_an_error() -> None:
    report = report_of_size()
    assert report.grading is not None
    grader = report.grading.graders[0]
    row = grader.tasks[0]
    cells = (replace(row.cells[0], passed=None, reason="unreadable"), *row.cells[1:])
    grader = replace(grader, tasks=(replace(row, cells=cells), *grader.tasks[1:]))
    report = replace(report, grading=replace(report.grading, graders=(grader,)))
    found = cases(read(report), "triage@1")["task 1 #1"][0]
    assert (found.tag, found.get("message")) == ("error", "inconclusive: unreadable")


def test_a_denied_call_that_the_code_swallowed_fails_the_run() -> None:
    report = report_of_size()
    denied = report.runs[4].denied
    runs = (replace(report.runs[0], denied=denied), *report.runs[1:])
    found = cases(read(replace(report, runs=runs)), "triage@1")["task 1 #1"][0]
    assert (found.tag, found.get("type")) == ("failure", "denied")


@pytest.mark.parametrize(
    ("status", "tag"), [("passed", "system-out"), ("failed", "failure"), ("inconclusive", "error")]
)
def test_the_gate_is_a_case(status: str, tag: str) -> None:
    report = report_of_size()
    assert report.grading is not None
    gate = replace(report.grading.gate, status=status)
    report = replace(report, grading=replace(report.grading, gate=gate))
    (case,) = cases(read(report), "gate").values()
    assert [entry.tag for entry in case] == [tag]
    assert case.get("name") == "triage@2 within 0.05 of triage@1"


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_is_text(text: str) -> None:
    root = read(report_of_size(text=text))
    assert len(list(root.iter("testcase"))) == 25
    assert len(list(read(report_of_size(is_graded=False)))) == 3
