"""What comes through the channel is hostile: only connected loopback TCP sockets are served."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from redrive.errors import UsageError
from redrive.sandbox import loopback
from redrive.sandbox.loopback import LoopbackReport, open_channel, serve_loopback, shim_command


@contextmanager
def tcp_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        yield near, far


def receive(act: Callable[[socket.socket], object], **options: object) -> LoopbackReport:
    """Let `act` send what it likes, while whoever serves echoes; give the report."""

    async def echo(sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while data := await loop.sock_recv(sock, 100):
            if data == b"fail":
                raise SystemError("of the server")
            await loop.sock_sendall(sock, data)
        sock.close()

    with open_channel() as (ours, theirs):

        def send() -> None:
            with theirs:
                act(theirs)

        thread = threading.Thread(target=send)
        thread.start()
        report = asyncio.run(serve_loopback(ours, echo, **options))  # type: ignore[arg-type]
        thread.join()
    return report


def give(channel: socket.socket, *descriptors: int, data: bytes = b"connection") -> None:
    socket.send_fds(channel, [data], list(descriptors))


def test_a_connection_is_served():
    def act(channel):
        channel.send(b"started")
        with tcp_pair() as (near, far):
            give(channel, far.fileno())
            far.close()
            near.sendall(b"said")
            assert near.recv(100) == b"said"

    assert receive(act) == LoopbackReport(n_connections=1, is_started=True)


def test_a_descriptor_that_is_no_socket_is_closed():
    def act(channel):
        read_end, write_end = os.pipe()
        give(channel, write_end)
        os.close(write_end)
        # The end comes only if nobody else holds the writing end any more.
        ends.append(os.read(read_end, 1))
        os.close(read_end)

    ends: list[bytes] = []
    assert receive(act) == LoopbackReport(n_refused=1)
    assert ends == [b""]


def test_a_socket_that_is_no_tcp_connection_is_refused():
    unix, other = socket.socketpair()
    udp, idle = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), socket.socket()
    listener, six = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET6)
    with unix, other, udp, idle, listener, six:
        udp.connect(("127.0.0.1", 9))
        sockets = (unix, udp, idle, listener, six)
        report = receive(lambda channel: [give(channel, one.fileno()) for one in sockets])
    assert report == LoopbackReport(n_refused=5)


# --- pairs of Unix streams ---------------------------------------------------------------------
def test_an_end_of_a_pair_is_served_where_pairs_are_taken():
    def act(channel):
        ours, theirs = socket.socketpair()
        with ours:
            give(channel, theirs.fileno())
            theirs.close()
            ours.sendall(b"said")
            answers.append(ours.recv(100))

    answers: list[bytes] = []
    assert receive(act, takes_pairs=True) == LoopbackReport(n_connections=1)
    assert answers == [b"said"]


def test_tcp_connections_are_served_beside_pairs():
    def act(channel):
        with tcp_pair() as (near, far):
            give(channel, far.fileno())
            far.close()
            near.sendall(b"said")
            assert near.recv(100) == b"said"

    assert receive(act, takes_pairs=True) == LoopbackReport(n_connections=1)


@contextmanager
def unix_server(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        yield server


@pytest.mark.parametrize("is_abstract", [True, False])
def test_a_connection_to_a_named_unix_socket_is_no_pair(tmp_path, is_abstract):
    name = f"\0redrive-test-{os.getpid()}" if is_abstract else str(tmp_path / "s")
    with unix_server(name) as server, socket.socket(socket.AF_UNIX) as client:
        client.connect(name)
        accepted, _ = server.accept()
        with accepted:

            def act(channel):
                # The client's end has no name itself, the accepted one's peer has none.
                for end in (client, accepted):
                    give(channel, end.fileno())

            assert receive(act, takes_pairs=True) == LoopbackReport(n_refused=2)


def test_other_unix_sockets_are_no_pairs(tmp_path):
    datagrams = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    packets = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    alone, gone = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with ExitStack() as stack:
        sockets = [
            *datagrams,
            *packets,
            alone,
            gone,
            stack.enter_context(unix_server(str(tmp_path / "s"))),
        ]
        for one in sockets:
            stack.enter_context(one)
        report = receive(
            lambda channel: [give(channel, one.fileno()) for one in sockets], takes_pairs=True
        )
    assert report == LoopbackReport(n_refused=7)


def test_a_connection_to_elsewhere_is_refused(monkeypatch):
    monkeypatch.setattr(loopback, "_LOOPBACK", "10.")

    def act(channel):
        with tcp_pair() as (near, far):
            give(channel, far.fileno())
            far.close()
            assert near.recv(1) == b""

    assert receive(act) == LoopbackReport(n_refused=1)


def test_a_flood_of_connections_is_bounded():
    def act(channel):
        with ExitStack() as stack:
            pairs = [stack.enter_context(tcp_pair()) for _ in range(20)]
            for _, far in pairs:
                give(channel, far.fileno())
                far.close()
            for near, _ in pairs[:5]:
                near.sendall(b"x")
                assert near.recv(1) == b"x"
            for near, _ in pairs[5:]:
                assert near.recv(1) == b""
            pairs[0][0].close()
            # There is room again, as soon as that one's end was seen.
            deadline_s = time.monotonic() + 60
            while time.monotonic() < deadline_s:
                with tcp_pair() as (near, far):
                    give(channel, far.fileno())
                    far.close()
                    near.sendall(b"y")
                    with suppress(ConnectionError):
                        if near.recv(1) == b"y":
                            return
            raise AssertionError("no room")

    report = receive(act, n_most=5)
    assert report.n_connections == 6
    assert report.n_refused >= 15


def test_more_than_one_descriptor_in_a_packet_is_refused():
    def act(channel):
        with tcp_pair() as (near, far):
            give(channel, far.fileno(), far.fileno(), far.fileno())
            far.close()
            near.sendall(b"x")
            assert near.recv(1) == b"x"

    assert receive(act).n_connections == 1


def test_descriptors_are_not_left_open():
    def act(channel):
        for _ in range(50):
            with tcp_pair() as (_, far), open(os.devnull) as file:
                give(channel, far.fileno())
                give(channel, file.fileno(), file.fileno())

    receive(lambda _: None)
    before = len(os.listdir("/proc/self/fd"))
    receive(act)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_server_that_fails_ends_one_connection_alone():
    def act(channel):
        for said in (b"fail", b"fine"):
            with tcp_pair() as (near, far):
                give(channel, far.fileno())
                far.close()
                near.sendall(said)
                answers.append(near.recv(10))

    answers: list[bytes] = []
    assert receive(act) == LoopbackReport(n_connections=2, n_failed=1)
    assert answers == [b"", b"fine"]


def test_what_is_said_without_a_descriptor_is_read_with_care():
    def act(channel):
        for data in (b"failed: no \xff room", b"failed: twice", b"nonsense", b"connection"):
            channel.send(data)

    assert receive(act) == LoopbackReport(fault="no \ufffd room")


def test_a_failure_after_the_start_is_not_believed():
    def act(channel):
        channel.send(b"started")
        channel.send(b"failed: later")

    assert receive(act) == LoopbackReport(is_started=True)


def test_a_flood_of_packets_leaves_the_others_their_turn():
    def act(channel):
        with tcp_pair() as (near, far):
            give(channel, far.fileno())
            far.close()
            stop = threading.Event()
            flood = threading.Thread(target=lambda: [channel.send(b"x") for _ in _until(stop)])
            flood.start()
            near.sendall(b"said")
            assert near.recv(10) == b"said"
            stop.set()
            flood.join()

    assert receive(act).n_connections == 1


def _until(stop: threading.Event) -> Iterator[None]:
    while not stop.is_set():
        yield


def test_an_empty_packet_is_the_end():
    assert receive(lambda channel: (channel.send(b""), channel.send(b"started"))) == (
        LoopbackReport()
    )


def test_nothing_can_be_received_inside():
    with open_channel() as (ours, theirs):
        with pytest.raises(BrokenPipeError):
            ours.send(b"x")
        assert theirs.recv(1) == b""


def test_no_command_is_refused():
    with open_channel() as (_, theirs), pytest.raises(UsageError, match="no command"):
        shim_command("python3", theirs, ())
