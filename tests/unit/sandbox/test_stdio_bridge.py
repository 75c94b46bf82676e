"""A program behind the bridge is spoken to over one stream, and never holds the channel."""

import array
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from redrive.sandbox import stdio_bridge

BRIDGE = stdio_bridge.__file__


def bridged(*command: str, hands_on: str = "0") -> tuple["subprocess.Popen[bytes]", socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, BRIDGE, str(theirs.fileno()), hands_on, *command],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    ours.settimeout(60.0)
    return process, ours


def take_stream(channel: socket.socket) -> socket.socket:
    room = socket.CMSG_LEN(array.array("i").itemsize)
    data, ((_, _, payload),), _, _ = channel.recvmsg(100, room)
    assert data == stdio_bridge.CONNECTION
    return socket.socket(fileno=int.from_bytes(payload[:4], sys.byteorder))


def end(process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
    _, stderr = process.communicate(timeout=60)
    return process.returncode, stderr


def test_input_and_output_are_one_stream() -> None:
    process, channel = bridged("/bin/cat")
    with channel, take_stream(channel) as stream:
        assert channel.recv(100) == stdio_bridge.STARTED
        stream.settimeout(60.0)
        stream.sendall(b"there and back")
        assert stream.recv(100) == b"there and back"
        stream.shutdown(socket.SHUT_WR)
        assert stream.recv(100) == b""
    assert end(process) == (0, b"")


@pytest.mark.parametrize(
    ("script", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("ls -l /proc/$$/fd >&2", 0)]
)
def test_the_exit_status_is_the_program_s_and_it_holds_no_channel(script: str, code: int) -> None:
    process, channel = bridged("/bin/sh", "-c", script)
    with channel, take_stream(channel):
        found, stderr = end(process)
    assert found == code
    # Its input and its output; no third socket.
    assert stderr.count(b"socket:") in (0, 2)


@pytest.mark.parametrize(("mode", "code"), [(None, 127), (0o600, 126)])
def test_a_program_that_cannot_be_started_is_named(
    tmp_path: Path, mode: int | None, code: int
) -> None:
    program = tmp_path / "program"
    if mode is not None:
        program.write_text("")
        program.chmod(mode)
    process, channel = bridged(str(program))
    with channel, take_stream(channel) as stream:
        found, stderr = end(process)
        assert stream.recv(1) == b""
    assert found == code
    assert str(program).encode() in stderr


def test_a_program_that_takes_the_channel_over_finds_it_open() -> None:
    script = f"import socket; socket.socket(fileno=int({{}})).send({stdio_bridge.STARTED!r})"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        number = str(theirs.fileno())
        command = (sys.executable, "-I", "-c", script.format(number))
        process = subprocess.Popen(
            [sys.executable, BRIDGE, number, "1", *command],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        theirs.close()
        ours.settimeout(60.0)
        take_stream(ours).close()
        assert ours.recv(100) == stdio_bridge.STARTED
    assert end(process) == (0, b"")


def test_what_cannot_be_set_up_is_told_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no more descriptors")

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        monkeypatch.setattr(stdio_bridge.socket, "socketpair", refuse)
        number = str(theirs.detach())
        assert stdio_bridge.main([number, "0", "/bin/true"]) == 125
        assert ours.recv(100) == stdio_bridge.FAILED + b"no more descriptors"
