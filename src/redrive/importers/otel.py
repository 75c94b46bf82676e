"""Imports OpenTelemetry traces and logs of model calls: `otel_genai` and `openinference`.

Knows how a file becomes sessions: one per trace id. Traces and logs of one run are companions of
one session. Both importers read every convention alike; they differ in what they claim.

Source: DESIGN.md §3, §8; docs/opentelemetry.md.
"""

from collections.abc import Iterator, Mapping, Sequence

from redrive.importers import otel_facts as facts
from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.otel_facts import SpanKind
from redrive.importers.otel_messages import read_exchange
from redrive.importers.otel_project import Projection, Sourced
from redrive.importers.otel_sniff import OPENINFERENCE_NAME, OTEL_GENAI_NAME, find_shape
from redrive.importers.otel_spans import Telemetry, read_telemetry
from redrive.importers.otel_trace import Trace, build_trace
from redrive.record.event import FLAG_RECOVERED, Damage, Kind

TRACES, LOGS = "traces", "logs"


class OtelImporter:
    """Projects OpenTelemetry JSON to drafts, under one of its two names."""

    version = 1

    def __init__(self, name: str) -> None:
        self.name = name

    def sniff(self, source: SourceFile) -> int:
        """Claim span exports by the keys of their outermost objects; a file goes to one name."""
        shape = find_shape(source.head())
        return shape.confidence if shape is not None and shape.name == self.name else 0

    def role(self, source: SourceFile) -> str:
        """Give `logs` for a file of log records alone, else `traces`."""
        shape = find_shape(source.head())
        return LOGS if shape is not None and shape.is_logs else TRACES

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        """Yield the drafts in file order; a session begins at the first record of its trace."""
        records: list[Telemetry] = []
        damaged: list[tuple[int, Damage]] = []
        for item in read_telemetry(source):
            if isinstance(item, Damage):
                tally.damage.append(item)
                damaged.append((len(records), item))
            else:
                records.append(item)
        drafts = _damage_drafts(damaged, records)
        for trace in split_traces(records):
            _count_trace(trace, tally)
            drafts += Projection(trace).drafts()
        drafts.sort(key=lambda sourced: sourced[0])
        for _, draft in drafts:
            yield draft


def split_traces(records: Sequence[Telemetry]) -> list[Trace]:
    """Group records by trace id, in order of appearance; those without one are one group."""
    groups: dict[str, list[Telemetry]] = {}
    for record in records:
        groups.setdefault(record.trace_id, []).append(record)
    return [build_trace(name or group[0].digest[:16], group) for name, group in groups.items()]


def _damage_drafts(
    damaged: Sequence[tuple[int, Damage]], records: Sequence[Telemetry]
) -> list[Sourced]:
    """Put each damage into the session of the record before it, else of the first record.

    A file without any record has no session: its damage stands in the report alone.
    """
    nameless = next((record.digest[:16] for record in records if not record.trace_id), "")
    drafts: list[Sourced] = []
    for number, (position, item) in enumerate(damaged if records else ()):
        record = records[max(position - 1, 0)]
        name = f"damage:{item.offset}/{number}"
        session = record.trace_id or nameless
        draft = Draft(session, name, Kind.DAMAGE, item, item.offset, item.bytes)
        drafts.append((position, draft))
    return drafts


def _count_trace(trace: Trace, tally: FileTally) -> None:
    """Add one trace to the counts of its file: strictly parsed records only, before any joining.

    A call's key is its trace and id, or its span where it has none. A tool span is one call, and
    one answer if it carries a result.
    """
    strict = [record for record in trace.records if FLAG_RECOVERED not in record.flags]
    spans = [record for record in strict if not record.is_log]
    tally.records += len(strict)
    counts = {"roots": 0, "tool_spans": 0, "error_spans": 0}
    for record in spans:
        counts["roots"] += not record.parent_id
        counts["error_spans"] += record.is_error
        if facts.kind_of(record) is SpanKind.TOOL:
            counts["tool_spans"] += 1
            key = f"{trace.id}/{facts.tool_call_id(record.attributes) or record.span_id}"
            tally.called.add(key)
            if facts.has_result(record):
                tally.answered.add(key)
    _count_calls(trace, tally)
    external = {key for key in tally.answered - tally.called if key and key.startswith(trace.id)}
    counts["external_results"] = len(external)
    _add_extra(tally, counts, always=("roots",) if spans else ())
    if trace.repeated:
        tally.lost.append(f"spans exported again in trace {trace.id}: {len(trace.repeated)}")


def _count_calls(trace: Trace, tally: FileTally) -> None:
    repeated = [r for r in trace.repeated if facts.kind_of(r) is SpanKind.MODEL]
    calls = [(call.record, call.node, call.exchange) for call in trace.models]
    calls += [(record, record.span_id, read_exchange(record)) for record in repeated]
    for record, node, exchange in calls:
        if FLAG_RECOVERED in record.flags:
            continue
        outputs, inputs = exchange.outputs or (), exchange.inputs or ()
        tally.model_calls += (
            max(len(outputs), 1) if record.is_choice else record.is_details or not record.is_log
        )
        for message in outputs:
            tally.called.update(f"{trace.id}/{part.call_id or node}" for part in message.calls)
        for message in inputs:
            tally.answered.update(f"{trace.id}/{part.call_id or node}" for part in message.results)
    tally.tool_calls = len(tally.called)
    tally.tool_results = len(tally.answered)


def _add_extra(tally: FileTally, counts: Mapping[str, int], always: Sequence[str]) -> None:
    for name, count in counts.items():
        known = tally.extra.get(name, 0)
        if count or name in always:
            tally.extra[name] = count + (known if isinstance(known, int) else 0)


OTEL_GENAI = OtelImporter(OTEL_GENAI_NAME)
OPENINFERENCE = OtelImporter(OPENINFERENCE_NAME)
