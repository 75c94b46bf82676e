"""Observes MCP over streamable HTTP, behind the recording proxy.

Knows how the transport carries messages: a POST holds one message or a batch, its answer is JSON or
a stream of events, a GET opens a further stream, a DELETE ends a session. Must not know sockets.
What passes is not changed; headers are read and never reported.

Ids of JSON-RPC hold within a session (`Mcp-Session-Id`). Where a server keeps none, as servers of
2026-07-28 do, they hold within one exchange, and a client that leaves an exchange has cancelled
what it asked there; in a session it may come back for the answer.

Source: Model Context Protocol, "Transports", streamable HTTP; WHATWG HTML, "Server-sent events".
"""

from itertools import count

from redrive.capture.exchanges import decode_content, encodings_of
from redrive.capture.mcp import McpObserver
from redrive.capture.mcp_answers import CLOSED
from redrive.capture.mcp_messages import Id
from redrive.capture.mcp_notes import Side
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_EVENTS, _JSON = "text/event-stream", "application/json"
_SERVED = (("content-type", _JSON), ("cache-control", "no-store"))


class McpHttp:
    """What the recording proxy tells; see `redrive.capture.ports.HttpBackend`.

    Args:
        observer: is told of the messages, each before it is passed on.
    """

    def __init__(self, observer: McpObserver) -> None:
        self._observer = observer
        self._numbers = count(1)

    @property
    def is_serving(self) -> bool:
        """Whether results are served, and the server must not be asked."""
        return self._observer.is_serving

    def sent(self, request: SentRequest) -> "McpExchange | ServedAnswer":
        """Take a request, whatever it is for; only a POST holds messages."""
        session = _find(request.headers, "mcp-session-id")
        scope = f"session {session}" if session else f"exchange {next(self._numbers)}"
        asked: tuple[Id, ...] = ()
        if request.method == "POST":
            asked, answer = self._observer.from_client(request.body, scope)
            if answer is not None:
                return ServedAnswer(200 if answer else 202, _SERVED, answer)
        is_end = request.method == "DELETE" and bool(session)
        return McpExchange(self._observer, scope, asked, is_in_session=bool(session), is_end=is_end)


class McpExchange:
    """Is told what came back for one request; see `redrive.capture.ports.ExchangeObserver`.

    Args:
        observer: is told of the messages.
        scope: where their ids hold.
        asked: the requests that went out with this exchange.
        is_in_session: whether the client may come back for an answer.
        is_end: whether the exchange ends its session.
    """

    def __init__(
        self,
        observer: McpObserver,
        scope: str,
        asked: tuple[Id, ...],
        *,
        is_in_session: bool,
        is_end: bool,
    ) -> None:
        self._observer = observer
        self._scope = scope
        self._asked = asked
        self._is_in_session = is_in_session
        self._is_end = is_end
        self._status = 0
        self._body = bytearray()
        self._is_json = False
        self._encodings: tuple[str, ...] = ()
        self._events: EventSplitter | None = None
        self._n_bytes = 0

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:  # noqa: ARG002 - port
        """Take status and headers of the answer."""
        self._status = status
        kind = (_find(headers, "content-type") or "").partition(";")[0].strip().lower()
        self._encodings = encodings_of(headers)
        self._is_json = kind == _JSON
        if kind == _EVENTS:
            self._events = EventSplitter()

    def received(self, data: bytes) -> None:
        """Take the next bytes of the answer's body."""
        self._n_bytes += len(data)
        if self._events is not None and not self._encodings:
            self._show(self._events, data)
        elif (self._is_json or self._events is not None) and not self._is_too_long:
            self._body += data

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:  # noqa: ARG002
        """Take the end."""
        if self._is_too_long:
            reason = f"an answer of more than {MAX_MESSAGE_BYTES} bytes"
            self._observer.skipped(Side.SERVER, self._n_bytes, reason)
        elif self._body:
            self._show_body()
        self._tell_end(outcome, message)

    @property
    def _is_too_long(self) -> bool:
        is_held = self._is_json or bool(self._encodings)
        return is_held and self._n_bytes > MAX_MESSAGE_BYTES

    def _show_body(self) -> None:
        try:
            content = decode_content(bytes(self._body), self._encodings)
        except ValueError as error:
            self._observer.skipped(Side.SERVER, self._n_bytes, f"an answer that is {error}")
            return
        if self._events is not None:  # a stream under a content encoding is read at its end
            self._show(self._events, content)
        else:
            self._observer.from_server(content, self._scope)

    def _show(self, events: "EventSplitter", data: bytes) -> None:
        for event in events.feed(data):
            if isinstance(event, int):
                reason = f"an event of more than {MAX_MESSAGE_BYTES} bytes"
                self._observer.skipped(Side.SERVER, event, reason)
            else:
                self._observer.from_server(event, self._scope)

    def _tell_end(self, outcome: Outcome, message: str) -> None:
        if outcome is Outcome.CANCELLED and not self._is_in_session:
            self._observer.gave_up(self._asked, "the client closed its side")
        elif outcome is Outcome.FAILED or (outcome is Outcome.CUT and not self._is_in_session):
            self._observer.lost(self._asked, CLOSED, message)
        elif outcome is Outcome.COMPLETE and self._status >= 400:
            self._observer.lost(self._asked, "HTTP error", f"status {self._status}")
        elif self._is_end and outcome is Outcome.COMPLETE:
            self._observer.lost_all(self._scope, CLOSED, "the client ended the session")


class EventSplitter:
    """Takes a stream of events apart: the data of each, as soon as its last byte is there.

    Args:
        max_bytes: the longest event that is held.
    """

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._is_blank = True
        self._data: list[bytes] = []
        self._n_bytes = 0
        self._is_after_cr = False

    def feed(self, chunk: bytes) -> list[bytes | int]:
        """Take the next bytes; give what ended in them: data, or the size of what was too long."""
        if self._is_after_cr and chunk.startswith(b"\n"):  # the other half of a line's end
            chunk, self._is_after_cr = chunk[1:], False
        if chunk:
            self._is_after_cr = chunk.endswith(b"\r")
        # `\r\n`, `\n` and `\r` each end a line.
        *ended, rest = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        found: list[bytes | int] = []
        for end in ended:
            self._hold(end)
            found += self._end_event() if self._is_blank else ()
            self._end_line()
        self._hold(rest)
        return found

    def _hold(self, part: bytes) -> None:
        self._is_blank = self._is_blank and not part
        self._n_bytes += len(part)
        if self._n_bytes <= self._max_bytes:
            self._line += part
        else:
            self._line.clear()
            self._data.clear()

    def _end_line(self) -> None:
        name, _, value = bytes(self._line).partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
        self._line.clear()
        self._is_blank = True

    def _end_event(self) -> list[bytes | int]:
        data, n_bytes = self._data, self._n_bytes
        self._data, self._n_bytes = [], 0
        if n_bytes > self._max_bytes:
            return [n_bytes]
        return [b"\n".join(data)] if data else []


def _find(headers: Headers, name: str) -> str | None:
    return next((value for found, value in headers if found == name), None)
