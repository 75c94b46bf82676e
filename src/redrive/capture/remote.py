"""A backend that lies in another process, reached over loopback HTTP.

For a Python agent in a sandbox, and for whatever reports to a recorder that runs already: proxies,
hooks, child processes. Knows the messages of `remote_wire`; `remote_serving` is the other side.
Speaks with the standard library's client alone, so that no HTTP library that is being recorded
records this. Must not know whether the other side records or serves, beyond that it says so.

Calls block for one exchange on loopback; never call it on the event loop that answers it.

Source: issue 4 §5.
"""

import http.client
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from msgspec import UNSET, Raw

from redrive import canonical
from redrive.capture.ports import (
    CallObserver,
    ExchangeObserver,
    Headers,
    Outcome,
    SentRequest,
    ServedAnswer,
    ServedResult,
)
from redrive.capture.remote_line import Line, Whereabouts
from redrive.capture.remote_wire import (
    MAX_MESSAGE_BYTES,
    Asked,
    AskedCall,
    AskedDerive,
    AskedEnter,
    AskedEvent,
    AskedNote,
    AskedRead,
    AskedReport,
    AskedResponse,
    AskedReturned,
    AskedSent,
    Place,
    Told,
    dump_message,
    dump_text,
)
from redrive.capture.tool_recording import ReportedResult
from redrive.errors import RerunStopped, StoreError
from redrive.record.event import Kind, Payload, dump_payload

_FLUSH_BYTES = 256 * 1024
_ERROR_CHARS = 200


class RemoteBackend:
    """Asks another process; see `redrive.capture.ports.Backend`.

    Args:
        url: where the other side answers, such as `http://127.0.0.1:8000/TOKEN/redrive`.
        fails_open: whether the agent goes on, unrecorded, when the other side is lost; else what it
            asked for raises `lost`.
        lost: makes what is raised then of one line; where the other side served, it is always
            `RerunStopped`, since a rerun must not become a real run.
        timeout_s: how long one exchange may take; a live model may stand behind it.
        on_fault: told once, with one line, when something could not be told.
        connect: opens a connection to the other side where no address leads there; the URL then
            gives the path alone.

    Raises:
        UsageError: the URL is not one of plain HTTP on loopback.
    """

    def __init__(
        self,
        url: str,
        *,
        fails_open: bool = False,
        lost: Callable[[str], BaseException] = RerunStopped,
        timeout_s: float = 600.0,
        on_fault: Callable[[str], object] | None = None,
        connect: Callable[[], socket.socket] | None = None,
    ) -> None:
        self._line = Line(url, timeout_s, connect)
        self._whereabouts = Whereabouts()
        self._fails_open = fails_open
        self._lost = lost
        self._on_fault = on_fault or _tell_stderr
        self._is_serving: bool | None = None
        self.fault: str | None = None

    def here(self) -> tuple[Place, int]:
        """Give the place of this context and the number of its next message; see `remote_wire`."""
        return self._whereabouts.here()

    @property
    def is_serving(self) -> bool:
        """Whether what is recorded is served; asked of the other side once."""
        if self._is_serving is None:
            told = self._ask("hello", Asked)
            self._is_serving = told is not None and bool(told.is_serving)
        return self._is_serving

    def sent(self, request: SentRequest) -> ExchangeObserver | ServedAnswer:
        """Tell of a request before it goes out; see the port."""
        told = self._ask("sent", AskedSent, request=request)
        if told is not None and told.answer is not None:
            return told.answer
        return _RemoteExchange(self, None if told is None else told.handle)

    def read(self, kind: Kind, name: str, take: Callable[[], Any]) -> Any:
        """Take or be served a read; see the port."""
        fields = {"kind": kind, "name": dump_text(name)}
        if self.is_serving:
            return self._served(self._ask("read", AskedRead, **fields))
        value = take()
        told = self._dump("read", value)
        if told is not None:
            self._ask("read", AskedRead, value=told, **fields)
        return value

    def derive(
        self, name: str, function: str, version: str | None, inputs: Raw, compute: Callable[[], Any]
    ) -> Any:
        """Compute a value; tell it, or be served the recorded one after that; see the port."""
        fields: dict[str, Any] = {
            "name": dump_text(name),
            "function": dump_text(function),
            "version": None if version is None else dump_text(version),
            "inputs": bytes(inputs),
        }
        is_serving, value = self.is_serving, None
        try:
            value = compute()
        except Exception as error:
            if not is_serving:
                raise
            fields["error"] = (dump_text(type(error).__name__), dump_text(_text_of(error)))
        else:
            fields["value"] = None if value is UNSET else self._dump("derive", value)
        told = self._ask("derive", AskedDerive, **fields)
        return self._served(told) if is_serving else value

    def begin_call(
        self, tool: str, effect: str, arguments: Raw, *, is_unsafe: bool, seam: str = "tool"
    ) -> CallObserver | ServedResult:
        """Tell of a tool's call before it runs; see the port."""
        told = self._ask(
            "call",
            AskedCall,
            tool=dump_text(tool),
            effect=effect,
            arguments=bytes(arguments),
            is_unsafe=is_unsafe,
            seam=seam,
        )
        if told is None or told.handle is not None:
            return _RemoteCall(self, None if told is None else told.handle)
        if told.error is not None:
            kind, message = (text.decode("utf-8", "surrogatepass") for text in told.error)
            return ServedResult(error=(kind, message))
        return ServedResult(UNSET if told.result is None else Raw(told.result))

    def declare_tool(self, tool: str, effect: str) -> None:
        """Take nothing: who is asked from another process declares its own tools."""

    def enter_flow(self, name: str) -> object:
        """Begin a named flow in this context; give what `leave_flow` takes."""
        token = self._whereabouts.enter()
        self._ask("enter", AskedEnter, name=dump_text(name))
        return token

    def leave_flow(self, token: object) -> None:
        """Go back to the flow before."""
        self._ask("leave", Asked)
        self._whereabouts.leave(token)

    def report_result(self, reported: ReportedResult, seam: str) -> None:
        """Tell the result of a call that someone else saw run."""
        self.tell(
            "report",
            AskedReport,
            call_id=_maybe_text(reported.call_id),
            tool=dump_text(reported.tool),
            arguments=bytes(reported.arguments),
            result=bytes(reported.result),
            status=reported.status,
            seam=seam,
        )

    def add_event(self, kind: Kind, payload: Payload, call_id: str | None = None) -> None:
        """Tell an event that a hook or another seam has made."""
        told, about = bytes(dump_payload(payload)), _maybe_text(call_id)
        self.tell("event", AskedEvent, kind=kind, payload=told, call_id=about)

    def note(
        self,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        """Tell something of another framework's own kind; with `is_durable`, durable on return."""
        told = self._dump("note", dict(fields))
        if told is not None:
            about = _maybe_text(call_id)
            self.tell(
                "note",
                AskedNote,
                name=dump_text(name),
                fields=told,
                call_id=about,
                is_durable=is_durable,
            )

    def tell(self, route: str, message: type[Asked], /, **fields: Any) -> None:
        """Tell the other side something that is answered with nothing."""
        self._ask(route, message, **fields)

    def _served(self, told: Told | None) -> Any:
        if told is None or told.value is None:
            self._stop("the other side answered without a value")
        return canonical.decode_value(told.value)

    def _dump(self, what: str, value: Any) -> bytes | None:
        """Write a value of the agent; what has no JSON form is a fault, and not the agent's."""
        try:
            return canonical.encode(value)
        except (TypeError, ValueError) as error:
            self._note(f"not recorded: {what} of what has no JSON form: {error}")
            return None

    def _ask(self, route: str, message: type[Asked], /, **fields: Any) -> Told | None:
        """Ask the other side; `None` where it is lost and the agent goes on."""
        if self._line.is_lost and self._fails_open and not self._is_serving:
            return None
        try:
            place, number = self._whereabouts.here()
            body = dump_message(message(place=place, number=number, **fields))
            if len(body) > MAX_MESSAGE_BYTES:
                self._miss(f"a message of {len(body)} bytes is too large for {route}")
                return None
            told = self._line.ask(route, body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._line.is_lost = True
            name, words = type(error).__name__, str(error)[:_ERROR_CHARS]
            self._miss(f"the recorder is lost: {name}: {words}")
            return None
        if told.stopped is not None:
            self._stop(told.stopped.decode("utf-8", "surrogatepass"))
        if told.refused is not None:
            raise StoreError(told.refused.decode("utf-8", "surrogatepass"))
        return told

    def _miss(self, why: str) -> None:
        """Go on without the other side, or stop; a rerun must not become a real run."""
        if self._is_serving:
            self._stop(why)
        if not self._fails_open:
            raise self._lost(why)
        self._note(why)

    def _stop(self, why: str) -> NoReturn:
        raise RerunStopped(why)

    def _note(self, what: str) -> None:
        if self.fault is None:
            self.fault = what
            self._on_fault(what)


def _tell_stderr(what: str) -> None:
    sys.stderr.write(f"redrive: {what}\n")


def _maybe_text(text: str | None) -> bytes | None:
    return None if text is None else dump_text(text)


def _text_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever its __str__ raises
        return ""


class _RemoteExchange:
    """Tells what came back for one request, in pieces of some size; see `ExchangeObserver`."""

    def __init__(self, backend: RemoteBackend, handle: int | None) -> None:
        self._backend = backend
        self._handle = handle
        self._data = bytearray()
        self._head: dict[str, Any] = {}

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        """Take status and headers of the answer."""
        self._head = {"status": status, "headers": headers, "at_ns": at_ns}

    def received(self, data: bytes) -> None:
        """Take the next bytes of the answer's body."""
        if self._handle is not None:
            self._data += data
            if len(self._data) >= _FLUSH_BYTES:
                self._flush()

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        """Take the end."""
        self._flush(outcome=outcome, ended_ns=at_ns, message=dump_text(message))
        self._handle = None

    def _flush(self, **end: Any) -> None:
        if self._handle is None:
            return
        head, self._head = self._head, {}
        data, self._data = bytes(self._data), bytearray()
        self._backend.tell("response", AskedResponse, handle=self._handle, data=data, **head, **end)


class _RemoteCall:
    """Tells how a tool ended; see `CallObserver`."""

    def __init__(self, backend: RemoteBackend, handle: int | None) -> None:
        self._backend = backend
        self._handle = handle

    def returned(self, result: Raw, *, is_error: bool = False) -> None:
        """Take the result as JSON."""
        self._tell(result=bytes(result), is_error=is_error)

    def returned_unknown(self, type_name: str) -> None:
        """Take that the result has no JSON form."""
        self._tell(unknown=dump_text(type_name))

    def raised(self, type_name: str, message: str) -> None:
        """Take the error that the tool ended with."""
        self._tell(error=(dump_text(type_name), dump_text(message)))

    def _tell(self, **how: Any) -> None:
        if self._handle is not None:
            self._backend.tell("returned", AskedReturned, handle=self._handle, **how)
