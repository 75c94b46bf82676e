"""The servers that the recording proxy passes requests on to, and the connections to them.

Knows addresses, TLS and HTTP/1.1 as a client. Must not know what is recorded, and must not retry:
each attempt is the agent's own decision.
"""

import asyncio
import ssl
import time
import weakref
from urllib.parse import urlsplit

import msgspec

from redrive.capture import passed_headers as rules
from redrive.capture.http_library import h11
from redrive.capture.plain import find_plain_response
from redrive.capture.wire import Wire
from redrive.errors import UsageError

MAX_HEADER_BYTES = 64 * 1024
MAX_IDLE = 64
"""Kept connections per upstream; more than that many at once are closed after use."""
MAX_IDLE_S = 30.0
"""A connection that lay idle for longer is not used again: its server may be closing it."""

_PORTS = {"http": 80, "https": 443}


class Upstream(msgspec.Struct, frozen=True):
    """A server by its base URL.

    Attributes:
        root: the base URL without a last slash.
        host: as it is resolved.
        port: of the server.
        is_tls: whether the connection is encrypted; certificates are always verified.
        authority: what the `Host` header says.
        path: the path of `root`; may be empty.
    """

    root: str
    host: str
    port: int
    is_tls: bool
    authority: str
    path: str


def parse_upstream(url: str) -> Upstream:
    """Parse a base URL.

    Raises:
        UsageError: no http(s) URL with a host, or one with credentials, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError as error:
        raise UsageError(f"not the URL of a server: {error}") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError("an upstream is no http or https URL with a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UsageError("an upstream's URL carries credentials, a query or a fragment")
    if not (url.isascii() and url.isprintable() and " " not in url):
        raise UsageError("an upstream's URL holds spaces, control or non-ASCII characters")
    path = parts.path.rstrip("/")
    root = f"{parts.scheme}://{parts.netloc}{path}"
    is_tls = parts.scheme == "https"
    return Upstream(root, parts.hostname, port, is_tls, parts.netloc, path)


class Began(msgspec.Struct, frozen=True):
    """The head of an answer; an interim one (1xx) is followed by another."""

    status: int
    reason: bytes
    headers: rules.RawHeaders


class Piece(msgspec.Struct, frozen=True):
    """Bytes of an answer's body, as they came; never none."""

    data: bytes


class Ended(msgspec.Struct, frozen=True):
    """The end of an answer, with the fields that came behind its body."""

    trailers: rules.RawHeaders


class Broken(msgspec.Struct, frozen=True):
    """The answer cannot go on: the server closed its side, or what it says is no HTTP/1.1."""

    is_closed: bool


AnswerEvent = Began | Piece | Ended | Broken


class UpstreamConnection:
    """An HTTP/1.1 connection to an upstream: its wire, and where its conversation stands.

    `h11` is only told of a request when its answer turns out not to be plain.
    """

    def __init__(self, upstream: Upstream, wire: Wire) -> None:
        self.upstream = upstream
        self.wire = wire
        self.idle_since_s = 0.0
        self._http = h11.Connection(h11.CLIENT, MAX_HEADER_BYTES)
        self._method = b""
        self._n_left: int | None = None  # of a plain answer's body
        self._is_deferred = False
        self._is_done = True
        self._has_surplus = False

    def send(self, method: bytes, target: bytes, headers: rules.RawHeaders, body: bytes) -> None:
        """Send a whole request, its headers in the order given.

        It is never waited for: its answer may come before its end. The headers were checked when
        they were parsed.

        Raises:
            ConnectionError: the connection is closed.
        """
        self._method = method
        self._n_left = None
        self._is_deferred = True
        self._is_done = False
        lines = rules.dump_lines(headers)
        self.wire.write(b"%s %s HTTP/1.1\r\n%s\r\n%s" % (method, target, lines, body))

    def take(self, data: bytes) -> list[AnswerEvent]:
        """Turn bytes of the server into what they say, in order; none means its end.

        `Broken` comes last and once; nothing is taken behind it or behind `Ended`.
        """
        if self._n_left is not None:
            return self._take_plain(data)
        if self._is_deferred:
            plain = find_plain_response(data, MAX_HEADER_BYTES) if self._method != b"HEAD" else None
            self._is_deferred = False
            if plain is not None:
                self._n_left = plain.n_body
                began = Began(plain.status, plain.reason, plain.headers)
                rest = data[plain.n_head :]
                return [began, *(self._take_plain(rest) if rest or not plain.n_body else ())]
            self._tell_library()
        return self._take_any(data)

    def _take_plain(self, data: bytes) -> list[AnswerEvent]:
        left = self._n_left or 0
        if not data and left:
            return [Broken(is_closed=True)]
        self._n_left = left - len(data)
        self._has_surplus = len(data) > left
        body = data[:left]
        events: list[AnswerEvent] = [Piece(body)] if body else []
        if self._n_left <= 0:
            self._is_done = True
            events.append(Ended([]))
        return events

    def _tell_library(self) -> None:
        """Tell `h11` what was asked; the body's length does not matter to the answer."""
        request = h11.Request(method=self._method, target=b"/", headers=[(b"Host", b"-")])
        self._http.send(request)
        self._http.send(h11.EndOfMessage())

    def _take_any(self, data: bytes) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        self._http.receive_data(data)
        try:
            while not self._is_done:
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    break
                events.append(self._event_of(event))
        except h11.RemoteProtocolError:
            events.append(Broken(is_closed=not data))
        return events

    def _event_of(self, event: object) -> AnswerEvent:
        match event:
            case h11.Data():
                return Piece(bytes(event.data))
            case h11.Response() | h11.InformationalResponse():
                return Began(event.status_code, bytes(event.reason), event.headers.raw_items())
            case h11.EndOfMessage():
                self._is_done = True
                return Ended(event.headers.raw_items())
            case _:  # the end of the connection, where `h11` takes it for no fault
                return Broken(is_closed=True)

    def begin_next(self) -> bool:
        """Make ready for the next request; false where the connection cannot be used again."""
        http = self._http
        is_quiet = not (self.wire.is_ended or self.wire.has_unread or self._has_surplus)
        if not (self._is_done and is_quiet and not http.trailing_data[0]):
            return False
        if self._n_left is None:
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return False
            http.start_next_cycle()
        return True


class UpstreamPool:
    """Connections to upstreams, kept between requests.

    Args:
        ssl_context: what to verify certificates with; by default the system's, or what
            `SSL_CERT_FILE` and `SSL_CERT_DIR` name. Made on first use.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
        self._idle: dict[Upstream, list[UpstreamConnection]] = {}
        self._wires: weakref.WeakSet[Wire] = weakref.WeakSet()

    async def acquire(self, upstream: Upstream) -> UpstreamConnection:
        """Give a kept connection that is still good, the most recent first, or a new one.

        Raises:
            OSError: no connection; TLS faults are among them.
        """
        idle = self._idle.get(upstream, [])
        oldest_s = time.monotonic() - MAX_IDLE_S
        while idle:
            kept = idle.pop()
            if kept.wire.is_ended or kept.wire.has_unread or kept.idle_since_s < oldest_s:
                kept.wire.abort()
            else:
                return kept
        loop = asyncio.get_running_loop()
        _, wire = await loop.create_connection(
            Wire, upstream.host, upstream.port, ssl=self._tls() if upstream.is_tls else None
        )
        self._wires.add(wire)
        return UpstreamConnection(upstream, wire)

    def release(self, connection: UpstreamConnection) -> None:
        """Take back a connection after a whole answer; one that cannot be used again is closed."""
        idle = self._idle.setdefault(connection.upstream, [])
        if len(idle) < MAX_IDLE and connection.begin_next():
            connection.idle_since_s = time.monotonic()
            idle.append(connection)
        else:
            connection.wire.close()

    def close(self) -> None:
        """Close every connection at once."""
        self._idle.clear()
        for wire in self._wires:
            if not wire.is_lost:
                wire.abort()

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = ssl.create_default_context()
            self._ssl_context.set_alpn_protocols(["http/1.1"])
        return self._ssl_context


def failure_of(error: OSError) -> str:
    """Say why no connection came about, in words that hold no part of what was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {getattr(error, 'reason', None) or type(error).__name__}"
    return error.strerror or type(error).__name__
