"""Lets a tool's worker reach the places of the network that it is granted, and no others.

Speaks HTTP as a proxy does: CONNECT, or a request with an absolute URL. Knows grants of
`HOST:PORT`; a name is resolved here, outside. What is passed is not looked into.

Source: DESIGN.md §6; RFC 9110 §9.3.6, RFC 9112 §3.2.2.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec

from redrive.errors import UsageError

MAX_HEAD_BYTES = 64 * 1024
_CONNECT_S = 30.0
_CHUNK_BYTES = 64 * 1024
_HTTP_PORT = 80
_DROPPED = frozenset((b"host", b"connection", b"proxy-connection", b"proxy-authorization"))

OnDenied = Callable[[str, str], None]
"""Told of a place that is not granted, `network HOST:PORT`, and why."""


class _Wanted(msgspec.Struct, frozen=True):
    """Where a request goes, and what is sent there first; nothing of a tunnel is."""

    host: str
    port: int
    first: bytes

    @property
    def place(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


async def forward(sock: socket.socket, granted: Sequence[str], on_denied: OnDenied) -> None:
    """Serve one connection of a worker to its end.

    Args:
        sock: connected; closed in the end.
        granted: `HOST:PORT`, compared without regard to case.
        on_denied: see `OnDenied`.
    """
    reader, writer = await asyncio.open_connection(sock=sock, limit=MAX_HEAD_BYTES)
    try:
        wanted = parse_head(await reader.readuntil(b"\r\n\r\n"))
        if wanted.place.lower() not in {place.lower() for place in granted}:
            on_denied(f"network {wanted.place}", "the tool is not granted this place")
            await _refuse(writer, 403, "not granted")
            return
        await _relay(wanted, reader, writer)
    except UsageError as error:
        await _refuse(writer, 400, error.message)
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        pass
    finally:
        writer.close()


def parse_head(head: bytes) -> _Wanted:
    """Read the head of a request to a proxy.

    Raises:
        UsageError: it is neither CONNECT nor a request of plain HTTP with an absolute URL.
    """
    first, *lines = head[:-4].split(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not head.isascii():
        raise UsageError("no request of HTTP/1.1")
    method, target, version = words
    is_tunnel = method == b"CONNECT"
    try:
        parts = urlsplit(("//" if is_tunnel else "") + target.decode("ascii"))
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError("no address") from error
    if not host or parts.username or parts.password:
        raise UsageError("no address")
    if is_tunnel:
        if port is None or parts.path or parts.query:
            raise UsageError("a tunnel leads to HOST:PORT")
        return _Wanted(host, port, b"")
    if parts.scheme != "http":
        raise UsageError("only plain HTTP and CONNECT are passed on")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    kept = [line for line in lines if line.partition(b":")[0].strip().lower() not in _DROPPED]
    start = b" ".join((method, path.encode(), version))
    named = [b"Host: " + parts.netloc.encode(), b"Connection: close"]
    return _Wanted(host, port or _HTTP_PORT, b"\r\n".join([start, *named, *kept]) + b"\r\n\r\n")


async def _relay(
    wanted: _Wanted, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        async with asyncio.timeout(_CONNECT_S):
            there, away = await asyncio.open_connection(wanted.host, wanted.port)
    except (OSError, TimeoutError):
        await _refuse(writer, 502, "the place cannot be reached")
        return
    try:
        if wanted.first:
            away.write(wanted.first)
        else:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, away), _copy(there, writer))
    finally:
        away.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: int, words: str) -> None:
    body = f"redrive: {words}\n".encode()
    head = f"HTTP/1.1 {status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with suppress(OSError):
        writer.write(head.encode() + body)
        await writer.drain()
