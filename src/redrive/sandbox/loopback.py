"""The outside of the one descriptor: connections that a confined command made to its loopback.

Knows the packets of `shim.py` and hands connected sockets to whoever serves them. Does not know
what is spoken on them. Everything that comes through the channel is hostile: of the descriptors
only connected TCP sockets on loopback addresses are used, and ends of unnamed pairs of Unix streams
where they are asked for; the others are closed unread, and only so many are open at once.

Source: DESIGN.md §6; unix(7) "SCM_RIGHTS".
"""

import array
import asyncio
import json
import os
import socket
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from redrive.errors import UsageError
from redrive.sandbox.shim import CONNECTION, FAILED, STARTED

Serve = Callable[[socket.socket], Awaitable[None]]
"""Takes over one connected, non-blocking socket and closes it in the end, then or later."""

# Any would do, as nothing else listens in there; this one collides with no usual server.
LOOPBACK_PORT = 42117
LOOPBACK_ORIGIN = f"http://127.0.0.1:{LOOPBACK_PORT}"
MAX_CONNECTIONS = 256
_SHIM = Path(__file__).with_name("shim.py")
_LOOPBACK = "127."
_PACKET_BYTES = 4096
_LEFT_S = 1.0


class FolderCopy(msgspec.Struct, frozen=True):
    """A folder to copy inside before the command starts; all are absolute paths inside.

    Args:
        source: what is copied.
        target: a folder that is there.
        skipped: paths below the source that are left out.
    """

    source: str
    target: str
    skipped: tuple[str, ...] = ()


class LoopbackReport(msgspec.Struct, frozen=True):
    """What came through the channel.

    Args:
        n_connections: served.
        n_refused: closed unread: beyond the limit, or not what may come.
        n_failed: ended by an error of whoever served them.
        is_started: the shim had set up all, so that what came of the run is the command's doing.
        fault: why the shim did not get that far; empty if it did or said nothing.
    """

    n_connections: int = 0
    n_refused: int = 0
    n_failed: int = 0
    is_started: bool = False
    fault: str = ""


@contextmanager
def open_channel() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Make the channel: the end to keep, and the end for `Wiring.channel`; both are closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        # Nothing goes in: a descriptor sent by mistake would be a way out.
        ours.shutdown(socket.SHUT_WR)
        yield ours, theirs


def shim_command(
    python: str,
    channel: socket.socket,
    command: Sequence[str],
    *,
    port: int = LOOPBACK_PORT,
    copy: FolderCopy | None = None,
) -> tuple[str, ...]:
    """Give the words that run a command behind the shim.

    Args:
        python: an interpreter inside, 3.11 or newer.
        channel: the end that the run is handed.
        command: the command and its arguments, looked up inside.
        port: where the shim listens on 127.0.0.1.
        copy: what it copies before.

    Raises:
        UsageError: there is no command.
    """
    if not command:
        raise UsageError("there is no command to run")
    setup: Mapping[str, object] = {
        "channel": channel.fileno(),
        "port": port,
        "copy": None if copy is None else msgspec.to_builtins(copy),
    }
    source = _SHIM.read_text(encoding="utf-8")
    return (python, "-I", "-S", "-B", "-c", source, json.dumps(setup), *command)


async def serve_loopback(
    channel: socket.socket,
    serve: Serve,
    *,
    n_most: int = MAX_CONNECTIONS,
    takes_pairs: bool = False,
) -> LoopbackReport:
    """Serve the connections of one run until nobody inside holds the channel any more.

    Args:
        channel: the end that is kept, as `open_channel` gives it.
        serve: awaited once for each connection, all at the same time. What it raises ends that
            connection alone.
        n_most: connections that are open at once; one more is closed.
        takes_pairs: ends of pairs of Unix streams count as connections too, as `line.open_stream`
            passes them out.
    """
    served = _Served(serve, n_most, takes_pairs=takes_pairs)
    channel.settimeout(0)
    try:
        while (packet := await _next_packet(channel)) is not None:
            served.take(*packet)
            # A flood of packets leaves the others their turn.
            await asyncio.sleep(0)
    finally:
        await served.close()
    return served.report()


class _Served:
    """Counts and holds what is being served."""

    def __init__(self, serve: Serve, n_most: int, *, takes_pairs: bool) -> None:
        self._serve = serve
        self._n_most = n_most
        self._takes_pairs = takes_pairs
        # Kept alive by whoever serves, who closes the very object: that tells when one is over.
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_connections = self._n_refused = self._n_failed = 0
        self._is_started, self._fault = False, ""

    def take(self, data: bytes, descriptors: Sequence[int]) -> None:
        """Take one packet; descriptors are owned from here on."""
        for descriptor in descriptors:
            connection = _connection(descriptor, takes_pairs=self._takes_pairs)
            if connection is None or not self._has_room():
                self._n_refused += 1
                if connection is not None:
                    connection.close()
                continue
            self._n_connections += 1
            self._open.add(connection)
            task = asyncio.create_task(self._run(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if descriptors or data == CONNECTION:
            return
        if data == STARTED:
            self._is_started = True
        elif data.startswith(FAILED) and not self._is_started:
            self._fault = self._fault or data[len(FAILED) :].decode("utf-8", "replace")

    def _has_room(self) -> bool:
        for connection in tuple(self._open):
            if connection.fileno() < 0:
                self._open.discard(connection)
        return len(self._open) < self._n_most

    async def _run(self, connection: socket.socket) -> None:
        try:
            await self._serve(connection)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            connection.close()
            raise
        except BaseException:  # noqa: BLE001 - one connection's end must not end the others
            connection.close()
            self._n_failed += 1

    async def close(self) -> None:
        """Let what is being served end, as its other side has; then end it."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=_LEFT_S)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def report(self) -> LoopbackReport:
        """Tell what came so far."""
        return LoopbackReport(
            n_connections=self._n_connections,
            n_refused=self._n_refused,
            n_failed=self._n_failed,
            is_started=self._is_started,
            fault=self._fault,
        )


async def _next_packet(channel: socket.socket) -> tuple[bytes, tuple[int, ...]] | None:
    """Receive one packet with its descriptors; `None` at the end, or after an empty packet."""
    loop = asyncio.get_running_loop()
    room = socket.CMSG_LEN(array.array("i").itemsize)
    while True:
        try:
            data, ancillary, _, _ = channel.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            readable = loop.create_future()
            loop.add_reader(channel, _resolve, readable)
            try:
                await readable
            finally:
                loop.remove_reader(channel)
            continue
        except ConnectionError:
            return None
        descriptors = array.array("i")
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                descriptors.frombytes(payload[: len(payload) - len(payload) % descriptors.itemsize])
        return (data, tuple(descriptors)) if data or descriptors else None


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _connection(descriptor: int, *, takes_pairs: bool) -> socket.socket | None:
    """Take a descriptor if it is a connection of the kinds that may come; else close it, unread."""
    try:
        taken = socket.socket(fileno=descriptor)
    except OSError:
        with suppress(OSError):
            os.close(descriptor)
        return None
    try:
        if _is_loopback(taken) or (takes_pairs and _is_pair(taken)):
            taken.settimeout(0)
            return taken
    except OSError:
        # Not connected any more, or never was.
        pass
    taken.close()
    return None


def _is_loopback(taken: socket.socket) -> bool:
    """Say whether a socket is a TCP connection between loopback addresses."""
    if (taken.family, taken.type, taken.proto) != (
        *(socket.AF_INET, socket.SOCK_STREAM),
        socket.IPPROTO_TCP,
    ):
        return False
    ends = (taken.getsockname(), taken.getpeername())
    return all(host.startswith(_LOOPBACK) for host, _ in ends)


def _is_pair(taken: socket.socket) -> bool:
    """Say whether a socket is one end of a connected pair of Unix streams without a name.

    A connection to a server's path or abstract name has that name at one of its ends.
    """
    return (
        (taken.family, taken.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
        and not taken.getsockname()
        and not taken.getpeername()
    )
