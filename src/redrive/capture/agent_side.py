"""The agent's side of the recording proxy: its requests read, its answers written.

Knows HTTP/1.1 as a server, and the limits of what is taken. Must not know upstreams or backends.
"""

import asyncio

import msgspec

from redrive.capture import passed_headers as rules
from redrive.capture.http_library import h11
from redrive.capture.plain import find_plain_request
from redrive.capture.ports import Outcome, ServedAnswer
from redrive.capture.wire import Wire

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
LINGER_S = 2.0
"""How long a refused client may go on sending before it is cut off; else it never sees why."""

_FRAMING = frozenset((b"content-length", b"connection"))
_NO_BODY_STATUS = frozenset((204, 304))


class Refusal(Exception):  # noqa: N818 - a word for the agent, no fault of the program
    """What the proxy itself answers in place of an upstream.

    Args:
        status: of HTTP.
        code: a stable word for programs.
        message: a line for people; empty where nothing may be told.
        is_final: whether asking again is pointless; SDKs are told so (`x-should-retry: false`).
    """

    def __init__(self, status: int, code: str = "", message: str = "", *, is_final: bool = False):
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.is_final = is_final


class _Words(msgspec.Struct, frozen=True):
    message: str
    type: str
    code: str


class _Refused(msgspec.Struct, frozen=True):
    error: _Words


class Head(msgspec.Struct, frozen=True):
    """The head of a request: method, target, raw headers in order, and the same by name."""

    method: bytes
    target: bytes
    headers: rules.RawHeaders
    fields: rules.Fields
    n_plain_body: int | None = None


class AgentSide:
    """One connection from an agent.

    Args:
        wire: the connection.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self._http = h11.Connection(h11.SERVER, MAX_HEADER_BYTES)
        # What came and was not taken, of plain requests; what h11 was given lies in it.
        self._ahead = b""
        self._is_plain = False
        self._is_chunked = False
        self._is_answering = False
        self._is_answered = False
        self._is_read = False
        self._method = b""

    async def read_head(self) -> Head | None:
        """Read the head of the next request; `None` where the agent is done.

        Raises:
            Refusal: it is no HTTP/1.1, or its headers are too long.
            ConnectionError: the connection broke.
        """
        self._is_answered = self._is_answering = self._is_read = self._is_plain = False
        if not self._http.trailing_data[0]:
            data = self._ahead or await self.wire.read()
            plain = find_plain_request(data, MAX_HEADER_BYTES)
            if plain is not None:
                self._is_plain, self._ahead = True, data[plain.n_head :]
                self._method = plain.method
                return Head(plain.method, plain.target, plain.headers, plain.fields, plain.n_body)
            self._ahead = b""
            self._http.receive_data(data)
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        self._method = event.method
        raw = event.headers.raw_items()
        # `h11` looks at the length of a head only for as long as its end is missing.
        if len(event.target) + sum(len(n) + len(v) for n, v in raw) > MAX_HEADER_BYTES:
            raise _headers_too_large()
        return Head(event.method, event.target, raw, rules.fields_of(raw))

    async def read_body(self, head: Head) -> bytes:
        """Read the rest of a request, which is asked for where the agent waits to be asked.

        Raises:
            Refusal: longer than `MAX_BODY_BYTES`, or malformed.
            ConnectionError: the connection broke before the end.
        """
        length = head.fields.get(b"content-length")
        if length is not None and int(length) > MAX_BODY_BYTES:
            raise _too_large()
        if head.n_plain_body is not None:
            body = await self._read_plain_body(head.n_plain_body)
        else:
            body = await self._read_body()
        self._is_read = True
        return body

    async def _read_plain_body(self, length: int) -> bytes:
        parts, size = [self._ahead], len(self._ahead)
        while size < length:
            data = await self.wire.read()
            if not data:
                raise ConnectionResetError("the agent closed before its request's end")
            parts.append(data)
            size += len(data)
        whole = parts[0] if len(parts) == 1 else b"".join(parts)
        self._ahead = whole[length:]
        return whole[:length]

    async def _read_body(self) -> bytes:
        if self._http.they_are_waiting_for_100_continue:
            self.wire.write(self._dump(h11.InformationalResponse(status_code=100, headers=[])))
        parts: list[bytes] = []
        size = 0
        while isinstance(event := await self._next_event(), h11.Data):
            size += len(event.data)
            if size > MAX_BODY_BYTES:
                raise _too_large()
            parts.append(event.data)
        return b"".join(parts)

    async def _next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self.wire.read())
        except h11.RemoteProtocolError as error:
            if self.wire.is_ended and not self.wire.has_unread:
                raise ConnectionResetError("the agent closed before its request's end") from error
            if error.error_status_hint == 431:
                raise _headers_too_large() from error
            message = "the request is not well-formed HTTP/1.1"
            raise Refusal(error.error_status_hint, "malformed_request", message) from error
        return event

    @property
    def is_read(self) -> bool:
        """Whether the whole request has been read."""
        return self._is_read

    @property
    def is_answering(self) -> bool:
        """Whether an answer has begun."""
        return self._is_answering

    @property
    def _is_modern(self) -> bool:
        """Whether the agent speaks HTTP/1.1, and so knows chunks and interim answers."""
        return self._is_plain or self._http.their_http_version == b"1.1"

    def dump_head(self, status: int, reason: bytes, headers: rules.RawHeaders) -> bytes:
        """Turn the head of an answer into bytes, its headers in the order given.

        `h11` is asked about the framing alone: it answers with what it adds, which goes last.
        """
        self._is_answering = True
        start = b"HTTP/1.1 %d %s\r\n" % (status, reason)
        framing = [item for item in headers if item[0].lower() in _FRAMING]
        if self._is_plain:
            is_framed = status in _NO_BODY_STATUS or any(
                name.lower() == b"content-length" for name, _ in framing
            )
            self._is_chunked = not is_framed
            added = b"Transfer-Encoding: chunked\r\n\r\n" if self._is_chunked else b"\r\n"
        else:
            dumped = self._dump(h11.Response(status_code=status, reason=reason, headers=framing))
            added = dumped[len(start) + len(rules.dump_lines(framing)) :]
        return start + rules.dump_lines(headers) + added

    def dump_early(self, status: int, reason: bytes, headers: rules.RawHeaders) -> bytes:
        """Turn an interim answer (1xx) into bytes; none where the agent cannot take it."""
        if not self._is_modern:
            return b""
        return b"HTTP/1.1 %d %s\r\n%s\r\n" % (status, reason, rules.dump_lines(headers))

    def dump_data(self, data: bytes) -> bytes:
        """Turn a piece of an answer's body into bytes; none is never one."""
        if not self._is_plain:
            return self._dump(h11.Data(data=data))
        return b"%x\r\n%s\r\n" % (len(data), data) if self._is_chunked else data

    def dump_end(self, trailers: rules.RawHeaders) -> bytes:
        """Turn the end of an answer into bytes; trailers are lost where they cannot be sent."""
        self._is_answered = True
        if self._is_plain:
            return b"0\r\n%s\r\n" % rules.dump_lines(trailers) if self._is_chunked else b""
        return self._dump(h11.EndOfMessage(headers=trailers if self._is_modern else []))

    def _dump(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    async def answer(self, answer: ServedAnswer, reason: bytes = b"") -> None:
        """Send a recorded answer, whole or as far as it came; its length is told anew.

        Raises:
            ConnectionError: the agent is gone, or the answer ended before its end.
        """
        is_whole = answer.outcome is Outcome.COMPLETE
        if not answer.status:
            self.wire.close()
            raise ConnectionResetError
        headers = rules.response_headers(
            [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers]
        )
        is_bare = self._method == b"HEAD" or answer.status in _NO_BODY_STATUS
        if not is_bare:
            headers = [item for item in headers if item[0].lower() != b"content-length"]
            headers.append((b"content-length", b"%d" % (len(answer.body) + (not is_whole))))
        data = self.dump_head(answer.status, reason, headers)
        if answer.body and not is_bare:
            data += self.dump_data(answer.body)
        self.wire.write(data + (self.dump_end([]) if is_whole else b""))
        await self.wire.drain()
        if not is_whole:
            self.break_off()
            raise ConnectionResetError

    async def refuse(self, refusal: Refusal) -> None:
        """Say why nothing was passed on; the connection stays usable if the request was read.

        Raises:
            ConnectionError: the agent is gone.
        """
        body = b""
        headers = [("cache-control", "no-store"), ("x-content-type-options", "nosniff")]
        if refusal.message:
            words = _Words(refusal.message, "redrive_proxy", refusal.code)
            body = msgspec.json.encode(_Refused(words))
            headers.append(("content-type", "application/json"))
        if refusal.is_final:
            headers.append(("x-should-retry", "false"))
        if not self._is_read:
            headers.append(("connection", "close"))
        await self.answer_ours(ServedAnswer(refusal.status, tuple(headers), body))

    async def answer_ours(self, answer: ServedAnswer) -> None:
        """Send an answer of the proxy itself, `Connection` included."""
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        headers.append((b"content-length", b"%d" % len(answer.body)))
        data = self.dump_head(answer.status, b"", headers)
        if answer.body and self._method != b"HEAD":
            data += self.dump_data(answer.body)
        self.wire.write(data + self.dump_end([]))
        await self.wire.drain()

    def begin_next(self) -> bool:
        """Make ready for the next request; false where the connection has to be closed."""
        if self._is_plain:
            return self._is_read and self._is_answered
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        return False

    def break_off(self) -> None:
        """End in the middle of an answer so that it cannot be taken for whole."""
        if self._is_modern:
            self.wire.close()  # a missing last chunk, or too few bytes, tell
        else:
            self.wire.reset()  # to HTTP/1.0 the end of the connection is the end of the body

    async def linger(self) -> None:
        """Take what a refused agent still sends, for a while: a reset would destroy our answer."""
        self.wire.end()
        try:
            async with asyncio.timeout(LINGER_S):
                while await self.wire.read():
                    pass
        except (ConnectionError, TimeoutError):
            return


def _headers_too_large() -> Refusal:
    return Refusal(
        431, "headers_too_large", f"the headers are longer than {MAX_HEADER_BYTES} bytes"
    )


def _too_large() -> Refusal:
    return Refusal(413, "body_too_large", f"the body is longer than {MAX_BODY_BYTES} bytes")
