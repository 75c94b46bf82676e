"""A connection as two queues: what is read, what is held back, what is told of its end."""

import asyncio
import socket

import pytest

from redrive.capture.wire import HIGH_BYTES, Wire


async def pair() -> tuple[Wire, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _, wire = await asyncio.get_running_loop().connect_accepted_socket(Wire, ours)
    return wire, theirs


async def settle(wire: Wire, peer: socket.socket) -> None:
    peer.close()
    wire.abort()
    await asyncio.sleep(0)


def test_all_that_came_is_read_at_once_and_the_end_behind_it() -> None:
    async def run() -> None:
        wire, peer = await pair()
        loop = asyncio.get_running_loop()
        for piece in (b"a", b"b"):
            await loop.sock_sendall(peer, piece)
            await asyncio.sleep(0.01)
        assert wire.has_unread
        assert await wire.read() == b"ab"
        reading = loop.create_task(wire.read())
        await asyncio.sleep(0)
        peer.shutdown(socket.SHUT_WR)
        assert await reading == b""
        assert await wire.read() == b""
        assert wire.is_ended
        wire.write(b"still")
        assert await loop.sock_recv(peer, 9) == b"still"
        await settle(wire, peer)

    asyncio.run(run())


def test_a_peer_that_sends_what_nobody_reads_is_held_back() -> None:
    async def run() -> None:
        wire, peer = await pair()
        sent = 0
        try:
            while True:
                sent += peer.send(b"x" * 65536)
                await asyncio.sleep(0.001)
        except BlockingIOError:
            pass
        first = await wire.read()
        assert HIGH_BYTES < len(first) < sent
        got = len(first)
        while got < sent:
            got += len(await wire.read())
        assert got == sent
        await settle(wire, peer)

    asyncio.run(run())


def test_drain_waits_for_the_peer_and_ends_with_the_connection() -> None:
    async def run() -> None:
        wire, peer = await pair()
        await wire.drain()
        wire.write(b"x" * (4 << 20))
        draining = asyncio.get_running_loop().create_task(wire.drain())
        await asyncio.sleep(0.02)
        assert not draining.done()
        while not draining.done():
            try:
                peer.recv(1 << 20)
            except BlockingIOError:
                await asyncio.sleep(0)
        await draining
        wire.write(b"x" * (4 << 20))
        draining = asyncio.get_running_loop().create_task(wire.drain())
        await asyncio.sleep(0.02)
        wire.abort()
        with pytest.raises(ConnectionResetError):
            await draining
        with pytest.raises(ConnectionResetError):
            await wire.drain()
        with pytest.raises(ConnectionResetError):
            wire.write(b"x")
        wire.end()
        wire.reset()
        await settle(wire, peer)

    asyncio.run(run())


def test_whoever_waits_for_the_end_is_told_once() -> None:
    async def run() -> None:
        wire, peer = await pair()
        told: list[int] = []
        wire.on_gone = lambda: told.append(1)
        peer.shutdown(socket.SHUT_WR)
        await asyncio.sleep(0.01)
        await settle(wire, peer)
        assert told == [1]
        assert wire.is_lost

    asyncio.run(run())


def test_a_broken_connection_gives_what_came_and_then_its_error() -> None:
    async def run() -> None:
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        _, wire = await asyncio.get_running_loop().connect_accepted_socket(Wire, accepted)
        client.sendall(b"part")
        await asyncio.sleep(0.02)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.close()
        await asyncio.sleep(0.02)
        assert await wire.read() == b"part"
        with pytest.raises(ConnectionResetError):
            await wire.read()
        server.close()

    asyncio.run(run())


def test_a_wire_without_a_connection_is_closed_already() -> None:
    wire = Wire()
    with pytest.raises(ConnectionResetError):
        wire.write(b"x")
    for act in (wire.end, wire.close, wire.abort, wire.reset):
        act()
