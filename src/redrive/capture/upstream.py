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

from redrive.capture.http_library import h11
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


class UpstreamConnection:
    """An HTTP/1.1 connection to an upstream: its wire, and where its conversation stands."""

    def __init__(self, upstream: Upstream, wire: Wire) -> None:
        self.upstream = upstream
        self.wire = wire
        self.http = h11.Connection(h11.CLIENT, MAX_HEADER_BYTES)
        self.idle_since_s = 0.0

    def send(self, request: h11.Request, body: bytes) -> None:
        """Send a whole request; it is never waited for: its answer may come before its end."""
        parts = [self.http.send(request)]
        if body:
            parts.append(self.http.send(h11.Data(data=body)))
        parts.append(self.http.send(h11.EndOfMessage()))
        self.wire.write(b"".join(part for part in parts if part))


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
        http, wire = connection.http, connection.wire
        is_done = http.our_state is h11.DONE and http.their_state is h11.DONE
        is_quiet = not (wire.is_ended or wire.has_unread or http.trailing_data[0])
        if not (is_done and is_quiet and len(idle) < MAX_IDLE):
            wire.close()
            return
        http.start_next_cycle()
        connection.idle_since_s = time.monotonic()
        idle.append(connection)

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
        return f"TLS failed: {error.reason or type(error).__name__}"
    return error.strerror or type(error).__name__
