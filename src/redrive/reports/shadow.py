"""Shadow runs, investigations and comparisons, shown as text.

Knows the documents. Must not know how they were made. Text from a recording is escaped and cut.
"""

from collections.abc import Iterator, Sequence

from msgspec import UnsetType

from redrive import canonical
from redrive.audit.report import AuditReport
from redrive.compare.divergence import Comparison, Difference, Divergence
from redrive.compare.document import RunDocument, ShadowDocument
from redrive.compare.verdict import Verdict
from redrive.compare.views import CallView, DecisionView
from redrive.reports.audit import audit_lines, headline
from redrive.reports.counts import counted
from redrive.reports.escape import escape

_CUT_CHARS = 300

TEXT_ONLY = "every decision came again; the words differ"
MEANINGS = {
    "IDENTICAL_REPLAY": "every decision and every word came again",
    "DETERMINISTIC_CORROBORATION": "the recorded failure came again from the recorded tool answers",
    "STOCHASTIC_MODEL_DIVERGENCE": "the model decided otherwise although every tool answer matched",
    "INSUFFICIENT_EVIDENCE": "the record cannot say what would have happened",
}


def meaning_of(document: ShadowDocument) -> str:
    """Say what the verdict means: its word follows the signature, its meaning the decision."""
    is_diverged = any(run.decision_divergence is not None for run in document.runs)
    if document.verdict is Verdict.STOCHASTIC_MODEL_DIVERGENCE and not is_diverged:
        return TEXT_ONLY
    return MEANINGS[document.verdict]


def shadow_lines(document: ShadowDocument, head: str) -> Iterator[str]:
    """Yield the lines of a shadow document: the verdict first."""
    yield f"{escape(document.session_id)}  {document.verdict}: {meaning_of(document)}"
    label = "" if document.mode == "replay" else f" ({document.mode})"
    yield f"  model {escape(document.model)}{label}, decisions read from {document.decisions}"
    closure = document.closure
    yield (
        f"  closure: {closure.status}, {closure.steps - closure.n_open} of {closure.steps} steps"
        f" closed, closed until {closure.closed_until}"
    )
    yield from _gap_lines(document)
    for override in document.overrides:
        yield f"  override: {escape(override.name)} = {escape(str(override.value))}"
    for run in document.runs:
        yield from _run_lines(run)
    for note in document.notes:
        yield f"  note: {escape(note)}"
    yield f"  head {head}"


def _gap_lines(document: ShadowDocument) -> Iterator[str]:
    if document.closure.status == "closed":
        return
    for step in document.closure.open_steps[:1]:
        for gap in step.missing:
            yield (
                f"  provenance gap at step {step.step}: {gap.input_class}:"
                f" {escape(gap.what)}: {escape(gap.reason)}"
            )
    if not document.runs:
        yield "  no model was asked: on an open trajectory no divergence is attributed"


def _run_lines(run: RunDocument) -> Iterator[str]:
    yield (
        f"  one run, decisions: {run.decisions}, recorded answers served: {run.served},"
        f" live calls: {run.live_calls}, stopped: {run.stop}"
    )
    if run.missing_call is not None:
        missing = run.missing_call
        call = _call(missing.tool, missing.arguments)
        yield f"  no recorded answer at decision {missing.decision}: {call} ({missing.why})"
    if run.nearest_recorded is not None:
        near = run.nearest_recorded
        where = f" at decision {near.decision}" if near.decision is not None else ""
        differs = f", differs in {escape(', '.join(near.differs))}" if near.differs else ""
        yield f"    nearest recorded call{where}: {_call(near.tool, near.arguments)}{differs}"
    yield from _divergence_lines(run.first_divergence)
    if run.n_differences > 1:
        yield from _difference_lines(run.differences, run.n_differences)
    if run.text_only:
        yield f"  decisions that differ in text alone: {run.text_only}"
    for change in [run.model_change] if run.model_change is not None else []:
        yield (
            f"  model changed at decision {change.decision}: {change.field}"
            f" {escape(change.recorded)} → {escape(change.replayed)}"
        )
    if run.unused_evidence:
        yield f"  recorded answers that were not asked for: {len(run.unused_evidence)}"
    for rule, count in run.ignored.items():
        if count:
            yield f"  ignored by rule {rule}: {count}"


def _difference_lines(differences: Sequence[Difference], total: int) -> Iterator[str]:
    for entry in differences:
        node = f" ({escape(entry.node_id)})" if entry.node_id else ""
        yield f"  decision {entry.decision}{node}: {', '.join(entry.fields)}"
    if total > len(differences):
        yield f"  … {total - len(differences)} further differences (--max-differences)"


def _divergence_lines(divergence: Divergence | None) -> Iterator[str]:
    if divergence is None:
        return
    node = f" ({escape(divergence.node_id)})" if divergence.node_id else ""
    fields = ", ".join(divergence.fields)
    yield f"  first divergence at decision {divergence.decision}{node}: {fields}"
    yield f"    expected: {_decision(divergence.expected)}"
    yield f"    found:    {_decision(divergence.found)}"


def _decision(view: DecisionView | None) -> str:
    if view is None:
        return "nothing"
    calls = ", ".join(_call(call.tool, call.arguments) + _result(call) for call in view.calls)
    text = escape(_cut(view.text))
    end = " [ends the run]" if view.is_final else ""
    return f"{calls or repr(text)}{end}" if not (calls and text) else f"{calls} — {text}{end}"


def _call(tool: str, arguments: object) -> str:
    written = canonical.encode(arguments).decode()
    return f"{escape(tool)}({escape(_cut(written))})"


def _result(call: CallView) -> str:
    """Show the answer of a call, where results are compared."""
    if isinstance(call.result, UnsetType):
        return ""
    return f" → {escape(call.status or '')} {escape(_cut(bytes(call.result).decode()))}"


def _cut(text: str) -> str:
    if len(text) <= _CUT_CHARS:
        return text
    return f"{text[:_CUT_CHARS]}… ({len(text)} characters, {canonical.text_digest(text)[:8]})"


def investigation_lines(document: ShadowDocument, audit: AuditReport, head: str) -> Iterator[str]:
    """Yield the lines of an investigation: question, answer, and what each rests on."""
    model, session_id = escape(document.model), escape(audit.session_id)
    yield f"Question  would {model} decide again as {session_id} did?"
    yield f"Answer    {document.verdict}: {meaning_of(document)}"
    yield f"Closure   {headline(audit)}"
    yield ""
    yield "1 audit"
    yield from audit_lines(audit, head)
    yield ""
    yield "2 shadow"
    yield from shadow_lines(document, head)


def diff_lines(left: str, right: str, comparison: Comparison) -> Iterator[str]:
    """Yield the lines of a comparison of two recorded paths."""
    sides = f"{escape(left)} and {escape(right)}"
    count = comparison.n_differences
    if count == 0:
        yield f"{sides}: equal in every decision and result"
        return
    yield f"{sides}: {counted(count, 'step')} {'differs' if count == 1 else 'differ'}"
    if comparison.decision_divergence is None:
        yield "  every decision is the same; what differs are words or results"
    yield from _divergence_lines(comparison.first_divergence)
    yield from _difference_lines(comparison.differences, comparison.n_differences)
    yield (
        f"  tool sequences: {comparison.tool_sequence_edits} edits,"
        f" distance {comparison.tool_sequence_distance:.4f}"
    )
