"""What a process inside says through the channel is what is heard outside."""

import asyncio
import socket
import threading
from collections.abc import Callable

import pytest

from redrive.sandbox.line import open_stream, tell_failed, tell_started
from redrive.sandbox.loopback import LoopbackReport, open_channel, serve_loopback


def served(act: Callable[[socket.socket], object], n_most: int = 10) -> LoopbackReport:
    """Let `act` speak from inside, while whoever serves answers in upper case."""

    async def answer(sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(sock, 100):
            await loop.sock_sendall(sock, data.upper())
        sock.close()

    with open_channel() as (ours, theirs):

        def speak() -> None:
            with theirs:
                act(theirs)

        thread = threading.Thread(target=speak)
        thread.start()
        report = asyncio.run(serve_loopback(ours, answer, n_most=n_most, takes_pairs=True))
        thread.join()
    return report


def test_streams_are_answered_each_by_itself():
    def act(channel):
        tell_started(channel)
        with open_stream(channel) as one, open_stream(channel) as two:
            two.sendall(b"two")
            one.sendall(b"one")
            answers.extend((one.recv(100), two.recv(100)))

    answers: list[bytes] = []
    assert served(act) == LoopbackReport(n_connections=2, is_started=True)
    assert answers == [b"ONE", b"TWO"]


def test_a_stream_too_many_reads_its_end():
    def act(channel):
        with open_stream(channel) as one, open_stream(channel) as two:
            one.sendall(b"one")
            assert one.recv(100) == b"ONE"
            assert two.recv(100) == b""

    assert served(act, n_most=1) == LoopbackReport(n_connections=1, n_refused=1)


def test_a_failure_is_told_and_cut():
    report = served(lambda channel: tell_failed(channel, "no\udcff room " * 100))
    assert report.fault.startswith("no? room")
    assert len(report.fault) == 500
    assert not report.is_started


def test_with_nobody_outside_a_stream_is_an_error_that_leaves_nothing_open():
    with open_channel() as (ours, theirs):
        ours.close()
        with pytest.raises(BrokenPipeError):
            open_stream(theirs)
        with pytest.raises(BrokenPipeError):
            tell_started(theirs)
