"""Writes a trial's report as JUnit XML: a case per run, a suite per variant, the gate as a case.

Knows the document. A run that ended badly is a failure; one that never ended, or of which the first
grader could not tell, is an error: the answer is not known. That a run ended well and did not
succeed is no failure of its case, since comparing variants is what the gate is for.
"""

from collections.abc import Iterator, Mapping

from redrive.compare.trial_document import Cell
from redrive.compare.trial_report import RunView, TrialReport
from redrive.reports.junit import Case, Finding, Suite, junit_xml
from redrive.reports.trial import first_grades
from redrive.reports.trial_words import MEANINGS, gate_line, gate_text

_FAILURES = frozenset({"failed", "denied", "limit", "timeout"})


def trial_junit(report: TrialReport) -> bytes:
    """Write UTF-8 XML; texts may hold any character."""
    return junit_xml(f"redrive trial {report.name}", _suites(report))


def _suites(report: TrialReport) -> Iterator[Suite]:
    grades = first_grades(report)
    for entry in report.variants:
        cases = (_case(run, grades) for run in report.runs if run.variant == entry.variant)
        properties = {
            "trial": report.trial_id,
            "plan": report.plan_digest,
            "source": entry.source,
            "code": entry.digest,
            "role": entry.role,
            "isolation": report.isolation,
            "cost_usd": entry.cost_usd,
        }
        yield Suite(entry.variant, tuple(cases), tuple(properties.items()))
    if report.grading is not None and report.grading.gate is not None:
        gate = report.grading.gate
        finding = Finding(gate_line(gate), type=f"gate {gate.status}")
        case = Case(
            gate_text(gate),
            "gate",
            failure=finding if gate.status == "failed" else None,
            error=finding if gate.status == "inconclusive" else None,
            output=finding.message if gate.status == "passed" else "",
        )
        yield Suite("gate", (case,))


def _case(run: RunView, grades: Mapping[tuple[str, str, int], Cell]) -> Case:
    grade = grades.get((run.task_id, run.variant, run.attempt))
    return Case(
        f"{run.task} #{run.attempt}",
        run.variant,
        failure=_failure(run),
        error=_error(run, grade),
        output="\n".join(_output(run, grade)),
    )


def _failure(run: RunView) -> Finding | None:
    if run.outcome not in _FAILURES and not run.denied:
        return None
    outcome = run.outcome if run.outcome in _FAILURES else "denied"
    denied = "\n".join(f"denied: {call.tool}: {call.reason}" for call in run.denied)
    return Finding(f"{outcome}: {run.error or MEANINGS[outcome]}", denied, outcome)


def _error(run: RunView, grade: Cell | None) -> Finding | None:
    if not run.is_finished:
        return Finding(f"{run.outcome}: {MEANINGS[run.outcome]}", "", "missing")
    if grade is not None and grade.passed is None:
        return Finding(f"inconclusive: {grade.reason}".rstrip(": "), "", "inconclusive")
    return None


def _output(run: RunView, grade: Cell | None) -> Iterator[str]:
    """Say what a reader of a case wants to find again."""
    if run.session_id:
        yield f"session {run.session_id}, seed {run.seed}, USD {run.cost_usd}"
    if run.simulated:
        yield f"simulated: {', '.join(run.simulated)}"
    if grade is not None and grade.passed is not None:
        why = f": {grade.reason}" if grade.reason else ""
        yield f"{'succeeded' if grade.passed else 'did not succeed'}{why}"
    yield from run.notes
