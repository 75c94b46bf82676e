"""Sorts the records of one trace: model calls, tool uses, the rest, and whose they are.

Knows spans and exchanges. Must not know drafts or files; `otel_project` makes events of a trace.

Rules:

* node = span id: a span and the log records of it are one decision;
* a flow of its own begins at a tool span, and at an agent span below another agent or a tool;
* a span that was exported twice counts once.

Source: docs/opentelemetry.md "One trace, one session".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from redrive import canonical
from redrive.importers import otel_facts as facts
from redrive.importers.otel_facts import SpanKind
from redrive.importers.otel_messages import exchange_of_events, is_message_event, read_exchange
from redrive.importers.otel_parts import CallPart, Exchange, ResultPart
from redrive.importers.otel_spans import Telemetry
from redrive.record.event import MAIN_ACTOR


class ModelCall(msgspec.Struct, frozen=True):
    """One model call: a span, or the log records of one span.

    Attributes:
        record: the span, or the log record that ends the call.
        node: the span's id.
        start_ns, end_ns: when it was asked and answered.
        exchange: its messages.
        actor: whose decision it is.
    """

    record: Telemetry
    node: str
    start_ns: int | None
    end_ns: int | None
    exchange: Exchange
    actor: str = MAIN_ACTOR

    @property
    def is_silent(self) -> bool:
        """Whether its answer is not in this source: content capture was off, or logs hold it."""
        return self.exchange.outputs is None

    def calls(self) -> Iterator[CallPart]:
        """Yield the tool calls of the answer, in call order."""
        for message in self.exchange.outputs or ():
            yield from message.calls

    def results(self) -> Iterator[ResultPart]:
        """Yield the tool answers in the prompt, in order."""
        for message in self.exchange.inputs or ():
            yield from message.results


class Trace(msgspec.Struct, frozen=True):
    """The records of one trace, sorted by what they are, each in file order."""

    id: str
    records: tuple[Telemetry, ...]
    models: tuple[ModelCall, ...]
    tools: tuple[Telemetry, ...]
    others: tuple[Telemetry, ...]
    repeated: tuple[Telemetry, ...]
    actors: dict[str, str]
    labels: dict[str, str]

    def actor_of(self, record: Telemetry) -> str:
        """Name the flow that a span runs in."""
        return self.actors.get(record.span_id, MAIN_ACTOR)

    def label_of(self, record: Telemetry) -> str:
        """Name the flow that begins at a tool or agent span."""
        return self.labels.get(record.span_id, MAIN_ACTOR)


def build_trace(trace_id: str, records: Sequence[Telemetry]) -> Trace:
    """Sort the records of one trace; a span that was exported twice counts once."""
    spans = [record for record in records if not record.is_log]
    kinds = {record.ordinal: facts.kind_of(record) for record in spans}
    labels = _label_flows(spans, kinds)
    actors = find_actors(spans, kinds, labels)
    first = {record.span_id: record.ordinal for record in reversed(spans)}
    unique = [record for record in spans if first[record.span_id] == record.ordinal]
    logged, loose = _group_logs([record for record in records if record.is_log])
    models = [
        ModelCall(
            record=record,
            node=record.span_id,
            start_ns=record.start_ns,
            end_ns=record.end_ns,
            exchange=read_exchange(record),
            actor=actors.get(record.span_id, MAIN_ACTOR),
        )
        for record in unique
        if kinds[record.ordinal] is SpanKind.MODEL
    ]
    others = [r for r in unique if kinds[r.ordinal] in (SpanKind.AGENT, SpanKind.OTHER)]
    return Trace(
        id=trace_id,
        records=tuple(records),
        models=tuple(models + logged),
        tools=tuple(r for r in unique if kinds[r.ordinal] is SpanKind.TOOL),
        others=tuple(others + loose),
        repeated=tuple(r for r in spans if first[r.span_id] != r.ordinal),
        actors=actors,
        labels=labels,
    )


def _group_logs(records: Iterable[Telemetry]) -> tuple[list[ModelCall], list[Telemetry]]:
    """Put the message events of one span together; give the rest apart."""
    groups: dict[str, list[Telemetry]] = {}
    loose: list[Telemetry] = []
    calls: list[ModelCall] = []
    for record in records:
        if record.is_details:
            calls.append(_logged_call([record], read_exchange(record)))
        elif is_message_event(record.name):
            group = groups.setdefault(record.span_id, [])
            group.append(record)
            if not record.span_id and record.is_choice:
                groups[f"#{record.ordinal}"] = groups.pop("")
        else:
            loose.append(record)
    calls += [
        _logged_call(group, exchange_of_events((r.name, r.body) for r in group))
        for group in groups.values()
    ]
    return calls, loose


def _logged_call(group: Sequence[Telemetry], exchange: Exchange) -> ModelCall:
    asked = [r.start_ns for r in group if not r.is_choice and r.start_ns is not None]
    last = next((r for r in reversed(group) if r.is_choice), group[-1])
    return ModelCall(
        record=last,
        node=last.span_id or f"#{last.ordinal}",
        start_ns=max(asked, default=last.start_ns),
        end_ns=last.end_ns,
        exchange=exchange,
    )


def find_actors(
    spans: Sequence[Telemetry], kinds: Mapping[int, SpanKind], labels: Mapping[str, str]
) -> dict[str, str]:
    """Map span id → the flow that the span runs in. Cost: O(n), cycles of parents included."""
    by_id = {record.span_id: record for record in spans}
    inside: dict[str, tuple[str, bool]] = {}
    for record in spans:
        chain: list[Telemetry] = []
        walked: set[str] = set()
        step: Telemetry | None = record
        while step is not None and step.span_id not in inside and step.span_id not in walked:
            chain.append(step)
            walked.add(step.span_id)
            step = by_id.get(step.parent_id)
        flow = inside.get(step.span_id, (MAIN_ACTOR, False)) if step else (MAIN_ACTOR, False)
        for span in reversed(chain):
            flow = _flow_inside(flow, kinds[span.ordinal], labels.get(span.span_id, MAIN_ACTOR))
            inside[span.span_id] = flow
    return {
        span: inside.get(record.parent_id, (MAIN_ACTOR, False))[0] for span, record in by_id.items()
    }


def _flow_inside(flow: tuple[str, bool], kind: SpanKind, label: str) -> tuple[str, bool]:
    """Give (actor, is below an agent or tool) for what runs inside a span of this kind."""
    actor, is_below = flow
    if kind is SpanKind.TOOL:
        return label, True
    if kind is SpanKind.AGENT:
        return (label if is_below else actor), True
    return flow


def _label_flows(spans: Iterable[Telemetry], kinds: Mapping[int, SpanKind]) -> dict[str, str]:
    """Name each agent and tool span: its name, with the span id where the name is not unique."""
    names = {
        record.span_id: canonical.safe_text(
            facts.agent_name(record)
            if kinds[record.ordinal] is SpanKind.AGENT
            else facts.tool_name(record)
        )
        for record in spans
        if kinds[record.ordinal] in (SpanKind.AGENT, SpanKind.TOOL)
    }
    taken = Counter([MAIN_ACTOR, "", *names.values()])
    return {
        span: name if taken[name] == 1 and name else f"{name}#{span}"
        for span, name in names.items()
    }
