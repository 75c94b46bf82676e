"""An agent in the sandbox has our server, and nothing else; attempts have a control outside."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Raw

from redrive.app import confined_agent
from redrive.app.confined_agent import (
    AgentCommand,
    AgentServer,
    AgentStreams,
    ConfinedRun,
    Variation,
    run_agent,
)
from redrive.capture.ports import ServedAnswer, ServedResult
from redrive.capture.proxy import Proxy
from redrive.capture.remote_serving import serve_remote
from redrive.errors import ContainmentError, UsageError
from redrive.sandbox.bubblewrap import probe
from redrive.sandbox.confinement import MIB, Limits
from redrive.sandbox.loopback import LOOPBACK_ORIGIN, LOOPBACK_PORT
from tests.fake_backend import FakeBackend
from tests.small_http import SmallServer, chat_completion

needs_sandbox = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
PATHS = {
    "OPENAI_BASE_URL": "/t0ken/openai/v1",
    "REDRIVE_RERUN": "/t0ken/redrive",
}
PATH = os.pathsep.join((os.path.dirname(sys.executable), "/usr/bin", "/bin"))


def run(
    folder: Path,
    *command: str,
    server: SmallServer | None = None,
    streams: AgentStreams | None = None,
    stop: threading.Event | None = None,
    **fields: object,
) -> ConfinedRun:
    agent = AgentCommand(
        command,
        str(folder),
        {"PATH": PATH, "HOME": os.path.expanduser("~")},
        **fields,  # type: ignore[arg-type]
    )
    serve = (server or SmallServer()).serve
    return run_agent(
        agent, server=AgentServer(serve, PATHS), streams=streams or AgentStreams(), stop=stop
    )


def python(folder: Path, script: str, *arguments: str, **fields: object) -> ConfinedRun:
    return run(folder, "python", "-c", textwrap.dedent(script), *arguments, **fields)  # type: ignore[arg-type]


# --- what works --------------------------------------------------------------------------------
@needs_sandbox
def test_an_agent_with_the_openai_sdk_asks_our_server(tmp_path):
    (tmp_path / "agent.py").write_text(
        "import openai\n"
        "client = openai.OpenAI()\n"
        "for word in ('one', 'two'):\n"
        "    answer = client.chat.completions.create(model='m', messages=[\n"
        "        {'role': 'user', 'content': word}])\n"
        "    print(answer.choices[0].message.content)\n"
    )

    async def respond(method, path, body):
        return 200, chat_completion(json.loads(body)["messages"][0]["content"] + "!")

    server = SmallServer(respond)
    done = run(tmp_path, "python", "agent.py", server=server)
    assert (done.result.stdout, done.result.stderr) == (b"one!\ntwo!\n", b"")
    assert done.result.exit_code == 0
    assert [(m, p) for m, p, _ in server.seen] == 2 * [
        ("POST", "/t0ken/openai/v1/chat/completions")
    ]
    assert done.connections.is_started
    assert (done.connections.n_refused, done.connections.n_failed) == (0, 0)


@needs_sandbox
@pytest.mark.skipif(not os.path.exists("/usr/bin/curl"), reason="the system has no curl")
def test_curl_asks_our_server(tmp_path):
    server = SmallServer()
    script = 'curl -sS "$OPENAI_BASE_URL/models" && curl -sS -d said "$REDRIVE_RERUN/hello"'
    done = run(tmp_path, "/bin/sh", "-c", script, server=server)
    assert (done.result.stdout, done.result.exit_code) == (b'"hello""hello"', 0)
    assert server.seen == [
        ("GET", "/t0ken/openai/v1/models", b""),
        ("POST", "/t0ken/redrive/hello", b"said"),
    ]
    assert done.connections.n_connections == 2


@needs_sandbox
def test_a_hundred_connections_at_once_are_served(tmp_path):
    script = f"""
        import socket, threading
        def ask():
            with socket.create_connection(("127.0.0.1", {LOOPBACK_PORT})) as s:
                barrier.wait()
                s.sendall(b"GET / HTTP/1.1\\r\\nconnection: close\\r\\n\\r\\n")
                answers.append(s.recv(1000))
        answers, barrier = [], threading.Barrier(100)
        threads = [threading.Thread(target=ask) for _ in range(100)]
        for one in threads: one.start()
        for one in threads: one.join()
        print(sum(answer.startswith(b"HTTP/1.1 200") for answer in answers))
    """
    done = python(tmp_path, script)
    assert done.result.stdout == b"100\n"
    assert done.connections.n_connections == 100


@needs_sandbox
@pytest.mark.parametrize(
    ("script", "code", "number"),
    [("exit 7", 7, None), ("kill -TERM $$", 143, 15), ("kill -KILL $$", 137, 9)],
)
def test_the_exit_code_comes_through(tmp_path, script, code, number):
    result = run(tmp_path, "/bin/sh", "-c", script).result
    assert (result.exit_code, result.signal) == (code, number)


@needs_sandbox
def test_a_command_that_is_not_there_is_told_as_a_shell_tells_it(tmp_path):
    result = run(tmp_path, "no-such-program").result
    assert result.exit_code == 127
    assert result.stderr == b"no-such-program: No such file or directory\n"
    (tmp_path / "text").write_text("no program")
    assert run(tmp_path, "./text").result.exit_code == 126


@needs_sandbox
def test_a_signal_to_the_shim_is_passed_on(tmp_path):
    script = 'trap "echo got it; exit 3" USR1; kill -USR1 $PPID; sleep 60 & wait'
    result = run(tmp_path, "/bin/sh", "-c", script).result
    assert (result.stdout, result.exit_code) == (b"got it\n", 3)


@needs_sandbox
def test_input_is_given_and_output_comes_while_it_runs(tmp_path):
    pieces: list[tuple[float, bytes]] = []
    streams = AgentStreams(
        b"given", lambda data: pieces.append((time.monotonic(), data)), passed_bytes=9
    )
    done = run(tmp_path, "/bin/sh", "-c", "cat; sleep 0.7; echo ' and more'", streams=streams)
    assert [data for _, data in pieces] == [b"given", b" and"]
    assert pieces[1][0] - pieces[0][0] > 0.5
    assert done.result.stdout == b"given and more\n"


@needs_sandbox
def test_the_variation_reaches_the_agent(tmp_path):
    script = """
        import os, time
        print(hash("a"), time.strftime("%z", time.localtime(0)), os.cpu_count())
        print(len(os.sched_getaffinity(0)))
    """
    varied = Variation(hash_seed=1, time_zone="Asia/Kolkata", n_cpus=1)
    other = Variation(hash_seed=2, time_zone="UTC", n_cpus=3)
    (first, *rest), (second, *others) = (
        python(tmp_path, script, variation=v).result.stdout.decode().split()
        for v in (varied, other)
    )
    assert first != second
    assert rest == ["+0530", "1", "1"]
    assert others == ["+0000", "3", str(min(3, len(os.sched_getaffinity(0))))]


REDRIVEN = """
    import os, threading, openai
    from redrive.capture.remote import RemoteBackend
    from redrive.record.event import Kind
    backend = RemoteBackend(os.environ["REDRIVE_RERUN"])
    assert backend.is_serving
    now = backend.read(Kind.CLOCK_READ, "time.time()", None)
    answer = openai.OpenAI().chat.completions.create(
        model="m", messages=[{"role": "user", "content": str(now)}])
    print(answer.choices[0].message.content)
    served = backend.begin_call("look", "pure", msgspec.Raw(b"{}"), is_unsafe=False)
    print(bytes(served.result).decode())
"""


@needs_sandbox
def test_a_python_agent_is_served_by_the_proxy_and_the_backend_behind_it(tmp_path):
    backend = FakeBackend()
    backend.is_serving = True
    backend.values = [0.30000000000000004]
    answer = chat_completion("recorded")
    backend.answers = [ServedAnswer(200, (("content-type", "application/json"),), answer)]
    backend.results = [ServedResult(Raw(b'{"n":18446744073709551617}'))]

    (tmp_path / "agent.py").write_text("import msgspec\n" + textwrap.dedent(REDRIVEN))
    caller = {"PATH": PATH, "HOME": os.path.expanduser("~")}

    async def main() -> ConfinedRun:
        upstreams = {"openai": "https://api.openai.com"}
        proxy = Proxy(backend, upstreams, control=serve_remote(backend))
        paths = {
            "OPENAI_BASE_URL": proxy.path_for("openai") + "/v1",
            "REDRIVE_RERUN": proxy.path_for("redrive"),
        }
        agent = AgentCommand(("python", "agent.py"), str(tmp_path), caller)
        try:
            return await confined_agent.run_agent_async(
                agent, server=AgentServer(proxy.serve_connection, paths)
            )
        finally:
            await proxy.close()

    done = asyncio.run(main())
    assert (done.result.stderr, done.result.exit_code) == (b"", 0)
    assert done.result.stdout == b'recorded\n{"n":18446744073709551617}\n'
    assert [request.url for request in backend.asked] == [
        "https://api.openai.com/v1/chat/completions"
    ]
    assert b"0.30000000000000004" in backend.asked[0].body


# --- what does not -----------------------------------------------------------------------------
ATTEMPTS = """
    import os, socket, sys, json
    from pathlib import Path
    port, unix, abstract, target = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    def tcp(): socket.create_connection(("127.0.0.1", port), 2).sendall(b"x")
    def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))
    def path_socket(): socket.socket(socket.AF_UNIX).connect(unix)
    def abstract_socket(): socket.socket(socket.AF_UNIX).connect("\\0" + abstract)
    def write(): Path(target).write_text("x")
    def write_here(): Path(os.path.dirname(target), "here").write_text("x")
    def link(): os.link(unix, target + "-link")
    done = {}
    for attempt in (tcp, udp, path_socket, abstract_socket, write, write_here, link):
        try:
            attempt()
            done[attempt.__name__] = "done"
        except OSError as error:
            done[attempt.__name__] = type(error).__name__
    print(json.dumps(done))
"""


@needs_sandbox
def test_an_agent_reaches_nothing_of_the_host(tmp_path):
    name = f"redrive-agent-{os.getpid()}"
    unix, target = str(tmp_path / "s"), str(tmp_path / "written")
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as path_socket,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = tcp.getsockname()[1]
        udp.bind(("127.0.0.1", port))
        path_socket.bind(unix)
        abstract.bind("\0" + name)
        listeners = (tcp, path_socket, abstract)
        for one in (path_socket, abstract):
            one.listen()
        for each in (*listeners, udp):
            each.settimeout(0.2)
        arguments = (str(port), unix, name, target)
        inside = json.loads(python(tmp_path, ATTEMPTS, *arguments).result.stdout)
        for listener in listeners:
            with pytest.raises(TimeoutError):
                listener.accept()
        with pytest.raises(TimeoutError):
            udp.recv(1)
        assert sorted(os.listdir(tmp_path)) == ["s"]
        # A datagram to nobody is sent; the witness above is the judge.
        assert {k: v for k, v in inside.items() if v == "done"} in ({}, {"udp": "done"})
        control = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(ATTEMPTS), *arguments], capture_output=True
        )
        outside = json.loads(control.stdout)
        assert set(outside.values()) == {"done"}
        for listener in listeners:
            listener.accept()[0].close()
        assert udp.recv(1) == b"x"
        assert {"here", "written", "written-link"} <= set(os.listdir(tmp_path))


@needs_sandbox
def test_only_the_one_port_answers(tmp_path):
    script = f"""
        import socket
        for port in (80, 443, {LOOPBACK_PORT} + 1, {LOOPBACK_PORT}):
            try:
                socket.create_connection(("127.0.0.1", port), 2)
                print(port)
            except OSError as error:
                print(type(error).__name__)
    """
    done = python(tmp_path, script)
    assert done.result.stdout.decode().split() == [
        *3 * ("ConnectionRefusedError",),
        str(LOOPBACK_PORT),
    ]


@needs_sandbox
@pytest.mark.parametrize("is_cwd_copied", [False, True])
def test_a_pipe_in_a_folder_that_is_shown_is_not_written_to(tmp_path, is_cwd_copied):
    cwd, other = tmp_path / "cwd", tmp_path / "other"
    script = "echo alive"
    pipes = []
    for folder in (cwd, other):
        (folder / "sub").mkdir(parents=True)
        os.mkfifo(folder / "sub" / "pipe")
        pipes.append(os.open(folder / "sub" / "pipe", os.O_RDWR | os.O_NONBLOCK))
        script += f"; echo x > {folder}/sub/pipe"
    script += "; for each in $(find / -xdev -name pipe 2>/dev/null); do echo x > $each; done"
    fields = {"readable": (str(other),), "is_cwd_copied": is_cwd_copied}
    # Not into the copy's own folder: nothing is there to be written to, so a file is made.
    assert run(cwd, "/bin/sh", "-c", script, **fields).result.stdout == b"alive\n"
    for pipe in pipes:
        with pytest.raises(BlockingIOError):
            os.read(pipe, 1)
    subprocess.run(["/bin/sh", "-c", script.partition("; for")[0]], check=True)
    for pipe in pipes:
        assert os.read(pipe, 2) == b"x\n"
        os.close(pipe)


# How the command could get at the shim's end of the channel: by what it inherits, by the shim's
# descriptors, its memory, its threads. Numbers of calls: pidfd_open, pidfd_getfd, ptrace.
REACH = """
    import ctypes, json, os, socket, struct, sys
    libc = ctypes.CDLL(None, use_errno=True)
    victim = int(sys.argv[1]) if len(sys.argv) > 1 else os.getppid()
    ptrace = {"x86_64": 101, "aarch64": 117}[os.uname().machine]
    def check(value):
        if value < 0:
            raise OSError(ctypes.get_errno(), "")
        return value
    def inherited():
        names = [int(n) for n in os.listdir("/proc/self/fd")]
        assert [n for n in names if n > 2 and os.path.exists(f"/proc/self/fd/{n}")]
    def listed():
        found = [os.readlink(f"/proc/{victim}/fd/{n}") for n in os.listdir(f"/proc/{victim}/fd")]
        assert [name for name in found if name.startswith("socket:")]
    def taken():
        process = check(libc.syscall(434, victim, 0))
        for number in range(3, 20):
            try:
                check(libc.syscall(438, process, number, 0))
                return
            except OSError:
                pass
        raise PermissionError
    def memory(): open(f"/proc/{victim}/mem", "rb+").close()
    def environ(): open(f"/proc/{victim}/environ", "rb").read()
    def traced(): check(libc.syscall(ptrace, 0x4206, victim, 0, 0))
    done = {}
    for attempt in (inherited, listed, taken, memory, environ, traced):
        try:
            attempt()
            done[attempt.__name__] = True
        except (OSError, AssertionError):
            done[attempt.__name__] = False
    print(json.dumps(done))
"""


@needs_sandbox
def test_the_passed_descriptor_is_out_of_the_commands_reach(tmp_path):
    done = python(tmp_path, REACH)
    assert set(json.loads(done.result.stdout).values()) == {False}
    victim = "import socket, sys; s = socket.socketpair(); print(1, flush=True); sys.stdin.read()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen([sys.executable, "-c", victim], **pipes) as process:
        assert process.stdout.readline() == b"1\n"
        control = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(REACH), str(process.pid)],
            capture_output=True,
            pass_fds=(theirs.fileno(),),
        )
        process.kill()
    outside = json.loads(control.stdout)
    assert outside.pop("inherited")
    if os.geteuid() == 0:
        assert set(outside.values()) == {True}
    else:
        assert outside["listed"]


@needs_sandbox
def test_the_agent_has_the_variables_that_are_named_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("REDRIVE_SECRET", "of the caller")
    script = "import os, json; print(json.dumps(dict(os.environ)))"
    done = python(tmp_path, script, environment={"GIVEN": "1", "OPENAI_BASE_URL": "elsewhere"})
    found = json.loads(done.result.stdout)
    keys = dict.fromkeys(confined_agent.KEY_VARIABLES, "redrive")
    assert {k: v for k, v in found.items() if k not in ("PWD", "LC_CTYPE")} == keys | {
        "GIVEN": "1",
        "HOME": "/scratch",
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": f"{LOOPBACK_ORIGIN}/t0ken/openai/v1",
        "PATH": PATH,
        "REDRIVE_RERUN": f"{LOOPBACK_ORIGIN}/t0ken/redrive",
    }


@needs_sandbox
def test_the_home_folder_is_empty_and_the_working_folder_is_read_only(tmp_path):
    (tmp_path / "file").write_text("kept")
    script = "ls -A ~; echo x > ~/x && cat ~/x; cat file; echo lost > file; rm file"
    done = run(tmp_path, "/bin/sh", "-c", script)
    assert done.result.stdout == b"x\nkept"
    assert (tmp_path / "file").read_text() == "kept"
    assert done.notes == ("the working folder is read-only",)


@needs_sandbox
def test_a_copied_working_folder_is_written_and_gone(tmp_path):
    (tmp_path / "sub" / ".redrive").mkdir(parents=True)
    (tmp_path / ".redrive").mkdir()
    (tmp_path / "sub" / "file").write_text("kept")
    (tmp_path / "link").symlink_to("sub/file")
    os.mkfifo(tmp_path / "pipe")
    script = "ls -A . sub; cat link; echo new > sub/file; cat link; pwd"
    done = run(tmp_path, "/bin/sh", "-c", script, is_cwd_copied=True)
    assert done.result.stdout.decode().split() == [
        *(".:", "link", "sub", "sub:", ".redrive", "file", "kept" + "new", str(tmp_path)),
    ]
    assert (tmp_path / "sub" / "file").read_text() == "kept"
    assert done.notes == ("the working folder is a private copy that is gone afterwards",)


def test_a_folder_that_is_too_large_is_not_copied(tmp_path):
    (tmp_path / "file").write_bytes(bytes(2 * MIB))
    with pytest.raises(UsageError, match="larger than a copy in memory may be: 1 MiB"):
        run(tmp_path, "true", is_cwd_copied=True, limits=Limits(scratch_bytes=MIB))


@needs_sandbox
def test_a_copy_that_does_not_fit_after_all_starts_nothing(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(bytes(2 * MIB))
    monkeypatch.setattr(confined_agent, "_size_bytes", lambda _: 0)
    with pytest.raises(ContainmentError, match="No space left"):
        run(
            tmp_path,
            *("/bin/sh", "-c", "echo ran"),
            is_cwd_copied=True,
            limits=Limits(scratch_bytes=MIB, address_space_bytes=64 * 1024 * MIB),
        )


# --- how it ends -------------------------------------------------------------------------------
BEAT = "(while :; do curl -s $OPENAI_BASE_URL >/dev/null; sleep 0.05; done) & sleep 60"


@needs_sandbox
def test_the_time_ends_it(tmp_path):
    server = SmallServer()
    done = run(tmp_path, "/bin/sh", "-c", BEAT, server=server, limits=Limits(wall_s=1.0))
    assert (done.result.is_timeout, done.result.exit_code) == (True, None)
    assert done.result.wall_s < 5


@needs_sandbox
def test_whoever_started_it_can_stop_it(tmp_path):
    stop = threading.Event()

    async def respond(method, path, body):
        stop.set()
        return 200, b"{}"

    done = run(tmp_path, "/bin/sh", "-c", BEAT, server=SmallServer(respond), stop=stop)
    assert (done.result.is_stopped, done.result.exit_code) == (True, None)
    assert done.result.wall_s < 10


INTERRUPTED = """
    import sys
    from redrive.app.confined_agent import *
    from tests.small_http import SmallServer
    agent = AgentCommand(("/bin/sh", "-c", "echo begun; exec sleep " + sys.argv[2]), sys.argv[1],
                         {"PATH": "/usr/bin:/bin", "HOME": "/nowhere"})
    streams = AgentStreams(on_stdout=lambda data: print(data.decode(), end="", flush=True))
    try:
        run_agent(agent, server=AgentServer(SmallServer().serve), streams=streams)
    except KeyboardInterrupt:
        print("interrupted")
"""


def _wait_for(claim: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 60
    while not claim() and time.monotonic() < deadline_s:
        time.sleep(0.05)
    return claim()


def _sleepers(duration: str) -> list[str]:
    found = subprocess.run(["pgrep", "-fx", f"sleep {duration}"], capture_output=True, text=True)
    return found.stdout.split()


@needs_sandbox
@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGINT, "interrupted\n"), (signal.SIGKILL, "")]
)
def test_an_interrupt_ends_all_that_was_started(tmp_path, number, told):
    # Unlike that of any other test that runs meanwhile.
    duration = f"61.{os.getpid()}{number:02}"
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(tmp_path), duration]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=os.getcwd()) as process:
        assert process.stdout.readline() == "begun\n"
        assert _wait_for(lambda: len(_sleepers(duration)) == 1)
        process.send_signal(number)
        assert process.stdout.read() == told
    assert _wait_for(lambda: not _sleepers(duration))


@needs_sandbox
def test_a_server_that_fails_on_one_connection_serves_the_next(tmp_path):
    async def respond(method, path, body):
        if path == "/bad":
            raise RuntimeError("of the server")
        return 200, b"fine"

    script = f"curl -sS {LOOPBACK_ORIGIN}/bad; curl -sS {LOOPBACK_ORIGIN}/good"
    done = run(tmp_path, "/bin/sh", "-c", script, server=SmallServer(respond))
    assert done.result.stdout == b"fine"
    assert (done.connections.n_connections, done.connections.n_failed) == (2, 1)


# --- refusals ----------------------------------------------------------------------------------
def test_without_a_proven_sandbox_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("redrive.sandbox.bubblewrap.find_bubblewrap", lambda: None)
    target = tmp_path / "ran"
    with pytest.raises(ContainmentError, match="nothing is run"):
        run(tmp_path, "touch", str(target))
    assert not target.exists()


def test_no_command_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no command"):
        run(tmp_path)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_hash_seed_that_python_refuses_is_refused(tmp_path, seed):
    with pytest.raises(UsageError, match="hash seed"):
        run(tmp_path, "true", variation=Variation(hash_seed=seed))


@needs_sandbox
@pytest.mark.parametrize("n_cpus", [0, -1, 5000])
def test_no_or_too_many_processors_are_refused(tmp_path, n_cpus):
    with pytest.raises(UsageError, match="1 to 1024 processors"):
        run(tmp_path, "true", variation=Variation(n_cpus=n_cpus))


@needs_sandbox
def test_a_shim_that_cannot_start_is_a_failure_of_the_sandbox(tmp_path, monkeypatch):
    monkeypatch.setattr(confined_agent, "_python", lambda: "/usr/bin/false")
    with pytest.raises(ContainmentError, match="did not start in the sandbox: exit 1"):
        run(tmp_path, "true")


@needs_sandbox
def test_a_cancelled_run_ends(tmp_path):
    duration = f"62.{os.getpid()}"

    async def main() -> None:
        agent = AgentCommand(("sleep", duration), str(tmp_path), {"PATH": "/usr/bin:/bin"})
        running = confined_agent.run_agent_async(agent, server=AgentServer(SmallServer().serve))
        await asyncio.wait_for(running, 0.5)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert _wait_for(lambda: not _sleepers(duration))
