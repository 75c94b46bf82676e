"""An audit, shown as text."""

from collections.abc import Iterator

from redrive.audit.report import AuditReport, recommendations
from redrive.reports.escape import escape

_SHOWN_STEPS = 200


def audit_lines(report: AuditReport, head: str) -> Iterator[str]:
    """Yield the lines of one session's audit: the finding first, then steps, then what to add."""
    yield f"{escape(report.session_id)}  {headline(report)}"
    for step in report.steps[:_SHOWN_STEPS]:
        recorded = step.recorded_step
        also = f" (recorded as {recorded})" if recorded not in (None, step.step) else ""
        fair = "" if step.decision_closed else ", decision open"
        yield f"  step {step.step}{also}  {step.status}{fair}  {escape(step.node_id)}"
        for gap in step.missing:
            yield f"    {gap.input_class}: {escape(gap.what)}: {escape(gap.reason)}"
        for note in step.notes:
            yield f"    note: {escape(note)}"
    if len(report.steps) > _SHOWN_STEPS:
        yield f"  … {len(report.steps) - _SHOWN_STEPS} further steps (all of them with --json)"
    yield from _advice(report)
    for note in report.notes:
        yield f"  note: {escape(note)}"
    yield f"  head {head}"


def headline(report: AuditReport) -> str:
    """Say in one line what the audit found."""
    first = report.first_open()
    if report.is_closed:
        return f"closed: all {len(report.steps)} steps"
    if first is None:
        return "open: no decision is recorded"
    classes = ", ".join(dict.fromkeys(gap.input_class for gap in first.missing))
    n_open = sum(step.status == "open" for step in report.steps)
    return (
        f"open: provenance gap at step {first.step}: {classes}"
        f" ({n_open} of {len(report.steps)} steps open, closed until {report.closed_until})"
    )


def _advice(report: AuditReport) -> Iterator[str]:
    advice = recommendations(report)
    if advice:
        yield "  what the recorder must add, by the steps it opens:"
    for item in advice:
        extra = f" ({escape(item.format_hint)})" if item.format_hint else ""
        yield f"    {item.steps} × {item.input_class}: {escape(item.hint)}{extra}"
