"""The launcher of the Landlock level: what comes through, what it cannot give, how it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from redrive.errors import ContainmentError, UsageError
from redrive.sandbox import landlock
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    MIB,
    SCRATCH_HOME,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
)
from redrive.sandbox.landlock import find_obstacle, launch_landlock
from redrive.sandbox.proof import prove_landlock
from redrive.sandbox.wiring import UNWIRED, Wiring

pytestmark = pytest.mark.skipif(
    not prove_landlock().is_proven, reason=f"no proven Landlock here: {prove_landlock().reason}"
)
ENVIRONMENT = {"PATH": DEFAULT_PATH}
SYSTEM_PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(
    not os.path.exists(SYSTEM_PYTHON), reason=f"the system has no {SYSTEM_PYTHON}"
)


def inside(
    script: str, stdin: bytes = b"", wiring: Wiring = UNWIRED, **fields: object
) -> ConfinedResult:
    """Run a shell script at this level; `fields` are those of the confinement."""
    confinement = Confinement(**({"environment": ENVIRONMENT} | fields))  # type: ignore[arg-type]
    return launch_landlock(("/bin/sh", "-c", script), confinement, stdin, wiring)


def outside(script: str) -> "subprocess.CompletedProcess[bytes]":
    """Run the same script without a sandbox: the control."""
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True)


def wait_until(is_true: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


# --- canary ------------------------------------------------------------------------------------
def test_input_outputs_and_exit_code_come_through():
    done = inside("cat; echo told >&2; exit 7", b"given")
    assert (done.stdout, done.stderr, done.exit_code) == (b"given", b"told\n", 7)
    assert inside("wc -c", b"x" * 3_000_000).stdout.split() == [b"3000000"]


@pytest.mark.parametrize(
    ("argv", "code", "by_signal"),
    [
        (("/bin/sh", "-c", "kill -TERM $$"), 143, 15),
        (("no-such-program",), 127, None),
        (("/etc/ld.so.cache",), 126, None),
    ],
)
def test_an_end_is_told_as_a_shell_tells_it(argv, code, by_signal):
    done = launch_landlock(argv, Confinement(environment=ENVIRONMENT))
    assert (done.exit_code, done.signal) == (code, by_signal)


def test_home_is_a_private_folder_that_is_removed_afterwards():
    script = "pwd; echo $HOME; echo $TMPDIR; stat -c %a .; echo x > ~/x; mkdir -p a/b; cat ~/x"
    given = ENVIRONMENT | {"HOME": SCRATCH_HOME, "WORK": "/tmp"}
    *folders, mode, read = inside(script, environment=given).stdout.split()
    assert (len({*folders}), mode, read) == (1, b"700", b"x")
    assert not os.path.exists(folders[0])


def test_a_folder_can_serve_as_home(tmp_path):
    home = str(tmp_path)
    inside("echo x > ~/x", home=home, home_folder=home, environment={"HOME": home})
    assert (tmp_path / "x").read_text() == "x\n"


def test_writable_folders_are_changed_for_real_and_readable_ones_are_not(tmp_path):
    for name in ("in", "in/work"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "given").write_text("given")
    script = (
        "cat given; echo lost > given; rm -f given; mkdir sub; ln -s x y; cd work && "
        "echo x > x && mv x y && mkdir -p a/b && mv y a/b/z && ln -s z a/l && mkfifo f && rm f"
    )
    readable, writable = (Bind(str(tmp_path / name)) for name in ("in", "in/work"))
    folder = str(tmp_path / "in")
    done = inside(script, readable=(readable,), writable=(writable,), cwd=folder)
    assert (done.stdout, done.exit_code) == (b"given", 0)
    assert sorted(os.listdir(folder)) == ["given", "work"]
    assert (tmp_path / "in" / "given").read_text() == "given"
    assert (tmp_path / "in/work/a/b/z").read_text() == "x\n"


# --- what it cannot give -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"readable": (Bind("{folder}", "/srv/there"),)}, "at another path"),
        ({"readable": (Bind("/"),)}, "tells of other processes"),
        ({"readable": (Bind("/proc/self"),)}, "tells of other processes"),
        ({"writable": (Bind("/"),)}, "from being written"),
        ({"writable": (Bind("/usr/share"),)}, "be changed"),
        ({"writable": (Bind("{folder}"),), "readable": (Bind("{folder}/in"),)}, "being written"),
        ({"scratch": ("/workspace",)}, "folder in memory"),
        ({"home": "/srv/somebody"}, "empty home"),
        ({"home_folder": "{folder}"}, "another path"),
        ({"n_cpus": 1000}, "processors"),
        ({"readable": (Bind("{folder}/none"),)}, "no such file"),
        ({"writable": (Bind("relative"),)}, "no such file"),
        ({"environment": {"A": "1\0B=2"}}, "NUL"),
        ({"environment": {"A=B": "1"}}, "no name"),
    ],
)
def test_what_it_cannot_give_is_refused_before_anything_runs(fields, message, tmp_path):
    (tmp_path / "in").mkdir()
    ran = tmp_path / "ran"

    def fill(value: object) -> object:
        if isinstance(value, Bind):
            return Bind(value.source.format(folder=tmp_path), value.target)
        return value.format(folder=tmp_path) if isinstance(value, str) else value

    filled = {
        name: tuple(map(fill, value)) if isinstance(value, tuple) else fill(value)
        for name, value in fields.items()
    }
    filled.setdefault("writable", (Bind(str(tmp_path)),))
    with pytest.raises(UsageError, match=message):
        inside(f"echo x > {ran}", **filled)
    assert not ran.exists()


@pytest.mark.parametrize("argv", [(), ("sh", "a\0b")])
def test_a_command_that_cannot_be_written_down_is_refused(argv):
    with pytest.raises(UsageError, match="empty or holds a NUL"):
        launch_landlock(argv, Confinement())


def test_a_working_folder_that_is_not_there_is_a_failure_of_the_sandbox():
    with pytest.raises(ContainmentError, match="chdir to /nowhere"):
        inside("true", cwd="/nowhere")


def test_a_launcher_that_does_not_confine_runs_nothing(monkeypatch, tmp_path):
    # The kernel refuses what the rule set asks for: no version handles this right.
    monkeypatch.setattr(landlock, "_ALL_TCP", 1 << 60)
    with pytest.raises(ContainmentError, match="did not start the command: landlock"):
        inside(f"echo x > {tmp_path}/ran", writable=(Bind(str(tmp_path)),))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("abi", "message"), [(0, "off or unknown"), (2, "version here is 2"), (7, "")]
)
def test_a_kernel_that_is_too_old_is_named(monkeypatch, abi, message):
    monkeypatch.setattr(landlock, "find_abi", lambda: abi)
    assert message in find_obstacle()
    assert bool(find_obstacle()) is bool(message)


@pytest.mark.parametrize("abi", [3, 4, 5])
def test_an_older_landlock_holds_as_well(monkeypatch, abi):
    monkeypatch.setattr(landlock, "find_abi", lambda: abi)
    with subprocess.Popen(["sleep", "60"]) as victim:
        done = inside(f"echo alive; kill -9 {victim.pid}; echo x > /usr/x; kill -9 $$; exit 3")
        # Its own signals are refused as well, which the level then names.
        assert (done.stdout, done.exit_code) == (b"alive\n", 3)
        assert victim.poll() is None
        victim.kill()
    assert any("signals are refused" in missing for missing in landlock.find_missing())


# --- rights ------------------------------------------------------------------------------------
RIGHTS = """
import ctypes
libc = ctypes.CDLL(None)
left = (ctypes.c_uint32 * 6)()
libc.capget((ctypes.c_uint32 * 2)(0x20080522, 0), left)
bound = [n for n in range(64) if libc.prctl(23, n, 0, 0, 0) == 1]
print(list(left), len(bound), libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0))
"""


@needs_python
def test_no_capability_is_left():
    done = launch_landlock((SYSTEM_PYTHON, "-c", RIGHTS), Confinement())
    bound = b"0" if os.geteuid() == 0 else done.stdout.split()[6]
    assert done.stdout == b"[0, 0, 0, 0, 0, 0] %s 1 2\n" % bound
    control = subprocess.run([SYSTEM_PYTHON, "-c", RIGHTS], capture_output=True).stdout
    assert control != done.stdout


def test_a_secret_of_the_environment_is_not_read(monkeypatch):
    monkeypatch.setenv("REDRIVE_SECRET", "s3cret-of-the-caller")
    script = f"echo $GIVEN; env; cat /proc/[0-9]*/environ /proc/{os.getpid()}/environ"
    assert b"s3cret-of-the-caller" in outside(script).stdout
    done = inside(script, environment=ENVIRONMENT | {"GIVEN": "canary"})
    assert done.stdout.startswith(b"canary\n")
    assert b"s3cret-of-the-caller" not in done.stdout


@needs_python
def test_an_open_descriptor_is_not_inherited(tmp_path):
    (tmp_path / "secret").write_text("of the caller")
    with open(tmp_path / "secret", "rb") as file:
        os.set_inheritable(file.fileno(), True)
        script = f"import os; print('alive', flush=True); print(os.read({file.fileno()}, 99))"
        done = launch_landlock((SYSTEM_PYTHON, "-c", script), Confinement())
        assert done.stdout == b"alive\n"
        command = [SYSTEM_PYTHON, "-c", script]
        control = subprocess.run(command, close_fds=False, capture_output=True)
        assert b"of the caller" in control.stdout


@needs_python
def test_the_one_descriptor_is_inherited_and_closed_here():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        script = f"import socket; socket.socket(fileno={number}).send(b'from inside')"
        launch_landlock((SYSTEM_PYTHON, "-c", script), Confinement(), wiring=Wiring(channel=theirs))
        assert ours.recv(100) == b"from inside"
        # Nobody else holds it: neither this process nor the one that waits.
        assert ours.recv(100) == b""
        assert theirs.fileno() == -1


# --- the end -----------------------------------------------------------------------------------
BEATS = "while :; do echo x >> {beats}; sleep 0.02; done"


def has_stopped(beats: Path) -> bool:
    size = beats.stat().st_size
    time.sleep(0.3)
    return size > 0 and beats.stat().st_size == size


@pytest.mark.parametrize("way", ["&", "setsid", "nohup", "twice"])
def test_what_is_left_running_ends_with_the_command(way, tmp_path):
    beats = tmp_path / "beats"
    loop = BEATS.format(beats=beats)
    starts = {
        "&": f"({loop}) &",
        "setsid": f"setsid sh -c '{loop}' >/dev/null 2>&1 </dev/null &",
        "nohup": f"nohup sh -c 'trap \"\" TERM HUP INT; {loop}' >/dev/null 2>&1 &",
        "twice": f"(setsid sh -c '({loop}) &' &)",
    }
    script = f"{starts[way]} while [ ! -s {beats} ]; do sleep 0.02; done; exit 4"
    script = script if way in ("&", "setsid", "nohup") else script.replace(") while", "); while")
    done = inside(script, writable=(Bind(str(tmp_path)),))
    assert (done.exit_code, done.is_timeout) == (4, False)
    assert has_stopped(beats)


def test_the_time_ends_grandchildren_too(tmp_path):
    beats = tmp_path / "beats"
    script = f"(setsid sh -c '{BEATS.format(beats=beats)}' &); sleep 60"
    done = inside(script, writable=(Bind(str(tmp_path)),), limits=Limits(wall_s=1.5))
    assert (done.is_timeout, done.exit_code) == (True, None)
    assert has_stopped(beats)


def test_a_stop_from_outside_ends_it(tmp_path):
    stop = threading.Event()
    wiring = Wiring(stop=stop, on_stdout=lambda _: stop.set())
    done = inside("echo up; sleep 60", wiring=wiring)
    assert (done.is_stopped, done.exit_code, done.stdout) == (True, None, b"up\n")


KILLED = """
import sys
from redrive.sandbox.confinement import Bind, Confinement
from redrive.sandbox.landlock import launch_landlock
launch_landlock(("/bin/sh", "-c", sys.argv[2]), Confinement(
    writable=(Bind(sys.argv[1]),), environment={"PATH": "/usr/bin:/bin"}))
"""


def test_a_redrive_that_is_killed_leaves_nothing_running(tmp_path):
    beats = tmp_path / "beats"
    loop = f"(setsid sh -c '{BEATS.format(beats=beats)}' &); sleep 60"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), loop]) as caller:
        wait_until(beats.exists)
        caller.send_signal(signal.SIGKILL)
    wait_until(lambda: has_stopped(beats))


def test_a_flood_of_processes_is_ended():
    limits = Limits(n_processes=20, wall_s=60)
    script = "for i in $(seq 60); do sleep 30 & done 2>/dev/null; echo all; wait"
    assert inside("for i in 1 2 3; do true & done; wait; echo few", limits=limits).exit_code == 0
    done = inside(script, limits=limits)
    assert (done.is_process_flood, done.exit_code, done.is_timeout) == (True, None, False)


def test_a_fork_bomb_ends():
    # It doubles as a real one does, and ends by itself where no limit holds it: at 512 processes.
    grow = "f $(($1-1)) | f $(($1-1)) & wait"
    bomb = f'f() {{ if [ "$1" = 0 ]; then exec sleep 20; else {grow}; fi; }}; f 8'
    done = inside(bomb, limits=Limits(n_processes=50, wall_s=60))
    assert done.is_process_flood or b"fork" in done.stderr.lower()
    assert not done.is_timeout


# --- limits ------------------------------------------------------------------------------------
def test_limits_hold(tmp_path):
    script = "ulimit -t; ulimit -v; ulimit -f; ulimit -n; ulimit -c"
    limits = Limits(cpu_s=9, address_space_bytes=500 * MIB, file_bytes=MIB, n_open_files=33)
    assert inside(script, limits=limits).stdout.split() == [b"9", b"512000", b"2048", b"33", b"0"]


def test_a_loop_is_ended_by_its_cpu_time():
    done = inside("while :; do :; done", limits=Limits(cpu_s=1, wall_s=60))
    assert (done.signal, done.is_timeout) == (9, False)


def test_a_flood_of_output_is_dropped_and_the_exit_code_kept():
    limits = Limits(output_bytes=1000)
    done = inside("head -c 5000000 /dev/zero; echo ok >&2; exit 2", limits=limits)
    assert (len(done.stdout), done.stderr, done.exit_code) == (1000, b"ok\n", 2)
    assert done.is_output_cut


def test_the_private_folder_is_measured():
    script = "for i in $(seq 40); do head -c 500000 /dev/zero > $i; done; sleep 60"
    done = inside(script, limits=Limits(scratch_bytes=2 * MIB, wall_s=60))
    assert (done.is_disk_full, done.exit_code, done.is_timeout) == (True, None, False)
