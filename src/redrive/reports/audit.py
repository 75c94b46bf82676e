"""An audit, shown as text."""

from collections.abc import Iterator
from itertools import groupby

from redrive.audit.report import AuditReport, ClosureReport, recommendations
from redrive.reports.counts import counted
from redrive.reports.escape import escape

_SHOWN_GROUPS = 100


def audit_lines(report: AuditReport, head: str) -> Iterator[str]:
    """Yield the lines of one session's audit: the finding first, then steps, then what to add.

    Neighbouring steps of which the same is said stand on one line.
    """
    yield f"{escape(report.session_id)}  {headline(report)}"
    for number, (_, steps) in enumerate(groupby(report.steps, key=_said_of)):
        if number == _SHOWN_GROUPS:
            yield "  … (all steps with --json)"
            break
        yield from _group_lines(tuple(steps))
    yield from _advice(report)
    for note in report.notes:
        yield f"  note: {escape(note)}"
    yield f"  head {head}"


def _said_of(step: ClosureReport) -> tuple[object, ...]:
    return step.status, step.decision_closed, step.missing, step.notes


def _group_lines(steps: tuple[ClosureReport, ...]) -> Iterator[str]:
    first, last = steps[0], steps[-1]
    fair = "" if first.decision_closed else ", decision open"
    if len(steps) == 1:
        recorded = first.recorded_step
        also = f" (recorded as {recorded})" if recorded not in (None, first.step) else ""
        yield f"  step {first.step}{also}  {first.status}{fair}  {escape(first.node_id)}"
    else:
        yield f"  steps {first.step}–{last.step}  {first.status}{fair}"
    for gap in first.missing:
        what = "" if gap.what == gap.input_class else f"{escape(gap.what)}: "
        yield f"    {gap.input_class}: {what}{escape(gap.reason)}"
    for note in first.notes:
        yield f"    note: {escape(note)}"


def headline(report: AuditReport) -> str:
    """Say in one line what the audit found."""
    first = report.first_open()
    if report.is_closed:
        count = len(report.steps)
        return f"closed: {'all ' if count > 1 else ''}{counted(count, 'step')}"
    if first is None:
        return "open: no decision is recorded"
    classes = ", ".join(dict.fromkeys(gap.input_class for gap in first.missing))
    n_open = sum(step.status == "open" for step in report.steps)
    steps = counted(len(report.steps), "step")
    return (
        f"open: provenance gap at step {first.step}: {classes}"
        f" ({n_open} of {steps} open, closed until {report.closed_until})"
    )


def _advice(report: AuditReport) -> Iterator[str]:
    advice = recommendations(report)
    if advice:
        yield "  what the recorder must add, by the steps it opens:"
    for item in advice:
        extra = f" ({escape(item.format_hint)})" if item.format_hint else ""
        yield f"    {item.steps} × {item.input_class}: {escape(item.hint)}{extra}"
