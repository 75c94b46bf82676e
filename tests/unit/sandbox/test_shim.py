"""The shim by itself, outside a sandbox: what it sends, forwards and gives back."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from redrive.sandbox import shim
from redrive.sandbox.loopback import FolderCopy, open_channel, shim_command
from tests.ports import held_port

LONGEST_S = 120
"""How long a busy machine may take; nothing that works comes near it."""


@pytest.fixture
def port() -> Iterator[int]:
    with held_port() as port:
        yield port


@contextmanager
def started(
    *command: str, port: int, copy: FolderCopy | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", socket.socket]]:
    with open_channel() as (ours, theirs):
        words = shim_command(sys.executable, theirs, command, port=port, copy=copy)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(words, pass_fds=(theirs.fileno(),), **pipes)  # type: ignore[call-overload]
        theirs.close()
        ours.settimeout(LONGEST_S)
        with process:
            try:
                yield process, ours
            finally:
                process.kill()


def test_it_is_python_of_the_standard_library_alone():
    imported = [
        line.split()[1]
        for line in Path(shim.__file__).read_text().splitlines()
        if line.startswith(("import ", "from "))
    ]
    assert set(imported) <= sys.stdlib_module_names


def test_a_connection_is_sent_and_the_exit_code_given_back(port):
    script = (
        f"import socket; s = socket.create_connection(('127.0.0.1', {port})); "
        "s.sendall(b'hi'); print(s.recv(9)); raise SystemExit(5)"
    )
    with started(sys.executable, "-c", script, port=port) as (process, channel):
        assert channel.recv(100) == b"started"
        data, (descriptor,), _, _ = socket.recv_fds(channel, 100, 4)
        assert data == b"connection"
        with socket.socket(fileno=descriptor) as connection:
            assert connection.recv(9) == b"hi"
            connection.sendall(b"there")
        assert process.wait(LONGEST_S) == 5
        assert process.stdout.read() == b"b'there'\n"
        assert channel.recv(100) == b""


def test_a_port_that_is_taken_is_a_failure_and_nothing_runs(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with started("touch", str(tmp_path / "ran"), port=port) as (process, channel):
            assert channel.recv(100).startswith(b"failed: [Errno")
            assert process.wait(LONGEST_S) == 125
    assert not (tmp_path / "ran").exists()


def test_a_folder_that_is_not_there_is_a_failure_and_nothing_runs(tmp_path, port):
    copy = FolderCopy(str(tmp_path / "none"), str(tmp_path / "target"))
    command = ("touch", str(tmp_path / "ran"))
    with started(*command, port=port, copy=copy) as (process, channel):
        assert b"No such file" in channel.recv(1000)
        assert process.wait(LONGEST_S) == 125
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("number", shim.FORWARDED)
def test_signals_are_forwarded(number, port):
    # The command tells that it is there by connecting. The signal is blocked before that, and
    # taken when it is asked for: one that came between a connection and `signal.pause` would be
    # waited for ever.
    script = (
        f"import signal, socket, sys\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\n"
        f"connection = socket.create_connection(('127.0.0.1', {port}))\n"
        f"sys.exit(9 if signal.sigwait([{int(number)}]) == {int(number)} else 1)"
    )
    with started(sys.executable, "-c", script, port=port) as (process, channel):
        assert channel.recv(100) == b"started"
        data, (descriptor,), _, _ = socket.recv_fds(channel, 100, 4)
        os.close(descriptor)
        assert data == b"connection"
        process.send_signal(number)
        assert process.wait(LONGEST_S) == 9


def test_a_command_ended_by_a_signal_is_told_as_a_shell_tells_it(port):
    with started("sleep", "30", port=port) as (process, channel):
        channel.recv(100)
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_S) == 143


def test_the_command_inherits_no_descriptor(port):
    with started("ls", "/proc/self/fd", port=port) as (process, _):
        # The fourth is the listing's own.
        assert process.stdout.read().split() == [b"0", b"1", b"2", b"3"]


def test_a_connection_ends_where_nobody_takes_it(port):
    script = (
        f"import socket, sys; sys.stdin.read(); "
        f"print(socket.create_connection(('127.0.0.1', {port})).recv(1))"
    )
    with open_channel() as (ours, theirs):
        words = shim_command(sys.executable, theirs, (sys.executable, "-c", script), port=port)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = subprocess.Popen(words, pass_fds=(theirs.fileno(),), **pipes)
        theirs.close()
        assert ours.recv(100) == b"started"
        ours.close()
        assert process.communicate(timeout=LONGEST_S)[0] == b"b''\n"
        assert process.returncode == 0


def test_connections_wait_while_nobody_takes_them(port):
    script = (
        f"import socket\nkept = [socket.create_connection(('127.0.0.1', {port}))"
        f" for _ in range(400)]\nprint(len(kept))"
    )
    with started(sys.executable, "-c", script, port=port) as (process, channel):
        channel.recv(100)
        taken = 0
        while True:
            data, descriptors, _, _ = socket.recv_fds(channel, 100, 4)
            if not data:
                break
            taken += len(descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        assert process.stdout.read() == b"400\n"
        # Those that it had not sent yet when the command ended are gone with it.
        assert 1 <= taken <= 400


def test_it_hides_from_others(tmp_path, port):
    status = "import time; time.sleep(30)"
    with started(sys.executable, "-c", status, port=port) as (process, channel):
        channel.recv(100)
        if os.geteuid() == 0:
            # The superuser may look, and sees whose it is: nobody's but the superuser's.
            assert os.stat(f"/proc/{process.pid}/fd").st_uid == 0
        else:
            with pytest.raises(PermissionError):
                os.listdir(f"/proc/{process.pid}/fd")


def test_only_files_folders_and_links_are_copied(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "skipped").mkdir(parents=True)
    (source / "kept").mkdir()
    (source / "kept" / "file").write_text("x")
    (source / "link").symlink_to("/nowhere")
    os.mkfifo(source / "pipe")
    target.mkdir()
    shim.copy_folder(str(source), str(target), [str(source / "skipped")])
    assert sorted(os.listdir(target)) == ["kept", "link"]
    assert (target / "kept" / "file").read_text() == "x"
    assert os.readlink(target / "link") == "/nowhere"


def test_the_setup_is_json_with_nothing_of_the_caller():
    with open_channel() as (_, theirs):
        words = shim_command("python3", theirs, ("true",), copy=FolderCopy("/a", "/b", ("/a/c",)))
        assert json.loads(words[6]) == {
            "channel": theirs.fileno(),
            "port": 42117,
            "copy": {"source": "/a", "target": "/b", "skipped": ["/a/c"]},
        }
        assert words[:5] == ("python3", "-I", "-S", "-B", "-c")
        assert words[7:] == ("true",)
