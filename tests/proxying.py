"""What tests of the recording proxy share: a raw upstream, a backend that remembers, raw clients.

Everything runs in one event loop, so that a test can wait for what the other side has seen.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from redrive.capture.ports import ExchangeObserver, Headers, Outcome, SentRequest, ServedAnswer
from redrive.capture.proxy import Proxy


@dataclass
class Exchange:
    """One exchange as the backend saw it; the observer of itself."""

    request: SentRequest
    status: int = 0
    headers: Headers = ()
    chunks: list[bytes] = field(default_factory=list)
    outcome: Outcome | None = None
    message: str = ""
    ends: int = 0

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def responded(self, status: int, headers: Headers, at_ns: int) -> None:
        assert at_ns > 0
        self.status, self.headers = status, headers

    def received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.chunks.append(data)

    def finished(self, outcome: Outcome, at_ns: int, message: str = "") -> None:
        assert at_ns > 0
        self.outcome, self.message = outcome, message
        self.ends += 1


@dataclass
class MemoryBackend:
    """Remembers every exchange; serves what `serve` gives, raises what `fault` holds."""

    serve: Callable[[SentRequest], ServedAnswer | None] = lambda _: None
    fault: BaseException | None = None
    exchanges: list[Exchange] = field(default_factory=list)
    is_serving: bool = False

    @property
    def only(self) -> Exchange:
        (exchange,) = self.exchanges
        return exchange

    def sent(self, request: SentRequest) -> ExchangeObserver | ServedAnswer:
        if self.fault is not None:
            raise self.fault
        exchange = Exchange(request)
        self.exchanges.append(exchange)
        return self.serve(request) or exchange

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a proxy has no business with {name}")


@dataclass
class Talk:
    """One request at the fake upstream, and the means to answer it byte by byte."""

    head: bytes
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    connection: int

    @property
    def target(self) -> bytes:
        return self.head.split(b" ")[1]

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        lines = self.head.split(b"\r\n")[1:]
        return [tuple(line.split(b": ", 1)) for line in lines if line]  # type: ignore[misc]

    def header(self, name: bytes) -> bytes | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    async def write(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self, body: bytes, status: bytes = b"200 OK", *headers: bytes) -> None:
        lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *headers]
        await self.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)

    async def begin(self, *headers: bytes) -> None:
        lines = [b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked", *headers]
        await self.write(b"\r\n".join(lines) + b"\r\n\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.write(chunk(data))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


Handler = Callable[[Talk], Awaitable[None]]


@dataclass
class Upstream:
    """A raw HTTP/1.1 server that hands each request to `handler`."""

    handler: Handler
    url: str = ""
    n_connections: int = 0
    n_open: int = 0
    talks: list[Talk] = field(default_factory=list)
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        self.n_open += 1
        connection = self.n_connections
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                talk = Talk(head[:-4], b"", reader, writer, connection)
                length = int(talk.header(b"content-length") or 0)
                talk.body = await reader.readexactly(length)
                self.talks.append(talk)
                await self.handler(talk)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.n_open -= 1
            self.closed.set()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[Upstream]:
    upstream = Upstream(handler)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=tls)
    scheme = "https" if tls else "http"
    upstream.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield upstream
    finally:
        server.close()
        while upstream.n_open:
            upstream.closed.clear()
            await asyncio.wait_for(upstream.closed.wait(), 60)


@contextlib.asynccontextmanager
async def proxying(
    backend: MemoryBackend, handler: Handler, path: str = "", **further: Any
) -> AsyncIterator[tuple[Proxy, Upstream]]:
    """Run a proxy before a fake upstream that is named `m`."""
    async with serving(handler, further.pop("tls", None)) as upstream:
        proxy = Proxy(backend, {"m": upstream.url + path}, **further)  # type: ignore[arg-type]
        await proxy.start()
        try:
            yield proxy, upstream
        finally:
            await proxy.close()


def authority_of(proxy: Proxy) -> tuple[str, int]:
    host, port = proxy.url_for("m").split("/")[2].split(":")
    return host, int(port)


def request(
    proxy: Proxy,
    target: str = "/v1/x",
    method: str = "POST",
    body: bytes = b"{}",
    headers: Sequence[bytes] = (),
    *,
    version: str = "1.1",
    is_last: bool = True,
) -> bytes:
    """Write a request to the upstream `m` as bytes."""
    host, port = authority_of(proxy)
    lines = [
        f"{method} {proxy.path_for('m')}{target} HTTP/{version}".encode(),
        f"Host: {host}:{port}".encode(),
        *headers,
    ]
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    if is_last:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


async def ask(proxy: Proxy, raw: bytes) -> bytes:
    """Send bytes to a proxy and read all that comes until it closes."""
    reader, writer = await asyncio.open_connection(*authority_of(proxy))
    try:
        writer.write(raw)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 60)
    finally:
        await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the other side has no event to wait for
            await asyncio.sleep(0.001)


async def cancel_when(condition: Callable[[], object], work: Coroutine[Any, Any, object]) -> None:
    """Let an agent work until something is so, and cancel it then."""
    task = asyncio.create_task(work)
    await until(condition)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def body_of(raw: bytes) -> bytes:
    """Take the body of a raw answer, unchunked where it is chunked."""
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" not in head.lower():
        return body
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        parts.append(body[:length])
        body = body[length + 2 :]
        if not length:
            break
    return b"".join(parts)
