"""The backend that records: what the seams saw, as the events of one session.

Knows whom to tell what. How it is laid out is in `event_log`, what an exchange leaves in
`wire_recording`, what a tool leaves in `tool_recording`. Must not know where it is stored.

Recording never changes what the agent sees: what goes wrong here is kept in `fault` and told to the
operator, unless the sink is fail-closed and raises `StoreError` itself.

Source: DESIGN.md §3; ARCHITECTURE.md.
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from redrive.capture.event_log import EventLog, Fact, Sink
from redrive.capture.flows import FlowTracker
from redrive.capture.ports import Headers, Outcome, SentRequest
from redrive.capture.tool_recording import (
    AskedCalls,
    ReportedResult,
    Run,
    ToolRecording,
    flags_of,
    without_form,
)
from redrive.capture.wire_recording import Exchange, WireRecording
from redrive.errors import StoreError
from redrive.record.event import (
    Custom,
    Derived,
    Kind,
    Payload,
    Read,
    SessionEnded,
    SessionStarted,
    Source,
    raw_of,
)

FORMAT = "redrive"
VERSION = 1
_T = TypeVar("_T")


class RecordingBackend:
    """Writes down what the seams see; see `redrive.capture.ports.Backend`.

    Args:
        sink: who keeps the events.
        session_id: as the store names the session.
        started: what is known of the whole session; written before the first thing that happens,
            with the tools that were declared by then.
        now_ns: the time, UTC nanoseconds.
        by_context: whether threads and tasks tell flows; false at a proxy.
        engine: fingerprint of the engine, where who records started it.
        on_fault: told once, with one line, when something could not be recorded.
    """

    is_serving = False

    def __init__(
        self,
        sink: Sink,
        session_id: str,
        started: SessionStarted,
        *,
        now_ns: Callable[[], int],
        by_context: bool,
        engine: str | None = None,
        on_fault: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.fault: str | None = None
        self._on_fault = on_fault
        self._lock = threading.RLock()
        self._is_ended = False
        self._started = started
        self._declared: dict[str, str] = dict(started.tools)
        self._log = EventLog(sink, session_id, now_ns)
        self._tracker = FlowTracker(by_context=by_context)
        asked = AskedCalls()
        self._tools = ToolRecording(self._log, self._tracker, asked, binds=by_context)
        self._wire = WireRecording(
            self._log,
            self._tracker,
            asked,
            decisions=started.decisions,
            engine=engine,
            can_rewind=not by_context,
        )

    @property
    def n_exchanges(self) -> int:
        """How many exchanges were seen so far, with models and others."""
        return self._log.count("x") + self._log.count("h")

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Hold the lock, and keep any fault of ours away from the agent."""
        try:
            with self._lock:
                self._begin()
                yield
        except StoreError:  # a sink that is fail-closed
            raise
        except Exception as error:  # noqa: BLE001 - the agent goes on, whatever is wrong with us
            self._tell(error)

    def _tell(self, error: Exception) -> None:
        if self.fault is None:
            self.fault = f"not recorded: {type(error).__name__}: {error}"
            self._on_fault(self.fault)

    def _begin(self) -> None:
        """Write what is known of the session before the first thing that happens in it."""
        if self._log.count("started"):
            return
        try:
            self._open()
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - see `_guarded`
            self._tell(error)

    def _open(self) -> None:
        self._started = replace(self._started, tools=dict(self._declared))
        self._log.open(self._started)

    def declare_tool(self, tool: str, effect: str) -> None:
        """Take the effect class of a tool."""
        with self._lock:
            self._declared[tool] = effect

    def sent(self, request: SentRequest) -> "RecordedExchange":
        """Record that a request was sent; give who is told what came back."""
        exchange = Exchange(request)
        with self._guarded():
            self._wire.begin(exchange)
        return RecordedExchange(self, exchange)

    def finish(self, exchange: Exchange, outcome: Outcome, at_ns: int, message: str) -> None:
        """Record what came back for a request."""
        with self._guarded():
            self._wire.finish(exchange, outcome, at_ns, message)

    def read(self, kind: Kind, name: str, take: Callable[[], _T]) -> _T:
        """Take a read and record its value."""
        value = take()
        with self._guarded():
            self._act("k", kind, Read(name=name, value=raw_of(value)))
        return value

    def derive(
        self, name: str, function: str, version: str | None, inputs: Raw, compute: Callable[[], _T]
    ) -> _T:
        """Compute a value and record it with its ordered inputs."""
        value = compute()
        with self._guarded():
            told = UNSET if isinstance(value, UnsetType) else raw_of(value)
            payload = Derived(
                name=name, function=function, version=version, inputs=inputs, value=told
            )
            self._act("v", Kind.VALUE_DERIVED, payload, has_form=told is not UNSET)
        return value

    def _act(self, prefix: str, kind: Kind, payload: Payload, *, has_form: bool = True) -> None:
        """Write a fact in the flow of this context, as soon as that is known."""
        log, at_ns = self._log, self._log.now_ns()
        flags = flags_of(self._tracker)
        fact = Fact(kind, payload, flags=flags if has_form else without_form(flags))
        self._tracker.act(lambda flow: log.add(flow, log.next(prefix), fact, at_ns=at_ns))

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> "RecordedCall":
        """Record that a tool is about to run; give who is told how it ended."""
        run = Run(tool, seam)
        with self._guarded():
            self._tools.begin(run, effect, arguments, is_unsafe=is_unsafe)
        return RecordedCall(self, run)

    def end_call(
        self, run: Run, status: str, result: Raw | UnsetType, unrepresentable: str | None = None
    ) -> None:
        """Record how a run of a tool ended."""
        with self._guarded():
            self._tools.end(run, status, result, unrepresentable)

    def enter_flow(self, name: str) -> object:
        """Begin or resume a named flow in this context."""
        with self._guarded():
            return self._tracker.enter(name)
        return None

    def leave_flow(self, token: object) -> None:
        """Go back to the flow before."""
        with self._guarded():
            if token is not None:
                self._tracker.leave(token)  # type: ignore[arg-type]

    def report_result(self, reported: ReportedResult, seam: str) -> None:
        """Record the result of a call that someone else saw run."""
        with self._guarded():
            self._tools.report(reported, seam)

    def note(
        self,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        """Record something of another framework's own kind, in the flow of this context.

        With `is_durable` it is durable before this returns.
        """
        with self._guarded():
            self._log.add_custom(self._tracker.settled(), name, fields, call_id)
            if is_durable:
                self._log.flush()

    def keep(self, name: str, fields: Mapping[str, Any], data: bytes) -> str:
        """Record bytes as an artefact, with a fact of a kind of its own; give their sha256."""
        digest = hashlib.sha256(data).hexdigest()
        with self._guarded():
            fact = Fact(Kind.CUSTOM, Custom(name=name, data=raw_of(dict(fields))))
            flow, source = self._tracker.settled(), Source(digest, 0, len(data))
            self._log.add(flow, self._log.next("c"), fact, source=source, artefacts=(data,))
        return digest

    def add_event(self, kind: Kind, payload: Payload, call_id: str | None = None) -> None:
        """Record an event that a hook or another seam has made, in the flow of this context."""
        with self._guarded():
            flow = self._tracker.settled()
            self._log.add(flow, self._log.next("e"), Fact(kind, payload, call_id))

    def end(self, status: str | None) -> None:
        """Record how the run ended, once; what comes later is still recorded."""
        with self._guarded():
            self._tracker.settle_all()
            if self._declared != self._started.tools:
                self._open()
            if not self._is_ended:
                self._is_ended = True
                fact = Fact(Kind.SESSION_ENDED, SessionEnded(status=status))
                self._log.add(self._tracker.main, "end", fact)


class RecordedExchange:
    """Is told what came back for one request; see `ports.ExchangeObserver`."""

    def __init__(self, backend: RecordingBackend, exchange: Exchange) -> None:
        self._backend = backend
        self._exchange = exchange
        self._is_finished = False

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers of the answer."""
        exchange = self._exchange
        exchange.status, exchange.headers, exchange.first_byte_ns = status, headers, at_ns

    def received(self, data: bytes) -> None:
        """Take the next bytes of the answer's body."""
        self._exchange.take(data)

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        """Take the end; what is told after it is ignored."""
        if not self._is_finished:
            self._is_finished = True
            self._backend.finish(self._exchange, outcome, at_ns, message)


class RecordedCall:
    """Is told how a tool ended; see `ports.CallObserver`."""

    def __init__(self, backend: RecordingBackend, run: Run) -> None:
        self._backend = backend
        self._run = run

    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        """Take the result as JSON; `is_error` where the tool itself says that it failed."""
        self._backend.end_call(self._run, "error" if is_error else "ok", result)

    def returned_unknown(self, type_name: str) -> None:
        """Take that the result has no JSON form."""
        self._backend.end_call(self._run, "ok", UNSET, type_name)

    def raised(self, type_name: str, message: str) -> None:
        """Take the error that the tool ended with."""
        self._backend.end_call(self._run, "error", raw_of({"type": type_name, "message": message}))
