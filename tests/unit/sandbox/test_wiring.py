"""What connects a run with its caller: a socket, outputs as they come, a stop; what varies."""

import os
import socket
import subprocess
import threading
import time

import pytest

from redrive.errors import UsageError
from redrive.sandbox.bubblewrap import probe, run_confined
from redrive.sandbox.confinement import DEFAULT_PATH, MIB, Bind, ConfinedResult, Confinement, Limits
from redrive.sandbox.wiring import Wiring

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
SYSTEM_PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(
    not os.path.exists(SYSTEM_PYTHON), reason=f"the system has no {SYSTEM_PYTHON}"
)


def inside(script: str, wiring: Wiring, **fields: object) -> ConfinedResult:
    confinement = Confinement(**({"environment": {"PATH": DEFAULT_PATH}} | fields))  # type: ignore[arg-type]
    return run_confined(("/bin/sh", "-c", script), confinement, wiring=wiring)


# --- the channel -------------------------------------------------------------------------------
@needs_python
def test_the_one_descriptor_is_inherited_and_closed_here():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        script = (
            f"import os, socket; s = socket.socket(fileno={number}); s.send(b'from inside'); "
            "print([n for n in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/'+n)])"
        )
        confinement = Confinement()
        done = run_confined(
            (SYSTEM_PYTHON, "-c", script), confinement, wiring=Wiring(channel=theirs)
        )
        assert ours.recv(100) == b"from inside"
        # Nobody else holds it: neither this process nor what is left of bubblewrap.
        assert ours.recv(100) == b""
        assert theirs.fileno() == -1
        assert done.stdout.decode() == f"{['0', '1', '2', str(number)]}\n"


@pytest.mark.parametrize("kind", ["tcp", "unconnected", "listener", "of a server"])
def test_only_one_end_of_a_pair_can_be_handed_over(kind, tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as unix:
        server.bind(path)
        server.listen()
        channel = unix
        if kind == "tcp":
            channel = socket.create_server(("127.0.0.1", 0))
        elif kind == "listener":
            channel = server
        elif kind == "of a server":
            unix.connect(path)
        with channel, pytest.raises(UsageError, match="connected pair"):
            inside(f"touch {path}-ran", Wiring(channel=channel), writable=(Bind(str(tmp_path)),))
        assert channel.fileno() == -1
    assert os.listdir(tmp_path) == ["s"]


# --- outputs -----------------------------------------------------------------------------------
def test_outputs_come_while_it_runs(tmp_path):
    out: list[bytes] = []
    err: list[bytes] = []

    def take(data):
        out.append(data)
        (tmp_path / "seen").touch()

    # It goes on when its first line was seen, and would wait for ever if that came at its end.
    seen = f"until test -e {tmp_path}/seen; do sleep 0.02; done"
    script = f"echo one; echo told >&2; {seen}; echo two"
    wiring = Wiring(on_stdout=take, on_stderr=err.append)
    done = inside(script, wiring, readable=(Bind(str(tmp_path)),), limits=Limits(wall_s=120))
    assert out == [b"one\n", b"two\n"]
    assert err == [b"told\n"]
    assert (done.stdout, done.stderr) == (b"one\ntwo\n", b"told\n")


@pytest.mark.parametrize(("passed_bytes", "n_passed"), [(None, 5_000_000), (1000, 1000), (0, 0)])
def test_what_is_passed_on_has_a_limit_of_its_own(passed_bytes, n_passed):
    sizes: list[int] = []
    wiring = Wiring(on_stdout=lambda data: sizes.append(len(data)), passed_bytes=passed_bytes)
    limits = Limits(output_bytes=10)
    done = inside("head -c 5000000 /dev/zero", wiring, limits=limits)
    assert sum(sizes) == n_passed
    assert 0 not in sizes
    assert (len(done.stdout), done.is_output_cut) == (10, True)


def test_an_error_of_who_takes_the_output_ends_the_run(tmp_path):
    def fail(data):
        raise BrokenPipeError

    beats = tmp_path / "beats"
    script = f"while :; do echo x >> {beats}; echo x; sleep 0.05; done"
    with pytest.raises(BrokenPipeError):
        inside(script, Wiring(on_stdout=fail), writable=(Bind(str(tmp_path)),))
    size = beats.stat().st_size
    assert size > 0
    time.sleep(0.3)
    assert beats.stat().st_size == size


# --- the end -----------------------------------------------------------------------------------
def test_a_run_can_be_stopped():
    stop = threading.Event()
    done = inside("echo begun; sleep 600", Wiring(on_stdout=lambda _: stop.set(), stop=stop))
    assert (done.is_stopped, done.is_timeout, done.exit_code) == (True, False, None)
    assert done.wall_s < 300


def test_a_run_that_is_not_stopped_says_so():
    assert not inside("true", Wiring(stop=threading.Event())).is_stopped


# --- what varies -------------------------------------------------------------------------------
COUNT = "import os; print(os.cpu_count(), len(os.sched_getaffinity(0)))"


@needs_python
@pytest.mark.parametrize("n_cpus", [1, 2, 64])
def test_the_number_of_processors_is_shown_and_held(n_cpus):
    before = os.sched_getaffinity(0)
    done = run_confined((SYSTEM_PYTHON, "-c", COUNT), Confinement(n_cpus=n_cpus))
    assert done.stdout.split() == [b"%d" % n_cpus, b"%d" % min(n_cpus, len(before))]
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize("n_cpus", [0, 1025])
def test_a_number_of_processors_that_is_none_is_refused(n_cpus):
    with pytest.raises(UsageError, match="1 to 1024"):
        inside("true", Wiring(), n_cpus=n_cpus)


def test_a_folder_in_memory_covers_what_is_shown(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("shown")
    (tmp_path / "hidden").write_text("x")
    script = f"cd {tmp_path}; ls; cat kept/file; echo x > new; ls; echo x > kept/new"
    readable = (Bind(str(tmp_path)), Bind(str(tmp_path / "kept")))
    done = inside(script, Wiring(), readable=readable[1:], scratch=(str(tmp_path),))
    assert done.stdout == b"kept\nshownkept\nnew\n"
    assert b"Read-only" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["hidden", "kept"]


@pytest.mark.skipif(
    any("no size limit" in missing for missing in probe().missing), reason="an old bubblewrap"
)
def test_a_folder_in_memory_is_limited(tmp_path):
    script = f"head -c 5000000 /dev/zero > {tmp_path}/file"
    limits = Limits(scratch_bytes=MIB)
    done = inside(script, Wiring(), scratch=(str(tmp_path),), limits=limits)
    assert b"No space left" in done.stderr


# --- sockets -----------------------------------------------------------------------------------
CONNECT = """
import socket, sys
print("alive", flush=True)
if sys.argv[2] == "stream":
    one = socket.socket(socket.AF_UNIX)
elif sys.argv[2] == "datagram":
    one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
else:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
one.connect(sys.argv[1])
one.send(b"x")
"""


@needs_python
@pytest.mark.skipif(
    any("system calls" in missing for missing in probe().missing), reason="no filter is known here"
)
@pytest.mark.parametrize("kind", ["stream", "datagram", "pair"])
def test_a_socket_in_a_folder_that_is_shown_is_not_reached(kind, tmp_path):
    path = str(tmp_path / "s")
    sort = socket.SOCK_STREAM if kind == "stream" else socket.SOCK_DGRAM
    with socket.socket(socket.AF_UNIX, sort) as server:
        server.bind(path)
        server.settimeout(0.2)
        if kind == "stream":
            server.listen()

        def reached() -> bytes:
            if kind != "stream":
                return server.recv(1)
            with server.accept()[0] as accepted:
                return accepted.recv(1)

        argv = (SYSTEM_PYTHON, "-c", CONNECT, path, kind)
        done = run_confined(argv, Confinement(readable=(Bind(str(tmp_path)),)))
        assert (done.stdout, done.exit_code) == (b"alive\n", 1)
        assert b"PermissionError" in done.stderr
        with pytest.raises(TimeoutError):
            reached()
        assert subprocess.run(argv, capture_output=True).returncode == 0
        assert reached() == b"x"
