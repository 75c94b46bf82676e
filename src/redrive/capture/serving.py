"""The backend that serves: a recorded session, to the agent's own code that runs again.

Knows whose ask is whose, and how a recorded thing is handed out. What is served when is decided by
the machine in `redrive.replay.rerun`. Must not know where a session is stored: payloads and bytes
come from callables.

After the first difference every seam raises `RerunStopped`, in every flow, so that nothing runs on
a made-up past.

Source: DESIGN.md §2; issue "The recorder" §5.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.capture.conversation import Conversation, read_conversation
from redrive.capture.exchanges import find_api
from redrive.capture.flows import Flow, FlowTracker
from redrive.capture.ports import Outcome, SentRequest, ServedAnswer, ServedResult
from redrive.errors import RedriveError, RerunStopped, TamperError
from redrive.record.event import Derived, Event, Kind, Read, ToolResult, payload_of, raw_of
from redrive.replay.rerun import RerunState, start, step
from redrive.replay.rerun_bytes import body_digest, path_of
from redrive.replay.rerun_exchange import (
    DEFAULT_RERUN,
    Ask,
    AskCall,
    AskEnd,
    AskExchange,
    AskLive,
    AskRead,
    AskValue,
    Command,
    Differs,
    Miss,
    Recompute,
    Recomputed,
    RerunOptions,
    Serve,
)
from redrive.replay.rerun_items import (
    Ending,
    Item,
    Lack,
    RecordedCall,
    RecordedExchange,
    RecordedFlow,
    RecordedValue,
    RerunRecord,
)

AskModel = Callable[[SentRequest, AskLive], ServedAnswer]
"""Sends a request to the live model and gives its answer in the bytes of the request's API."""

_OUTCOMES: Mapping[Ending, Outcome] = {
    Ending.COMPLETE: Outcome.COMPLETE,
    Ending.CANCELLED: Outcome.CANCELLED,
    Ending.CUT: Outcome.CUT,
    Ending.FAILED: Outcome.FAILED,
}


_ERROR_FIELDS = {"type", "message"}


def _no_model(request: SentRequest, live: AskLive) -> ServedAnswer:
    raise RerunStopped(f"no model was given to ask at step {live.step}: {request.url}")


class ServingBackend:
    """Serves a recorded session; see `redrive.capture.ports.Backend`.

    Args:
        recorded: what there is to serve.
        read_event: gives an event by its seq.
        read_artefact: gives verbatim bytes by their sha256.
        options: how the rerun is made.
        by_context: whether threads and tasks tell flows; false at a proxy.
        ask_model: who answers requests where a model is live.
        on_stop: told once, when the rerun has stopped; from whatever thread asked.
    """

    is_serving = True
    fault: str | None = None

    def __init__(
        self,
        recorded: RerunRecord,
        *,
        read_event: Callable[[int], Event],
        read_artefact: Callable[[str], bytes],
        options: RerunOptions = DEFAULT_RERUN,
        by_context: bool = True,
        ask_model: AskModel | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._state = start(recorded, options)
        self._read_event = read_event
        self._read_artefact = read_artefact
        self._ask_model = ask_model or _no_model
        self._on_stop = on_stop
        self._has_stopped = False
        self._error: RedriveError | None = None
        self._lock = threading.RLock()
        self._tracker = FlowTracker(by_context=by_context)

    @property
    def state(self) -> RerunState:
        """How far the rerun has come."""
        with self._lock:
            return self._state

    @property
    def miss(self) -> Miss | None:
        """The first difference, once there is one."""
        return self.state.miss

    @property
    def error(self) -> RedriveError | None:
        """What made it impossible to go on: an altered record, or a model that failed."""
        return self._error

    @property
    def n_exchanges(self) -> int:
        """How many requests were answered so far."""
        served = self.state.served
        return served.requests + served.others + served.live

    def _step(self, ask: Ask) -> Command:
        """Let the machine take an ask.

        Raises:
            RerunStopped: it differs from the record, or something did before.
        """
        if self._error is not None:
            raise self._stopped(self._error.message)
        self._state, command = step(self._state, ask)
        if isinstance(command, Differs):
            raise self._stopped(_line_of(command.miss))
        return command

    def _stopped(self, why: str) -> RerunStopped:
        if not self._has_stopped:
            self._has_stopped = True
            self._on_stop()
        return RerunStopped(why)

    def _serve(self, ask: Ask, flow: Flow) -> Item:
        command = self._step(ask)
        if not isinstance(command, Serve):  # an ask that is answered otherwise has its own door
            raise TypeError(f"{type(command).__name__} is no answer to {type(ask).__name__}")
        flow.last_node = command.item.node_id
        return command.item

    def sent(self, request: SentRequest) -> ServedAnswer:
        """Serve the answer of a recorded request, or ask the live model.

        Raises:
            RerunStopped: the request is not the one that is recorded at this place.
        """
        api = _api_of(request)
        conversation = Conversation() if api is None else read_conversation(request.body)
        with self._lock:
            flow = self._flow_of(request, conversation, is_model=api is not None)
            ask = AskExchange(
                flow=flow.name,
                method=request.method,
                path=path_of(request.url),
                body=request.body,
                is_model=api is not None,
                added=request.added,
            )
            command = self._step(ask)
            if api is not None:
                flow.conversations.append((conversation, f"x{len(flow.conversations) + 1}"))
            if isinstance(command, Serve) and isinstance(command.item, RecordedExchange):
                flow.last_node = command.item.node_id
                return self._answer(command.item)
        if not isinstance(command, AskLive):
            raise TypeError(f"{type(command).__name__} is no answer to a request")
        with self._guarded():
            return self._ask_model(request, command)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Stop the agent at a fault of ours, which it could swallow as it is."""
        try:
            yield
        except RedriveError as error:
            self._error = self._error or error
            raise self._stopped(error.message) from error

    def _flow_of(self, request: SentRequest, conversation: Conversation, *, is_model: bool) -> Flow:
        if not is_model:
            return self._tracker.current()
        method, path = request.method, path_of(request.url)
        digest = body_digest(request.body, request.added)
        expected = [
            name
            for name in self._state.recorded.flows
            for item in [self._state.next_exchange(name)]
            if item is not None and (item.method, item.path, item.body) == (method, path, digest)
        ]
        return self._tracker.of_request(conversation, request.flow, expected)

    def _answer(self, item: RecordedExchange) -> ServedAnswer:
        source, body = item.answer, b""
        if source.length:
            with self._guarded():
                body = self._read_artefact(source.artefact)
                if hashlib.sha256(body).hexdigest() != source.artefact:
                    raise _altered(item)
            body = body[source.offset : source.offset + source.length]
        return ServedAnswer(
            status=item.status or 0,
            headers=item.headers,
            body=body,
            outcome=_OUTCOMES[item.ending],
            message=item.message,
        )

    def _event(self, item: Item, seq: int, digest: bytes | None = None) -> Event:
        """Read a recorded event, and hold its payload to its digest where there is one."""
        with self._guarded():
            event = self._read_event(seq)
            if digest is not None and hashlib.sha256(event.payload).digest() != digest:
                raise _altered(item)
            return event

    def read(self, kind: Kind, name: str, take: Callable[[], Any]) -> Any:  # noqa: ARG002 - served
        """Serve a recorded read; the real clock and dice are never asked."""
        with self._lock:
            flow = self._tracker.of_act(lambda: self._beginning_with(kind, name))
            item = self._serve(AskRead(flow.name, kind, name), flow)
        payload: Read = payload_of(self._event(item, item.seq))
        return _decode(payload.value)

    def _beginning_with(self, kind: Kind, name: str) -> list[str]:
        """List the flows that have not begun, and that begin with this read."""
        return [
            flow.name
            for flow in self._not_begun()
            for first in flow.reads[:1]
            if first.segment == 0 and (first.kind, first.name) == (kind, name)
        ]

    def _not_begun(self) -> list[RecordedFlow]:
        """List the flows that have not begun, as they first acted."""
        state = self._state
        flows = [f for f in state.recorded.flows.values() if state.flows.find(f.name) is None]
        return sorted(flows, key=lambda flow: flow.acted_ns or 0)

    def begin_call(
        self,
        tool: str,
        effect: str,  # noqa: ARG002 - nothing runs
        arguments: Raw,
        *,
        is_unsafe: bool,  # noqa: ARG002
        seam: str = "tool",  # noqa: ARG002
    ) -> ServedResult:
        """Serve the recorded result of a call; the tool itself never runs."""
        with self._lock:
            flow = self._tracker.current()
            item = self._serve(AskCall(flow.name, tool, arguments), flow)
            if isinstance(item, RecordedCall) and item.is_harness:
                self._tracker.settled()
        if not isinstance(item, RecordedCall) or item.result is None:
            raise TypeError("a call is served by a recorded call that has a result")
        return _result_of(self._event(item, item.result, item.digest))

    def derive(
        self, name: str, function: str, version: str | None, inputs: Raw, compute: Callable[[], Any]
    ) -> Any:
        """Serve a recorded derived value, after the agent's own function computed it again."""
        with self._lock:
            flow = self._tracker.of_act(lambda: self._deriving(name, function))
            asked = AskValue(flow.name, name, function, version, inputs)
            before = self._state
            command = self._step(asked)
            if isinstance(command, Recompute):
                self._state = before  # until it is computed: what it reads comes first
        if isinstance(command, Recompute):
            told = _recompute(command.value, asked, compute)
            with self._lock:
                command = self._step(asked)  # meanwhile another thread may have asked the same
                if isinstance(command, Recompute):
                    told = msgspec.structs.replace(told, recorded=command.value)
                    command = self._step(told)
        if not isinstance(command, Serve) or not isinstance(command.item, RecordedValue):
            raise TypeError("a derived value is served by a recorded one")
        flow.last_node = command.item.node_id
        payload: Derived = payload_of(self._event(command.item, command.item.seq))
        return _decode(payload.value)

    def _deriving(self, name: str, function: str) -> list[str]:
        return [flow.name for flow in self._not_begun() if (name, function) in flow.by_key]

    def declare_tool(self, tool: str, effect: str) -> None:
        """Take nothing: what a rerun serves was declared when it was recorded."""

    def enter_flow(self, name: str) -> object:
        """Begin or resume a named flow in this context."""
        with self._lock:
            return self._tracker.enter(name)

    def leave_flow(self, token: object) -> None:
        """Go back to the flow before."""
        with self._lock:
            self._tracker.leave(token)  # type: ignore[arg-type]

    def note(
        self,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        """Take what a recorder would write down; a rerun writes nothing."""

    def add_event(self, kind: Kind, payload: Any, call_id: str | None = None) -> None:
        """Take what a recorder would write down; a rerun writes nothing."""

    def end(self, status: str | None = None) -> None:
        """Take that the session of the agent's code is closed; see `finish`."""

    def finish(self) -> Miss | None:
        """Take that the agent's code is at its end; give the first difference, if there is one."""
        with self._lock:
            self._state, _ = step(self._state, AskEnd())
            return self._state.miss


def _altered(item: Item) -> TamperError:
    return TamperError(f"step {item.step}, event {item.seq}: {Lack.ALTERED.value}")


def _api_of(request: SentRequest) -> str | None:
    """Name the API of a request as the recorder does: a body that is no text goes to none."""
    try:
        request.body.decode()
    except UnicodeDecodeError:
        return None
    return find_api(request.method, request.url)


def _recompute(value: RecordedValue, asked: AskValue, compute: Callable[[], Any]) -> Recomputed:
    """Compute again; what is no `Exception` passes through, and nothing was asked."""
    try:
        return Recomputed(value, asked, raw_of(compute()))
    except Exception as error:  # noqa: BLE001 - whatever it raised, it did not while recording
        return Recomputed(value, asked, Raw(b"null"), f"{type(error).__name__}: {error}")


def _decode(value: Raw | UnsetType) -> Any:
    """Decode a recorded value anew, so that a caller may change it."""
    return None if isinstance(value, UnsetType) else canonical.decode_value(bytes(value))


def _result_of(event: Event) -> ServedResult:
    """Give a recorded result, or the error that the tool ended with."""
    if event.kind is Kind.TOOL_RESULT:
        payload: ToolResult = payload_of(event)
        status, result = payload.status, payload.result
    else:
        fields = dict(canonical.split_object(bytes(payload_of(event).data)))
        status = str(canonical.decode_value(fields.get("status", b'"ok"')))
        result = Raw(fields["result"]) if "result" in fields else UNSET
    if status != "error":
        return ServedResult(result)
    told = _decode(result)
    if not isinstance(told, dict) or told.keys() != _ERROR_FIELDS:
        return ServedResult(result)  # a tool that says so itself, as MCP's do
    return ServedResult(error=(str(told["type"]), str(told["message"])))


def _line_of(miss: Miss) -> str:
    """Say in one line where a rerun stopped; the report says the rest."""
    expected = miss.expected
    place = "" if expected is None else f", recorded at {expected.node_id}"
    return f"the rerun stopped at step {miss.step} of {miss.flow}: {miss.what.value}{place}"
