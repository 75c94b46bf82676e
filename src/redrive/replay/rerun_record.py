"""Reads a recorded session as what a rerun serves from it.

Knows the events that our recorder writes. Must not know when something is served (`rerun`).

A flow's order is the order in which its events were recorded: a rerun does again what happened,
rewinds included, so no path through the DAG is walked. What a new task read before its flow was
known was written late; its time says where it belongs. What happened while a tool ran belongs to
the tool: its result is served whole.

Source: DESIGN.md §3, §4, §5 "Evidence".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.audit.reads import READ_CLASSES, find_read_gap
from redrive.canonical import get_field
from redrive.record.event import (
    FLAG_WITHIN_CALL,
    Custom,
    Derived,
    Event,
    Kind,
    ModelError,
    ModelRequest,
    ModelResponse,
    Read,
    ToolCall,
    ToolResult,
    Wire,
    payload_of,
    raw_value,
)
from redrive.record.session import EventReader, SessionIndex
from redrive.record.signature import NOT_RECORDED, argument_digests
from redrive.replay.recorded import holds_mark
from redrive.replay.rerun_bytes import body_digest, path_of, split_endpoint, value_digest
from redrive.replay.rerun_items import (
    NEVER,
    Ending,
    Key,
    Lack,
    RecordedCall,
    RecordedExchange,
    RecordedFlow,
    RecordedRead,
    RecordedValue,
    RerunRecord,
)

HARNESS_CALL, HARNESS_RESULT, HTTP_EXCHANGE = "harness.call", "harness.result", "http.exchange"
SERVED_SEAMS = frozenset({"tool", "mcp"})
"""Where a result was seen that a rerun can serve there: the tool's own function, and the proxy
before an MCP server on stdio, which answers in the server's place. Not before one over HTTP, which
has no network then, not in a hook, which only looks on, and not in the next request."""

_KINDS = (
    Kind.MODEL_REQUEST,
    Kind.MODEL_RESPONSE,
    Kind.MODEL_ERROR,
    Kind.TOOL_CALL,
    Kind.TOOL_RESULT,
    Kind.CLOCK_READ,
    Kind.PRNG_READ,
    Kind.VALUE_DERIVED,
    Kind.CUSTOM,
)


def read_rerun(index: SessionIndex, reader: EventReader) -> RerunRecord:
    """Read a session for a rerun, in one stream over its events.

    Args:
        index: the session's index; what a later event supersedes is left out.
        reader: gives payloads.

    Cost: O(n) time; a digest or two per event.
    """
    reading = _Reading()
    for event in reader.read_events(index.seqs_of(*_KINDS)):
        reading.take(event)
    return RerunRecord(
        session_id=index.session_id,
        flows=reading.build(),
        is_ended=bool(index.seqs_of(Kind.SESSION_ENDED)),
    )


def find_seamless(index: SessionIndex, reader: EventReader) -> tuple[str, ...]:
    """Name the tools that cannot be served where they run, in order of appearance.

    What ran within a tool, such as those of a sub-agent, is covered by that tool's own result.
    """
    tools: dict[str, None] = {}
    names: dict[str, str] = {}
    for event in reader.read_events(index.seqs_of(Kind.TOOL_CALL, Kind.TOOL_RESULT)):
        payload: Any = payload_of(event)
        if isinstance(payload, ToolCall):
            names[event.call_id or ""] = payload.tool
        elif payload.seam not in SERVED_SEAMS and FLAG_WITHIN_CALL not in event.flags:
            tools[names.get(event.call_id or "") or payload.tool or "an unnamed tool"] = None
    return tuple(tools)


class _Waiting(NamedTuple):
    """A call that has no result yet: its event, and the segment and step in which it was made."""

    event: Event
    opened: int
    step: int


class _Answer(NamedTuple):
    """How a call ended: the event that says so, and what was run."""

    event: Event
    tool: str
    arguments: bytes
    lack: Lack | None


@dataclass(slots=True)
class _Flow:
    """One flow while its events are read."""

    name: str
    first: int = 0
    last: int = 0
    node_id: str | None = None
    n_steps: int = 0
    decided: str | None = None
    sent_at: list[tuple[int | None, int]] = field(default_factory=list)
    exchanges: dict[str, RecordedExchange] = field(default_factory=dict)
    reads: list[RecordedRead] = field(default_factory=list)
    calls: list[RecordedCall] = field(default_factory=list)
    waiting: dict[str, list[_Waiting]] = field(default_factory=dict)
    values: list[RecordedValue] = field(default_factory=list)
    others: list[RecordedExchange] = field(default_factory=list)
    places: dict[Key, int] = field(default_factory=dict)
    acted_ns: int | None = None

    @property
    def segment(self) -> int:
        """How many requests were sent so far."""
        return len(self.exchanges)

    @property
    def step(self) -> int:
        """The decision that was made last; 1 above the first."""
        return max(1, self.n_steps)

    def place_of(self, key: Key) -> int:
        """Count what came before under a key."""
        place = self.places.get(key, 0)
        self.places[key] = place + 1
        return place

    def find_place(self, event: Event) -> tuple[int, int]:
        """Find segment and step of what may have been written later than it happened."""
        if self.acted_ns is None:
            self.acted_ns = event.ts_ns
        segment = len(self.sent_at)
        while segment and _is_after(self.sent_at[segment - 1][0], event.ts_ns):
            segment -= 1
        if segment == len(self.sent_at):
            return segment, self.step
        return segment, max(1, self.sent_at[segment][1] - 1)


def _is_after(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and one > other


@dataclass(slots=True)
class _Reading:
    """Sorts the events of a session into its flows."""

    flows: dict[str, _Flow] = field(default_factory=dict)
    within: set[str] = field(default_factory=set)
    spans: list[tuple[str, int, int]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Take the next event."""
        if FLAG_WITHIN_CALL in event.flags or event.node_id in self.within:
            self.within.add(event.node_id)
            return
        flow = self.flows.get(event.actor)
        if flow is None:
            flow = self.flows[event.actor] = _Flow(event.actor, event.seq)
        flow.last, flow.node_id = event.seq, event.node_id
        payload: Any = payload_of(event)
        match event.kind:
            case Kind.MODEL_REQUEST:
                _add_request(flow, event, payload)
            case Kind.MODEL_RESPONSE | Kind.MODEL_ERROR:
                _count_decision(flow, event)
                _add_answer(flow, event, payload)
            case Kind.TOOL_CALL:
                _count_decision(flow, event)
                _wait(flow, event, event.call_id or "")
            case Kind.TOOL_RESULT:
                self._add_result(flow, event, payload)
            case Kind.CLOCK_READ | Kind.PRNG_READ:
                _add_read(flow, event, payload)
            case Kind.VALUE_DERIVED:
                _add_value(flow, event, payload)
            case _:
                self._add_custom(flow, event, payload)

    def _add_result(self, flow: _Flow, event: Event, result: ToolResult) -> None:
        """Pair a result with the oldest call of its id that waits; one without is no evidence."""
        waiting = flow.waiting.get(event.call_id or "")
        if not waiting:
            return
        call: ToolCall = payload_of(waiting[0].event)
        digests = (
            argument_digests(call.arguments, call.arguments_text)
            if isinstance(result.executed, UnsetType)
            else argument_digests(result.executed, None)
        )
        lack = _result_lack(result, bytes(event.payload))
        answer = _Answer(event, result.tool or call.tool, digests.value, lack)
        self._add_call(flow, waiting.pop(0), answer)

    def _add_custom(self, flow: _Flow, event: Event, custom: Custom) -> None:
        fields = raw_value(custom.data)
        if not isinstance(fields, dict):
            return
        if custom.name == HARNESS_CALL:
            _wait(flow, event, _harness_id(fields))
        elif custom.name == HARNESS_RESULT and flow.waiting.get(_harness_id(fields)):
            waiting = flow.waiting[_harness_id(fields)].pop(0)
            lack = None if "result" in fields else Lack.NO_RESULT
            answer = _Answer(event, *_harness_key(waiting.event), lack)
            self._add_call(flow, waiting, answer)
        elif custom.name == HTTP_EXCHANGE:
            _add_other(flow, event, fields)

    def _add_call(self, flow: _Flow, waiting: _Waiting, answer: _Answer) -> None:
        called = waiting.event
        self.spans.append((flow.name, called.seq, answer.event.seq))
        flow.calls.append(
            RecordedCall(
                seq=called.seq,
                result=answer.event.seq,
                opened=waiting.opened,
                segment=flow.segment,
                step=waiting.step,
                node_id=called.node_id,
                tool=answer.tool,
                arguments=answer.arguments,
                digest=sha256(answer.event.payload).digest(),
                place=flow.place_of((answer.tool, answer.arguments)),
                call_id=called.call_id,
                is_harness=called.kind is Kind.CUSTOM,
                lack=answer.lack,
            )
        )

    def build(self) -> dict[str, RecordedFlow]:
        """Give the flows, in order of appearance."""
        return {flow.name: self._build(flow) for flow in self.flows.values()}

    def _build(self, flow: _Flow) -> RecordedFlow:
        for called in sorted(chain(*flow.waiting.values()), key=lambda call: call.event.seq):
            flow.calls.append(_unanswered(flow, called))
        reads = sorted(
            flow.reads, key=lambda read: read.segment
        )  # stable: written late, read early
        return RecordedFlow(
            name=flow.name,
            exchanges=tuple(flow.exchanges.values()),
            reads=tuple(reads),
            calls=tuple(flow.calls),
            values=tuple(flow.values),
            others=tuple(flow.others),
            node_id=flow.node_id,
            acted_ns=flow.acted_ns,
            is_within_call=any(
                name != flow.name and call < flow.first and flow.last < result
                for name, call, result in self.spans
            ),
        )


def _unanswered(flow: _Flow, waiting: _Waiting) -> RecordedCall:
    """Give a call that never ended: it may be asked for, and is not missed where it is not."""
    called = waiting.event
    if called.kind is Kind.CUSTOM:
        tool, arguments = _harness_key(called)
    else:
        call: ToolCall = payload_of(called)
        tool = call.tool
        arguments = argument_digests(call.arguments, call.arguments_text).value
    return RecordedCall(
        seq=called.seq,
        result=None,
        opened=waiting.opened,
        segment=NEVER,
        step=waiting.step,
        node_id=called.node_id,
        tool=tool,
        arguments=arguments,
        digest=NOT_RECORDED,
        place=flow.place_of((tool, arguments)),
        call_id=called.call_id,
        is_harness=called.kind is Kind.CUSTOM,
        lack=Lack.NO_RESULT,
    )


def _harness_key(called: Event) -> tuple[str, bytes]:
    """Give tool and arguments of a call that the harness made."""
    custom: Custom = payload_of(called)
    data = b"{}" if isinstance(custom.data, UnsetType) else bytes(custom.data)
    asked = {name: Raw(value) for name, value in canonical.split_object(data)}
    tool = raw_value(asked.get("tool", UNSET))
    return str(tool), argument_digests(asked.get("arguments", UNSET), None).value


def _harness_id(fields: Mapping[str, Any]) -> str:
    return f"harness {fields.get('call')}"


def _count_decision(flow: _Flow, event: Event) -> None:
    if event.kind is not Kind.MODEL_ERROR and flow.decided != event.node_id:
        flow.decided = event.node_id
        flow.n_steps += 1


def _wait(flow: _Flow, event: Event, name: str) -> None:
    """Let a call wait for its result; a later decision's call takes the id of an earlier one's."""
    waiting = flow.waiting.setdefault(name, [])
    if waiting and waiting[-1].event.node_id != event.node_id:
        waiting.clear()
    waiting.append(_Waiting(event, flow.segment, flow.step))


def _add_request(flow: _Flow, event: Event, request: ModelRequest) -> None:
    wire = request.wire or Wire(event.node_id)
    method, path = split_endpoint(wire.endpoint or "POST /")
    body = b"" if request.body is None else canonical.text_bytes(request.body)
    is_masked = bool(request.redactions) or holds_mark(bytes(event.payload))
    flow.exchanges[event.node_id] = RecordedExchange(
        seq=event.seq,
        segment=flow.segment + 1,
        step=flow.n_steps + 1,
        node_id=event.node_id,
        method=method,
        path=path,
        body=body_digest(body, wire.added),
        added=wire.added,
        is_masked=is_masked,
        lack=Lack.NO_ANSWER,
    )
    flow.sent_at.append((event.ts_ns, flow.n_steps + 1))


def _add_answer(flow: _Flow, event: Event, answer: ModelResponse | ModelError) -> None:
    exchange = flow.exchanges.get(event.node_id)
    if exchange is None or exchange.response is not None:
        return
    wire = answer.wire or Wire(event.node_id)
    is_masked = isinstance(answer, ModelResponse) and bool(answer.redactions)
    flow.exchanges[event.node_id] = msgspec.structs.replace(
        exchange,
        ending=_ending(wire, answer.status if isinstance(answer, ModelError) else 200),
        status=wire.status or (answer.status if isinstance(answer, ModelError) else 200),
        headers=_headers(wire),
        answer=event.source,
        message=(answer.message or "") if isinstance(answer, ModelError) else "",
        response=event.seq,
        lack=_answer_lack(wire, event, is_masked=is_masked),
    )


def _ending(wire: Wire, status: int | None) -> Ending:
    if wire.outcome is not None:
        return Ending(wire.outcome)
    return Ending.FAILED if status is None else Ending.COMPLETE


def _answer_lack(wire: Wire, event: Event, *, is_masked: bool = False) -> Lack | None:
    if is_masked:
        return Lack.MASKED
    return Lack.TRUNCATED if (wire.size or 0) > event.source.length else None


def _headers(wire: Wire) -> tuple[tuple[str, str], ...]:
    return tuple(wire.headers.items())


def _add_other(flow: _Flow, event: Event, fields: Mapping[str, Any]) -> None:
    wire = msgspec.convert(fields.get("wire") or {"exchange": event.node_id}, Wire)
    method, path = str(fields.get("method")), path_of(str(fields.get("url")))
    digest = bytes.fromhex(get_field(fields, "request_sha256", str) or "")
    flow.others.append(
        RecordedExchange(
            seq=event.seq,
            segment=flow.segment,
            step=flow.step,
            node_id=event.node_id,
            method=method,
            path=path,
            body=digest,
            is_model=False,
            ending=_ending(wire, wire.status),
            status=wire.status,
            headers=_headers(wire),
            answer=event.source,
            response=event.seq,
            request_source=digest.hex() if fields.get("request_size") else "",
            place=flow.place_of((method, path, digest)),
            lack=_answer_lack(wire, event),
        )
    )


def _add_read(flow: _Flow, event: Event, read: Read) -> None:
    gap = find_read_gap(READ_CLASSES[event.kind], read)
    lack = None if gap is None else Lack.MASKED if gap.cause.startswith("masked") else Lack.NO_VALUE
    segment, step = flow.find_place(event)
    flow.reads.append(
        RecordedRead(event.seq, segment, step, event.node_id, event.kind, read.name, lack)
    )


def _add_value(flow: _Flow, event: Event, derived: Derived) -> None:
    lack = None
    if derived.redactions or holds_mark(bytes(event.payload)):
        lack = Lack.MASKED
    elif isinstance(derived.value, UnsetType):
        lack = Lack.NO_VALUE
    elif not isinstance(raw_value(derived.inputs), list):  # `null`: there was no order
        lack = Lack.NO_INPUTS
    segment, step = flow.find_place(event)
    function = derived.function or ""
    flow.values.append(
        RecordedValue(
            seq=event.seq,
            segment=segment,
            step=step,
            node_id=event.node_id,
            name=derived.name,
            function=function,
            version=derived.version,
            inputs=value_digest(derived.inputs),
            value=value_digest(derived.value),
            place=flow.place_of((derived.name, function)),
            lack=lack,
        )
    )


def _result_lack(result: ToolResult, payload: bytes) -> Lack | None:
    if isinstance(result.result, UnsetType):
        return Lack.NO_RESULT
    if result.truncated:
        return Lack.TRUNCATED
    return Lack.MASKED if result.redactions or holds_mark(payload) else None
