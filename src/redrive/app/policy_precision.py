"""Measures a policy's precision from stored labels, and its recall against a named set of places.

Knows which labels speak of which version, and the file of a set. Must not know how figures are
computed or shown.

Source: DESIGN.md §7 "Annotation", §8 `policy precision`.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from redrive import canonical
from redrive.app.annotating import find_report, fires_of, read_document, report_of, reports_of_code
from redrive.compare.policy_report import PolicyDocument, PolicyReport
from redrive.compare.precision import (
    Drawn,
    Label,
    Precision,
    Recall,
    judge_gate,
    judge_precision,
    labels_needed,
    recall,
)
from redrive.errors import RecordError, UsageError
from redrive.reports.counts import counted
from redrive.reports.times import format_time
from redrive.stores.port import PolicyTables, ReportRow, SampleRow

_MAX_BYTES = 64 * 1024 * 1024


class Measured(msgspec.Struct, frozen=True):
    """What is known of a policy's precision.

    Attributes:
        precision: from the newest sample with labels of exactly this code.
        recall: against the named set, where one is named.
        min_precision: what the lower bound was to reach, where something was asked.
        verdict: `measured`, `met`, `missed` or `inconclusive`.
        labels_needed: the fewest labels that can reach `min_precision`.
        report: id of the report that the fires are taken from.
        digest: of the policy's code.
        reported: when the report was stored.
    """

    precision: Precision
    recall: Recall | None
    min_precision: float | None
    verdict: str
    labels_needed: int | None
    report: int
    digest: str
    reported: str


def measure_precision(
    tables: PolicyTables,
    spec: str,
    *,
    confidence: float = 0.95,
    min_precision: float | None = None,
    should_have_fired: Path | None = None,
) -> Measured:
    """Measure what the stored labels say of the newest report of `POLICY[@VERSION]`.

    Args:
        tables: of an opened store.
        spec: which policy.
        confidence: of every interval.
        min_precision: what the lower bound at a gate is to reach; absent: nothing is asked.
        should_have_fired: a file of event refs, which names the recall.

    Raises:
        UsageError: no such report or file.
        RecordError: the file is no list of event refs.
        StoreError: the report cannot be read.
    """
    row = find_report(tables, spec)
    document = read_document(tables, row)
    report = report_of(document, row)
    precision = _precision(tables, row, report, confidence)
    found = None
    if should_have_fired is not None:
        found = _recall(should_have_fired, document, report, confidence)
    return Measured(
        precision=precision,
        recall=found,
        min_precision=min_precision,
        verdict=judge_gate(precision, min_precision),
        labels_needed=None if min_precision is None else labels_needed(min_precision, confidence),
        report=row.id,
        digest=row.digest,
        reported=format_time(row.created_ns),
    )


def _precision(
    tables: PolicyTables, row: ReportRow, report: PolicyReport, confidence: float
) -> Precision:
    """Judge the newest sample that has labels, among those drawn from reports of this very code."""
    same_code = reports_of_code(tables, row)
    samples = [sample for sample in tables.samples(row.policy) if sample.report in same_code]
    labelled = [sample for sample in samples if tables.labels(sample.id)]
    fitting = labelled or samples
    sample = fitting[-1] if fitting else None
    labels = tables.labels(sample.id) if sample is not None else []
    found = judge_precision(
        [Label(label.event_ref, label.rater, label.label) for label in labels],
        Drawn(row.policy, row.version, None, len(fires_of(report, "head")), 0)
        if sample is None
        else Drawn(row.policy, row.version, sample.id, sample.population, len(sample.event_refs)),
        confidence,
    )
    notes = _notes(sample, report, labelled)
    if sample is not None:
        refs = {label.event_ref for label in labels}
        notes += _repetition(_report_of_sample(tables, sample, row, report), refs)
    return msgspec.structs.replace(found, notes=(*found.notes, *notes))


def _report_of_sample(
    tables: PolicyTables, sample: SampleRow, row: ReportRow, report: PolicyReport
) -> PolicyReport:
    """Give the report that a sample was drawn from, which may be older than the newest."""
    if sample.report == row.id:
        return report
    drawn_from = next(own for own in tables.reports(row.policy) if own.id == sample.report)
    return report_of(read_document(tables, drawn_from), drawn_from)


def _repetition(report: PolicyReport, labelled: Collection[str]) -> list[str]:
    """Say how many labelled fires are not independent of another one, where any is.

    A session in which the same command met the same reason again says the same thing again.
    """
    seen: Counter[tuple[str, str, str]] = Counter()
    for session in report.per_session:
        own = fires_of(msgspec.structs.replace(report, per_session=(session,)), "all")
        seen.update(
            (session.session_id, fire.reason, fire.context)
            for ref, fire in own.items()
            if ref in labelled
        )
    count = seen.total() - len(seen)
    if not count:
        return []
    return [
        f"{count} of {counted(seen.total(), 'labelled fire')}"
        f" {'repeats' if count == 1 else 'repeat'} another one's command in the same session:"
        " the interval treats them as independent"
    ]


def _notes(
    sample: SampleRow | None, report: PolicyReport, labelled: Sequence[SampleRow]
) -> list[str]:
    if sample is None:
        return ["no sample was drawn yet: redrive policy annotate draws one"]
    where = "live paths" if sample.branches == "head" else "all branches"
    notes = [f"sample drawn from the fires on {where}, seed {sample.seed}"]
    if sample.population != len(fires_of(report, sample.branches)):
        notes.append(
            f"the newest report has {len(fires_of(report, sample.branches))} fires: the sample was"
            " drawn from an earlier one of the same code"
        )
    if len(labelled) > 1:
        notes.append(f"{len(labelled)} samples have labels; the newest of them counts alone")
    return notes


def _recall(
    path: Path, document: PolicyDocument, report: PolicyReport, confidence: float
) -> Recall:
    refs = read_refs(path)
    matches = {f.event_ref: f for session in report.per_session for f in session.fires}
    found = recall(path.name, refs, fires_of(report, "all"), confidence)
    suppressed = sum(ref in matches and matches[ref].cooldown_suppressed for ref in found.missed)
    unjudged = {place.event_ref for place in report.cannot_evaluate}
    counts = {
        "were held back by a cooldown or a budget": suppressed,
        "could not be evaluated": sum(ref in unjudged for ref in found.missed),
        "lie in sessions that were not replayed": sum(
            not ref.startswith(tuple(f"{name}#" for name in document.sessions))
            for ref in found.missed
        ),
    }
    notes = [f"of the places missed, {count} {what}" for what, count in counts.items() if count]
    return msgspec.structs.replace(found, notes=tuple(notes))


def read_refs(path: Path) -> list[str]:
    """Read event refs, one a line: `{"event_ref": …}`, a JSON text, or the ref as it is.

    Returns:
        At least one ref, in the order of the file; empty lines are passed over.

    Raises:
        UsageError: there is no such file.
        RecordError: it cannot be read, holds no ref, or a line that is none.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", hint="--should-have-fired FILE") from error
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise RecordError(f"{path}: larger than {_MAX_BYTES} bytes")
    refs = [
        _parse_ref(line.strip(), f"{path}:{number}")
        for number, line in enumerate(data.split(b"\n"), start=1)
        if line.strip()
    ]
    if not refs:
        raise RecordError(f"{path}: holds no event ref", hint="one SESSION_ID#EVENT_ID a line")
    return refs


def _parse_ref(line: bytes, where: str) -> str:
    try:
        value: Any = canonical.decode_value(line) if line[:1] in b'{"' else line.decode()
    except ValueError:
        value = None
    ref = value.get("event_ref") if isinstance(value, dict) else value
    if not isinstance(ref, str) or "#" not in ref:
        raise RecordError(f"{where}: no event ref", hint="SESSION_ID#EVENT_ID, as reports print it")
    return canonical.escape_surrogates(ref)
