"""One stream connection as a pair of byte queues with back-pressure.

Knows asyncio transports. Must not know HTTP.

`asyncio.StreamReader` would do, but for two things that a recording proxy needs: to hear at once
that the agent hung up while its answer is still being written, without a task that waits for it,
and to tell whether a pooled connection holds bytes that nobody asked for.
"""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import cast

HIGH_BYTES = 64 * 1024
"""Unread bytes above which the peer is no longer read from; one read adds at most 256 KiB."""

_LINGER_NOT = struct.pack("ii", 1, 0)


class Wire(asyncio.Protocol):
    """A connection: bytes that came, bytes to be sent.

    Args:
        on_open: called once, when the connection stands.

    Attributes:
        is_ended: no further byte will come: the peer closed its side, or the connection is lost.
        is_lost: nothing can be sent any more.
        on_gone: called once when `is_ended` becomes true, if set then.
    """

    def __init__(self, on_open: "Callable[[Wire], None] | None" = None) -> None:
        self._on_open = on_open
        self._chunks: list[bytes] = []
        self._n_unread = 0
        self._waiting: asyncio.Future[None] | None = None
        self._draining: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._is_paused = False
        self._is_full = False
        self.is_ended = False
        self.is_lost = False
        self.on_gone: Callable[[], object] | None = None

    @property
    def has_unread(self) -> bool:
        """Whether bytes came that nobody has read."""
        return bool(self._chunks)

    async def read(self) -> bytes:
        """Wait for bytes, and take all that came; empty at the end.

        Raises:
            ConnectionError: the connection broke; what came before has been given first.
        """
        while not self._chunks:
            if self.is_ended:
                if self._error is not None:
                    raise ConnectionResetError("the connection broke") from self._error
                return b""
            self._waiting = asyncio.get_running_loop().create_future()
            try:
                await self._waiting
            finally:
                self._waiting = None
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._n_unread = 0
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    def write(self, data: bytes) -> None:
        """Send bytes; wait in `drain` before sending more.

        Raises:
            ConnectionError: the connection is lost.
        """
        if self._transport is None or self.is_lost or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the peer has taken enough of what was written.

        Raises:
            ConnectionError: the connection was lost meanwhile.
        """
        if self._is_full and not self.is_lost:
            self._draining = asyncio.get_running_loop().create_future()
            try:
                await self._draining
            finally:
                self._draining = None
        if self.is_lost:
            raise ConnectionResetError("the connection is lost")

    def end(self) -> None:
        """Close our side; the peer may still send."""
        if self._transport is not None and not self.is_lost and self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """Close once everything written is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once; what is not sent is dropped."""
        if self._transport is not None:
            self._transport.abort()

    def reset(self) -> None:
        """Close at once so that the peer sees an error, not an end (TCP RST)."""
        if self._transport is not None:
            handle = cast("socket.socket | None", self._transport.get_extra_info("socket"))
            if handle is not None and handle.family != socket.AF_UNIX and not self.is_lost:
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
            self._transport.abort()

    # --- what asyncio calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Queue bytes, and stop reading where nobody takes them."""
        self._chunks.append(data)
        self._n_unread += len(data)
        if self._n_unread > HIGH_BYTES and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        _wake(self._waiting)

    def eof_received(self) -> bool:
        """Note the end; a plain connection stays open for what we still have to send."""
        self._end()
        is_tls = self._transport is not None and self._transport.get_extra_info("ssl_object")
        return not is_tls

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the loss, and wake whoever waits."""
        self.is_lost = True
        self._error = exc
        self._end()
        _wake(self._draining)

    def pause_writing(self) -> None:
        """Make `drain` wait."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Let `drain` go on."""
        self._is_full = False
        _wake(self._draining)

    def _end(self) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        _wake(self._waiting)
        if self.on_gone is not None:
            self.on_gone()


def _wake(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)
