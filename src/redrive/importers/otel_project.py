"""Projects one trace to the drafts of one session: who decided what, and who answered.

Knows traces, exchanges and drafts. Must not know files or bytes beyond the place of a record.

Rules:

* node and group = span id; span parents are causality, not conversation: no draft has a parent,
  order is time;
* a message repeated in every prompt is one event, where it was first shown;
* a tool span and the model's call with the same id are one call; the call stands with the model;
* a tool span that no answer explains belongs to the silent model call before it (one whose answer
  was not recorded), else, beside model calls, to a flow of its own;
* a result that came no later than its call's own span ended belongs to that span's node;
* the logs of a silent model call hold the same call and result: the log's call (it has the
  arguments) and the tool span's result (it has the status) replace the other source's, in whichever
  order the two are imported.

Source: DESIGN.md §3; docs/opentelemetry.md "One trace, one session".
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.importers import otel_facts as facts
from redrive.importers.draft import Draft
from redrive.importers.otel_facts import SpanKind
from redrive.importers.otel_parts import CallPart, Message, ResultPart, dump_messages
from redrive.importers.otel_spans import Telemetry
from redrive.importers.otel_trace import ModelCall, Trace
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
_SPEAKERS = frozenset({"user", "system", "developer"})
_LATEST = 2**63
_LOG_PREFIX = "log:"

Sourced = tuple[int, Draft]


@dataclass(slots=True)
class Projection:
    """Turns one trace into drafts; each comes with the ordinal of the record it belongs to.

    `owners` are the model calls that made a tool call, by its id and in time order; `latest` the
    model calls of each flow, by their end; `called` the ids that model answers or tool spans of
    this trace call; `answered` those that its prompts answer; `failed` those of failed tool spans.
    """

    trace: Trace
    ids: Counter[str] = field(default_factory=Counter)
    owners: dict[str | None, list[ModelCall]] = field(default_factory=dict)
    latest: dict[str, list[ModelCall]] = field(default_factory=dict)
    answered: set[str | None] = field(default_factory=set)
    failed: set[str | None] = field(default_factory=set)
    shown: Counter[str | None] = field(default_factory=Counter)
    said: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    called: set[str | None] = field(default_factory=set)

    def drafts(self) -> Iterator[Sourced]:
        """Yield all drafts of the trace, grouped by record, not yet in file order."""
        by_time = sorted(self.trace.models, key=_start_of)
        self._look_ahead(by_time)
        yield self._started(by_time)
        for tool in self.trace.tools:
            yield from self._tool(tool)
        for call in by_time:
            yield from self._model(call)
        for record in self.trace.others:
            yield from self._other(record)

    def _look_ahead(self, by_time: Sequence[ModelCall]) -> None:
        """Find who calls and answers what, before anything is projected."""
        for call in by_time:
            self.latest.setdefault(call.actor, []).append(call)
            for part in call.calls():
                self.owners.setdefault(part.call_id, []).append(call)
            self.answered.update(result.call_id for result in call.results())
        for calls in self.latest.values():
            calls.sort(key=_end_of)
        by_id = [(facts.tool_call_id(tool.attributes), tool) for tool in self.trace.tools]
        self.called = {*self.owners, *(call_id for call_id, _ in by_id if call_id)}
        self.failed = {call_id for call_id, tool in by_id if call_id and tool.is_error}

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
            _call_name(call_id, call.node),
            node=call.node,
            actor=call.actor,
            ts=call.end_ns,
            call_id=call_id,
            group=call.node,
            is_replacing=call.record.is_log and call_id is not None,
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
        payload = ToolResult(
            status="error" if result.call_id in self.failed else "ok",
            result=_raw(result.value),
            tool=result.tool,
            is_external=result.call_id not in self.called,
        )
        return self._draft(
            call.record,
            Kind.TOOL_RESULT,
            payload,
            _result_name(result.call_id, f"{call.node}/input"),
            node=_node_of_result(owner, call.start_ns, f"{call.node}/input"),
            actor=call.actor if owner is None else owner.actor,
            ts=call.start_ns,
            call_id=result.call_id,
        )

    def _owner(self, call_id: str | None, ts_ns: int | None) -> ModelCall | None:
        """Find the model call that made a tool call: of several, the last that began before."""
        owners = self.owners.get(call_id, [])
        moment = _LATEST if ts_ns is None else ts_ns
        n_before = bisect_left(owners, moment, key=lambda owner: _start_of(owner)[0])
        return owners[max(n_before - 1, 0)] if owners else None

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
            if owner is None and actor in self.latest:
                actor = self.trace.label_of(tool)
            node = owner.node if owner else tool.span_id
            yield self._draft(
                tool,
                Kind.TOOL_CALL,
                _tool_call(name, facts.tool_arguments(attributes)),
                _call_name(call_id, tool.span_id),
                node=node,
                actor=actor,
                ts=owner.end_ns if owner else tool.start_ns,
                call_id=pair_id,
                group=node,
            )
        value = facts.tool_result(attributes)
        error = facts.error_text(tool) if tool.is_error else None
        if value is UNSET and (error is None or call_id in self.answered):
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
            _result_name(call_id, tool.span_id),
            node=_node_of_result(owner, tool.end_ns, tool.span_id),
            actor=actor,
            ts=tool.end_ns,
            call_id=pair_id,
            is_replacing=call_id is not None and owner is not None and owner.is_silent,
        )

    def _silent_owner(self, tool: Telemetry, actor: str) -> ModelCall | None:
        """Find who called a tool where answers were not recorded: the model call that came before.

        Only a model call whose answer is not in the record can have made a call that is in none.
        """
        if tool.start_ns is None:
            return None
        calls = self.latest.get(actor, [])
        n_before = bisect_right(calls, tool.start_ns, key=_end_of)
        silent = calls[n_before - 1] if n_before else None
        return silent if silent is not None and silent.is_silent else None

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
        is_replacing: bool = False,
    ) -> Sourced:
        base = f"{_LOG_PREFIX}{name}" if record.is_log else name
        self.ids[base] += 1
        count = self.ids[base]
        draft_id = base if count == 1 else f"{base}/{count}"
        return record.ordinal, Draft(
            session=self.trace.id,
            id=draft_id,
            kind=kind,
            payload=payload,
            offset=record.offset,
            length=record.length,
            node_id=node,
            actor=actor,
            ts_ns=ts,
            call_id=call_id,
            group=group,
            supersedes=_replaced(draft_id, is_log=record.is_log) if is_replacing else None,
            flags=(*record.flags, *flags),
        )


def _start_of(call: ModelCall) -> tuple[int, int]:
    return (_LATEST if call.start_ns is None else call.start_ns), call.record.ordinal


def _end_of(call: ModelCall) -> int:
    return _LATEST if call.end_ns is None else call.end_ns


def _call_name(call_id: str | None, own: str) -> str:
    return own if call_id is None else f"call:{call_id}"


def _result_name(call_id: str | None, own: str) -> str:
    return own if call_id is None else f"result:{call_id}"


def _replaced(draft_id: str, *, is_log: bool) -> str:
    """Name the draft that a companion source may have for the same call or result."""
    return draft_id.removeprefix(_LOG_PREFIX) if is_log else f"{_LOG_PREFIX}{draft_id}"


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
