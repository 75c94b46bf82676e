"""The agent's side of the recording proxy: its requests read, its answers written.

Knows HTTP/1.1 as a server, and the limits of what is taken. Must not know upstreams or backends.
"""

import asyncio

import msgspec

from redrive.capture import headers as rules
from redrive.capture.http_library import h11
from redrive.capture.ports import ServedAnswer
from redrive.capture.wire import Wire

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
LINGER_S = 2.0
"""How long a refused client may go on sending before it is cut off; else it never sees why."""

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


class AgentSide:
    """One connection from an agent.

    Args:
        wire: the connection.
    """

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.http = h11.Connection(h11.SERVER, MAX_HEADER_BYTES)
        self.method = b""

    async def read_head(self) -> h11.Request | None:
        """Read the head of the next request; `None` where the agent is done.

        Raises:
            Refusal: it is no HTTP/1.1, or its headers are too long.
            ConnectionError: the connection broke.
        """
        event = await self._next_event()
        if not isinstance(event, h11.Request):
            return None
        self.method = event.method
        return event

    async def read_body(self, head: h11.Request) -> bytes:
        """Read the rest of a request, which is asked for where the agent waits to be asked.

        Raises:
            Refusal: longer than `MAX_BODY_BYTES`, or malformed.
            ConnectionError: the connection broke before the end.
        """
        length = rules.first(head.headers, b"content-length")
        if length is not None and int(length) > MAX_BODY_BYTES:
            raise _too_large()
        if self.http.they_are_waiting_for_100_continue:
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
            while (event := self.http.next_event()) is h11.NEED_DATA:
                self.http.receive_data(await self.wire.read())
        except h11.RemoteProtocolError as error:
            if self.wire.is_ended and not self.wire.has_unread:
                raise ConnectionResetError("the agent closed before its request's end") from error
            if error.error_status_hint == 431:
                raise Refusal(431, "headers_too_large", "the headers are too long") from error
            message = "the request is not well-formed HTTP/1.1"
            raise Refusal(error.error_status_hint, "malformed_request", message) from error
        return event

    @property
    def takes_trailers(self) -> bool:
        """Whether fields after the body can be passed on."""
        return self.http.their_http_version == b"1.1"

    def dump_head(self, status: int, reason: bytes, headers: rules.RawHeaders) -> bytes:
        """Turn the head of an answer into bytes."""
        return self._dump(h11.Response(status_code=status, reason=reason, headers=headers))

    def dump_early(self, status: int, reason: bytes, headers: rules.RawHeaders) -> bytes:
        """Turn an interim answer (1xx) into bytes; none where the agent cannot take it."""
        if self.http.their_http_version != b"1.1":
            return b""
        early = h11.InformationalResponse(status_code=status, reason=reason, headers=headers)
        return self._dump(early)

    def dump_data(self, data: bytes) -> bytes:
        """Turn a piece of an answer's body into bytes."""
        return self._dump(h11.Data(data=data))

    def dump_end(self, trailers: rules.RawHeaders) -> bytes:
        """Turn the end of an answer into bytes."""
        kept = trailers if self.takes_trailers else []
        return self._dump(h11.EndOfMessage(headers=kept))

    def _dump(self, event: h11.Event) -> bytes:
        return self.http.send(event) or b""

    async def answer(self, answer: ServedAnswer, reason: bytes = b"") -> None:
        """Send a whole answer; its length is told anew.

        Raises:
            ConnectionError: the agent is gone.
        """
        headers = rules.response_headers(
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers
        )
        is_bare = self.method == b"HEAD" or answer.status in _NO_BODY_STATUS
        if not is_bare:
            headers = [item for item in headers if item[0].lower() != b"content-length"]
            headers.append((b"content-length", b"%d" % len(answer.body)))
        data = self.dump_head(answer.status, reason, headers)
        if answer.body and not is_bare:
            data += self.dump_data(answer.body)
        self.wire.write(data + self.dump_end([]))
        await self.wire.drain()

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
        if self.http.their_state is not h11.DONE:
            headers.append(("connection", "close"))
        await self.answer_ours(ServedAnswer(refusal.status, tuple(headers), body))

    async def answer_ours(self, answer: ServedAnswer) -> None:
        """Send an answer of the proxy itself, `Connection` included."""
        headers = [(name.encode(), value.encode()) for name, value in answer.headers]
        headers.append((b"content-length", b"%d" % len(answer.body)))
        data = self.dump_head(answer.status, b"", headers)
        if answer.body and self.method != b"HEAD":
            data += self.dump_data(answer.body)
        self.wire.write(data + self.dump_end([]))
        await self.wire.drain()

    def begin_next(self) -> bool:
        """Make ready for the next request; false where the connection has to be closed."""
        if self.http.our_state is h11.DONE and self.http.their_state is h11.DONE:
            self.http.start_next_cycle()
            return True
        return False

    def break_off(self) -> None:
        """End in the middle of an answer so that it cannot be taken for whole."""
        if self.http.their_http_version == b"1.1":
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


def _too_large() -> Refusal:
    return Refusal(413, "body_too_large", f"the body is longer than {MAX_BODY_BYTES} bytes")
