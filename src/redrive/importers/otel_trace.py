"""Joins the spans or log records of one trace to a session: who decided what, and who answered.

Knows spans, exchanges and drafts. Must not know files or bytes beyond the place of a record.

Rules, each in one function:

* node = span id, group = span id: a span and the log records of it are one decision;
* span parents are causality, not conversation: no draft has a parent, order is time;
* a flow of its own begins at a tool span, and at an agent span below another agent or a tool;
* a tool span and the model's call with the same id are one call; the call stands with the model;
* a message repeated in every prompt is one event, where it was first shown;
* a result that came no later than its call's own span ended belongs to that span's node.

Source: DESIGN.md §3; docs/formats/otel.md "One trace, one session".
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.importers import otel_facts as facts
from redrive.importers.draft import Draft
from redrive.importers.otel_facts import SpanKind
from redrive.importers.otel_messages import (
    CallPart,
    Exchange,
    Message,
    ResultPart,
    dump_messages,
    exchange_of_events,
    is_message_event,
    read_exchange,
)
from redrive.importers.otel_spans import Telemetry
from redrive.record.event import (
    MAIN_ACTOR,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    Note,
    Payload,
    SessionEnded,
    SessionStarted,
    ToolCall,
    ToolResult,
    UserMessage,
    raw_of,
)
from redrive.record.session import FLAG_META

_REFERENCES = {"uri": "uri", "file": "file_id", "image_url": "image_url"}
_LATEST = 2**63


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

    def actor_of(self, record: Telemetry) -> str:
        """Name the flow that a span runs in."""
        return self.actors.get(record.span_id, MAIN_ACTOR)


def build_trace(trace_id: str, records: Sequence[Telemetry]) -> Trace:
    """Sort the records of one trace; a span that was exported twice counts once."""
    spans = [record for record in records if not record.is_log]
    kinds = {record.ordinal: facts.kind_of(record) for record in spans}
    actors = find_actors(spans, kinds)
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


def find_actors(spans: Sequence[Telemetry], kinds: dict[int, SpanKind]) -> dict[str, str]:
    """Map span id → the flow that the span runs in. Cost: O(n), cycles of parents included."""
    by_id = {record.span_id: record for record in spans}
    labels = _label_flows(by_id.values(), kinds)
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


def _label_flows(spans: Iterable[Telemetry], kinds: dict[int, SpanKind]) -> dict[str, str]:
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


Sourced = tuple[int, Draft]


@dataclass(slots=True)
class Projection:
    """Turns one trace into drafts; each comes with the ordinal of the record it belongs to.

    `called` are the ids that model answers or tool spans of this trace call.
    """

    trace: Trace
    ids: Counter[str] = field(default_factory=Counter)
    owners: dict[str | None, list[ModelCall]] = field(default_factory=dict)
    shown: Counter[str | None] = field(default_factory=Counter)
    said: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    called: set[str | None] = field(default_factory=set)

    def drafts(self) -> Iterator[Sourced]:
        """Yield all drafts of the trace, grouped by record, not yet in file order."""
        by_time = sorted(
            self.trace.models,
            key=lambda m: (_LATEST if m.start_ns is None else m.start_ns, m.record.ordinal),
        )
        for call in by_time:
            for part in call.calls():
                self.owners.setdefault(part.call_id, []).append(call)
        self.called = {*self.owners, *(facts.tool_call_id(t.attributes) for t in self.trace.tools)}
        yield self._started(by_time)
        for tool in self.trace.tools:
            yield from self._tool(tool)
        for call in by_time:
            yield from self._model(call)
        for record in self.trace.others:
            yield from self._other(record)

    # --- the session

    def _started(self, by_time: Sequence[ModelCall]) -> Sourced:
        first = self.trace.records[0]
        users = (m for call in by_time for m in call.exchange.inputs or () if m.role == "user")
        task = next((m.text for m in users if m.text), None)
        attributes = [record.attributes for record in self.trace.records]
        agents = (facts.find_text(a, "gen_ai.agent.name", "agent_name") for a in attributes)
        payload = SessionStarted(
            task=task,
            format_id=self.trace.id,
            agent=next(filter(None, agents), None),
            thread=next(filter(None, map(facts.thread_of, attributes)), None),
        )
        starts = [r.start_ns for r in self.trace.records if r.start_ns is not None]
        return self._draft(
            first, Kind.SESSION_STARTED, payload, "session", ts=min(starts, default=None)
        )

    def _other(self, record: Telemetry) -> Iterator[Sourced]:
        """Keep what is no decision and no answer as a note outside the DAG."""
        note = Note(label=record.name or "span", text=facts.error_text(record))
        own = record.span_id or f"#{record.ordinal}"
        actor = MAIN_ACTOR if record.is_log else self.trace.actor_of(record)
        name = f"{own}/{record.ordinal}" if record.is_log else own
        yield self._draft(record, Kind.NOTE, note, name, ts=record.end_ns, actor=actor)
        is_root = not record.is_log and not record.parent_id
        if is_root and record.is_error and facts.kind_of(record) is SpanKind.AGENT:
            ended = SessionEnded(status="failure")
            yield self._draft(record, Kind.SESSION_ENDED, ended, own, ts=record.end_ns)

    # --- a model call

    def _model(self, call: ModelCall) -> Iterator[Sourced]:
        yield from self._news(call)
        yield self._request(call)
        attributes = call.record.attributes
        exchange = call.exchange
        usage = facts.usage_of(attributes)
        if call.record.is_error:
            error = ModelError(message=facts.error_text(call.record))
            yield self._of_call(call, Kind.MODEL_ERROR, error)
            if exchange.outputs is None and usage is None:
                return
        outputs = exchange.outputs or ()
        reasoning = [m.reasoning for m in outputs if m.reasoning is not None]
        stops = [m.stop_reason for m in outputs if m.stop_reason is not None]
        response = ModelResponse(
            text="\n".join(m.text for m in outputs if m.text),
            reasoning="\n".join(reasoning) if reasoning else None,
            model=facts.model_served(attributes),
            fingerprint=facts.fingerprint(attributes),
            stop_reason=facts.stop_reason(attributes) or next(iter(stops), None),
            usage=usage,
            content=raw_of(dump_messages(outputs)) if any(m.other for m in outputs) else UNSET,
            truncated=exchange.is_output_cut,
        )
        yield self._of_call(call, Kind.MODEL_RESPONSE, response)
        for part in call.calls():
            yield self._of_call(call, Kind.TOOL_CALL, _tool_call(part.tool, part.arguments), part)

    def _of_call(
        self, call: ModelCall, kind: Kind, payload: Payload, part: CallPart | None = None
    ) -> Sourced:
        call_id = part.call_id if part else None
        return self._draft(
            call.record,
            kind,
            payload,
            call.node,
            node=call.node,
            actor=call.actor,
            ts=call.end_ns,
            call_id=call_id,
            group=call.node,
        )

    def _request(self, call: ModelCall) -> Sourced:
        """Give what was asked. A log's request stands before the span's node, not in it.

        So the span's own request, which has the sampling parameters, leads where both are stored.
        """
        attributes = call.record.attributes
        exchange = call.exchange
        api, body = facts.find_request_body(attributes) or (None, None)
        inputs = exchange.inputs
        request = ModelRequest(
            model=facts.model_requested(attributes),
            api=api,
            body=body,
            parts=UNSET if inputs is None else raw_of(dump_messages(inputs)),
            sampling=facts.sampling_of(attributes),
            truncated=exchange.is_input_cut,
            by_reference=tuple(_references(inputs or ())),
        )
        is_log = call.record.is_log
        return self._draft(
            call.record,
            Kind.MODEL_REQUEST,
            request,
            call.node,
            node=f"{call.node}/input" if is_log else call.node,
            actor=call.actor,
            ts=call.start_ns,
            group=None if is_log else call.node,
        )

    def _news(self, call: ModelCall) -> Iterator[Sourced]:
        """Yield what this prompt shows for the first time: user and system texts, and results."""
        seen: Counter[Any] = Counter()
        for message in call.exchange.inputs or ():
            for result in message.results:
                seen[result.call_id] += 1
                if seen[result.call_id] > self.shown[result.call_id]:
                    self.shown[result.call_id] += 1
                    yield self._result(call, result)
            if message.role in _SPEAKERS and (message.text or message.other):
                key = (call.actor, message.role, _identity(message))
                seen[key] += 1
                if seen[key] > self.said[key]:
                    self.said[key] += 1
                    yield self._user_message(call, message)

    def _user_message(self, call: ModelCall, message: Message) -> Sourced:
        content = raw_of(list(message.other)) if message.other else UNSET
        return self._draft(
            call.record,
            Kind.USER_MESSAGE,
            UserMessage(text=message.text, content=content, role=message.role),
            f"{call.node}/input",
            node=f"{call.node}/input",
            actor=call.actor,
            ts=call.start_ns,
            flags=() if message.role == "user" else (FLAG_META,),
        )

    def _result(self, call: ModelCall, result: ResultPart) -> Sourced:
        """Give an answer that only a prompt shows; external if nothing in this trace called it."""
        owner = self._owner(result.call_id, call.start_ns)
        failed = self._failed_tool(result.call_id)
        payload = ToolResult(
            status="error" if failed else "ok",
            result=_raw(result.value),
            tool=result.tool,
            is_external=result.call_id not in self.called,
        )
        return self._draft(
            call.record,
            Kind.TOOL_RESULT,
            payload,
            f"{call.node}/input",
            node=_node_of_result(owner, call.start_ns, f"{call.node}/input"),
            actor=call.actor if owner is None else owner.actor,
            ts=call.start_ns,
            call_id=result.call_id,
        )

    def _owner(self, call_id: str | None, ts_ns: int | None) -> ModelCall | None:
        """Find the model call that made a tool call: of several, the last that began before."""
        owners = self.owners.get(call_id, [])
        before = [o for o in owners if ts_ns is None or o.start_ns is None or o.start_ns <= ts_ns]
        return before[-1] if before else next(iter(owners), None)

    def _failed_tool(self, call_id: str | None) -> bool:
        return call_id is not None and any(
            tool.is_error and facts.tool_call_id(tool.attributes) == call_id
            for tool in self.trace.tools
        )

    # --- a tool span

    def _tool(self, tool: Telemetry) -> Iterator[Sourced]:
        """Yield a tool span's answer, and its call where no model answer holds it."""
        attributes = tool.attributes
        call_id = facts.tool_call_id(attributes)
        pair_id = call_id or tool.span_id
        name = facts.tool_name(tool)
        owner = self._owner(call_id, tool.start_ns) if call_id else None
        actor = owner.actor if owner else self.trace.actor_of(tool)
        if owner is None:
            owner = self._silent_owner(tool, actor)
            node = owner.node if owner else tool.span_id
            yield self._draft(
                tool,
                Kind.TOOL_CALL,
                _tool_call(name, facts.tool_arguments(attributes)),
                tool.span_id,
                node=node,
                actor=actor,
                ts=owner.end_ns if owner else tool.start_ns,
                call_id=pair_id,
                group=node,
            )
        value = facts.tool_result(attributes)
        error = facts.error_text(tool) if tool.is_error else None
        if value is UNSET and (error is None or self._is_answered(call_id)):
            return
        self.shown[call_id] += 1
        yield self._draft(
            tool,
            Kind.TOOL_RESULT,
            ToolResult(
                status="error" if tool.is_error else "ok",
                result=_raw(error if value is UNSET else value),
                tool=name,
            ),
            tool.span_id,
            node=_node_of_result(owner, tool.end_ns, tool.span_id),
            actor=actor,
            ts=tool.end_ns,
            call_id=pair_id,
        )

    def _silent_owner(self, tool: Telemetry, actor: str) -> ModelCall | None:
        """Find who called a tool where answers were not recorded: the model call that came before.

        Only a model call whose answer is not in the record can have made a call that is in none.
        """
        start = tool.start_ns
        before = [
            call
            for call in self.trace.models
            if call.actor == actor
            and start is not None
            and call.end_ns is not None
            and call.end_ns <= start
        ]
        latest = max(before, key=lambda call: call.end_ns or 0, default=None)
        return latest if latest is not None and latest.exchange.outputs is None else None

    def _is_answered(self, call_id: str | None) -> bool:
        """Say whether some prompt of the trace shows the answer to this call."""
        return call_id is not None and any(
            result.call_id == call_id for call in self.trace.models for result in call.results()
        )

    def _draft(
        self,
        record: Telemetry,
        kind: Kind,
        payload: Payload,
        name: str,
        *,
        node: str = "",
        actor: str = MAIN_ACTOR,
        ts: int | None = None,
        call_id: str | None = None,
        group: str | None = None,
        flags: tuple[str, ...] = (),
    ) -> Sourced:
        base = f"log:{name}" if record.is_log else name
        self.ids[base] += 1
        count = self.ids[base]
        return record.ordinal, Draft(
            session=self.trace.id,
            id=base if count == 1 else f"{base}/{count}",
            kind=kind,
            payload=payload,
            offset=record.offset,
            length=record.length,
            node_id=node,
            actor=actor,
            ts_ns=ts,
            call_id=call_id,
            group=group,
            flags=(*record.flags, *flags),
        )


_SPEAKERS = frozenset({"user", "system", "developer"})


def _identity(message: Message) -> str:
    """Give what makes two messages of a history the same one."""
    return canonical.digest(canonical.encode([message.text, list(message.other)]))


def _node_of_result(owner: ModelCall | None, ts_ns: int | None, own: str) -> str:
    """Give a result's node: its own, or its call's where it came no later than that call ended."""
    if owner is None or ts_ns is None or owner.end_ns is None or ts_ns > owner.end_ns:
        return own
    return owner.node


def _tool_call(tool: str, arguments: Any) -> ToolCall:
    """Keep arguments as they were recorded: text as text, a value as JSON."""
    if arguments is UNSET:
        return ToolCall(tool=tool, is_not_recorded=True)
    if isinstance(arguments, str):
        return ToolCall(tool=tool, arguments_text=arguments)
    return ToolCall(tool=tool, arguments=raw_of(arguments))


def _raw(value: Any) -> Raw | UnsetType:
    return UNSET if value is UNSET else raw_of(value)


def _references(messages: Iterable[Message]) -> Iterator[str]:
    """Name the prompt parts that only point at their content."""
    for message in messages:
        for part in message.other:
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind in _REFERENCES:
                target = part.get(_REFERENCES[kind])
                target = target.get("url") if isinstance(target, dict) else target
                if not str(target).startswith("data:"):
                    yield f"{kind}: {target}" if isinstance(target, str) else kind
