"""Each promise of the sandbox: a canary that works inside, and the effect without the sandbox."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redrive.errors import ContainmentError, UsageError
from redrive.sandbox import bubblewrap, launch
from redrive.sandbox.bubblewrap import find_bubblewrap, probe, run_confined
from redrive.sandbox.confinement import (
    DEFAULT_PATH,
    MIB,
    SCRATCH_HOME,
    Bind,
    ConfinedResult,
    Confinement,
    Limits,
)

needs_bubblewrap = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
SYSTEM_PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(
    not os.path.exists(SYSTEM_PYTHON), reason=f"the system has no {SYSTEM_PYTHON}"
)
ENVIRONMENT = {"PATH": DEFAULT_PATH}


def inside(script: str, stdin: bytes = b"", **fields: object) -> ConfinedResult:
    """Run a shell script in the sandbox; `fields` are those of the confinement."""
    confinement = Confinement(**({"environment": ENVIRONMENT} | fields))  # type: ignore[arg-type]
    return run_confined(("/bin/sh", "-c", script), confinement, stdin)


def outside(script: str, **options: object) -> "subprocess.CompletedProcess[bytes]":
    """Run the same script without a sandbox: the control."""
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True, **options)


# --- refusal -----------------------------------------------------------------------------------
def test_without_bubblewrap_nothing_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: None)
    with pytest.raises(ContainmentError, match="no bubblewrap") as caught:
        inside(f"touch {tmp_path}/ran", writable=(Bind(str(tmp_path)),))
    assert "install bubblewrap" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_a_bubblewrap_that_confines_nothing_is_not_used(monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    # It runs the command and reports as the real one does, but nothing is confined.
    fake.write_text(
        "#!/usr/bin/env python3\nimport os, subprocess, sys\n"
        "words = open(int(sys.argv[2])).read().split('\\0')\n"
        "done = subprocess.run(sys.argv[4:], env={'LANG': 'C'}, close_fds=False).returncode\n"
        "os.write(int(words[1]), b'{\"exit-code\": %d}' % done)\nsys.exit(done)\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: str(fake))
    level = probe()
    assert not level.is_proven
    assert "could write a file of the host" in level.reason
    with pytest.raises(ContainmentError, match="could write a file of the host"):
        inside(f"touch {tmp_path}/ran", writable=(Bind(str(tmp_path)),))
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_no_bubblewrap_is_named(monkeypatch):
    monkeypatch.setattr(bubblewrap, "find_bubblewrap", lambda: "/bin/false")
    level = probe()
    assert (level.name, level.is_proven) == ("none", False)
    assert "self-test failed" in level.reason


@needs_bubblewrap
def test_the_level_names_what_was_proven_and_what_is_missing():
    level = probe()
    assert (level.name, level.reason) == ("bubblewrap", "")
    assert all(proof.is_contained and proof.has_control for proof in level.proofs)
    assert len(level.proofs) == 10


def test_bubblewrap_is_looked_for_on_linux_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert find_bubblewrap() is None


# --- canary ------------------------------------------------------------------------------------
@needs_bubblewrap
def test_input_outputs_and_exit_code_come_through():
    done = inside("cat; echo told >&2; exit 7", b"given")
    assert (done.stdout, done.stderr, done.exit_code) == (b"given", b"told\n", 7)
    assert (done.signal, done.is_timeout, done.is_output_cut, done.is_process_flood) == (
        *(None, False),
        *(False, False),
    )


@needs_bubblewrap
def test_a_command_cannot_say_that_it_was_not_started():
    for words in ("redrive: the limits were refused", "$REDRIVE_LIMITS_REFUSED"):
        assert inside(f'echo "{words}" >&2; exit 125').exit_code == 125
    assert b"REDRIVE" not in inside("env; cat /proc/*/environ").stdout


@needs_bubblewrap
def test_limits_that_are_refused_are_a_failure_of_the_sandbox(monkeypatch):
    monkeypatch.setattr(launch, "_limit_words", lambda _: ["no", "1", "1", "1", "1"])
    with pytest.raises(ContainmentError, match=r"did not start the command: .*ulimit"):
        inside("true")


def test_a_signal_is_told_as_a_shell_tells_it():
    done = inside("kill -TERM $$")
    assert (done.exit_code, done.signal) == (143, 15)


@needs_bubblewrap
def test_a_command_that_is_not_there_ends_with_127():
    done = run_confined(("no-such-program",), Confinement(environment=ENVIRONMENT))
    assert done.exit_code == 127


@needs_bubblewrap
def test_a_process_that_reads_nothing_is_fed_much():
    assert inside("exit 3", b"x" * 5_000_000).exit_code == 3


@needs_bubblewrap
def test_a_large_input_is_handed_over_whole():
    assert inside("wc -c", b"x" * 3_000_000).stdout.split() == [b"3000000"]


# --- files -------------------------------------------------------------------------------------
@needs_bubblewrap
def test_a_write_outside_does_not_happen(tmp_path):
    canary, target = tmp_path / "canary", tmp_path / "outside"
    canary.mkdir()
    script = f"echo in > {canary}/file; echo out > {target}; echo out > /usr/redrive-was-here"
    inside(script, writable=(Bind(str(canary)),))
    assert (canary / "file").read_text() == "in\n"
    assert not target.exists()
    assert not os.path.exists("/usr/redrive-was-here")
    outside(f"echo out > {target}")
    assert target.exists()


@needs_bubblewrap
def test_what_is_readable_is_not_writable(tmp_path):
    file = tmp_path / "file"
    file.write_text("kept")
    script = f"cat {file}; echo lost > {file}; rm -f {file}; mv {tmp_path} {tmp_path}2"
    assert inside(script, readable=(Bind(str(tmp_path)),)).stdout == b"kept"
    assert file.read_text() == "kept"
    outside(f"echo lost > {file}")
    assert file.read_text() == "lost\n"


@needs_bubblewrap
def test_a_file_can_be_shown_at_another_path(tmp_path):
    file = tmp_path / "file"
    file.write_text("shown")
    done = inside("cat /srv/there", readable=(Bind(str(file), "/srv/there"),))
    assert done.stdout == b"shown"


@needs_bubblewrap
def test_an_inner_writable_folder_wins_over_an_outer_readable_one(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    done = inside(
        f"echo in > {inner}/file && ! echo out > {tmp_path}/file",
        readable=(Bind(str(tmp_path)),),
        writable=(Bind(str(inner)),),
    )
    assert done.exit_code == 0
    assert (inner / "file").exists()


@needs_bubblewrap
def test_the_real_home_is_an_empty_folder_inside():
    home = os.path.expanduser("~")
    if not outside(f"ls -A {home}").stdout:
        pytest.skip("this user's home folder is empty, so there is no control")
    done = inside("ls -A ~; echo x > ~/x && cat ~/x", home=home, environment={"HOME": home})
    assert done.stdout == b"x\n"
    assert not os.path.exists(f"{home}/x")


@needs_bubblewrap
def test_a_folder_can_serve_as_home(tmp_path):
    inside("echo x > ~/x", home_folder=str(tmp_path), environment={"HOME": SCRATCH_HOME})
    assert (tmp_path / "x").read_text() == "x\n"


@needs_bubblewrap
def test_people_and_services_of_the_machine_are_not_named():
    assert outside("cat /etc/passwd").stdout
    done = inside("cat /etc/passwd /etc/shadow /etc/hosts; hostname; echo alive")
    assert done.stdout == b"redrive\nalive\n"


@needs_bubblewrap
@pytest.mark.parametrize("path", ["/", "/usr/x", "/proc/x", "relative", "/dev", "/a/../usr"])
def test_the_systems_own_paths_are_not_covered(path, tmp_path):
    with pytest.raises(UsageError, match="cannot show"):
        inside("true", readable=(Bind(str(tmp_path), path),))


@needs_bubblewrap
def test_what_does_not_exist_is_named(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        inside("true", readable=(Bind(f"{tmp_path}/none"),))


@needs_bubblewrap
@pytest.mark.parametrize("environment", [{"A": "1\0--bind\0/\0/"}, {"A\0--share-net": "1"}])
def test_a_value_cannot_smuggle_an_option(environment):
    with pytest.raises(UsageError, match="NUL"):
        inside("true", environment=environment)


# --- network -----------------------------------------------------------------------------------
CONNECT = """
import socket, sys
print("alive")
socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=60)
"""


@needs_bubblewrap
@needs_python
def test_a_server_of_the_host_is_not_reached():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        argv = (SYSTEM_PYTHON, "-c", CONNECT, str(server.getsockname()[1]))
        done = run_confined(argv, Confinement())
        assert done.stdout == b"alive\n"
        assert b"ConnectionRefusedError" in done.stderr
        with pytest.raises(TimeoutError):
            server.accept()
        assert subprocess.run(argv, capture_output=True).returncode == 0
        server.accept()[0].close()


ABSTRACT = """
import socket, sys
print("alive", flush=True)
socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1])
"""


@needs_bubblewrap
@needs_python
def test_an_abstract_socket_of_the_host_is_not_reached():
    name = f"redrive-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        argv = (SYSTEM_PYTHON, "-c", ABSTRACT, name)
        done = run_confined(argv, Confinement())
        assert (done.stdout, done.exit_code) == (b"alive\n", 1)
        assert subprocess.run(argv, capture_output=True).returncode == 0


# --- what is inherited -------------------------------------------------------------------------
@needs_bubblewrap
def test_a_secret_of_the_environment_is_not_read(monkeypatch):
    monkeypatch.setenv("REDRIVE_SECRET", "s3cret-of-the-caller")
    script = "env; cat /proc/[0-9]*/environ"
    assert b"s3cret-of-the-caller" in outside(script).stdout
    done = inside(script, environment=ENVIRONMENT | {"GIVEN": "canary"})
    assert b"GIVEN=canary" in done.stdout
    assert b"s3cret-of-the-caller" not in done.stdout


@needs_bubblewrap
def test_the_first_process_shows_neither_variables_nor_paths(tmp_path):
    done = inside(
        "tr '\\0' ' ' < /proc/1/environ; tr '\\0' ' ' < /proc/1/cmdline",
        readable=(Bind(str(tmp_path), "/srv/there"),),
        environment=ENVIRONMENT | {"TOKEN": "t0ken"},
    )
    assert b"bwrap" in done.stdout
    assert b"t0ken" not in done.stdout
    assert str(tmp_path).encode() not in done.stdout


@needs_bubblewrap
def test_an_open_descriptor_is_not_inherited(tmp_path):
    file = tmp_path / "secret"
    file.write_text("of the caller")
    descriptor = os.open(file, os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    script = f"cat /proc/self/fd/0; cat <&{descriptor}" if descriptor < 10 else ""
    script = script or f"cat /proc/self/fd/{descriptor}"
    try:
        control = outside(script, close_fds=False, stdin=subprocess.DEVNULL)
        assert control.stdout == b"of the caller"
        assert b"of the caller" not in inside(script).stdout
        listed = inside("ls /proc/self/fd")
        # The fourth is the listing's own.
        assert listed.stdout.split() == [b"0", b"1", b"2", b"3"]
    finally:
        os.close(descriptor)


@needs_bubblewrap
def test_processes_of_the_host_are_neither_seen_nor_ended():
    with subprocess.Popen(["sleep", "60"]) as victim:
        script = f"kill -9 {victim.pid} 2>/dev/null; ls -d /proc/[0-9]* | wc -l"
        assert int(inside(script).stdout) < 10
        assert victim.poll() is None
        outside(script)
        assert victim.wait(60) == -9


@needs_bubblewrap
def test_there_are_no_rights_and_no_nested_namespace():
    done = inside("grep -E 'Cap(Eff|Bnd|Prm)|NoNewPrivs' /proc/self/status; unshare -U true")
    rights = [line.split()[1] for line in done.stdout.splitlines()]
    assert rights == [b"0" * 16, b"0" * 16, b"0" * 16, b"1"]
    assert done.exit_code != 0
    assert b"unshare" in done.stderr


@needs_bubblewrap
def test_settings_of_the_kernel_are_not_written():
    # Only a superuser could write them outside; the value is the one that is there.
    script = 'f=/proc/sys/kernel/core_pattern; v=$(cat $f) && echo alive && echo "$v" > $f'
    done = inside(script)
    assert done.stdout == b"alive\n"
    assert done.exit_code != 0
    assert b"Read-only" in done.stderr or os.geteuid() != 0
    if os.geteuid() == 0:
        assert os.access("/proc/sys/kernel/core_pattern", os.W_OK)


KEYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
print("alive", flush=True)
number = {"x86_64": 248, "aarch64": 217}[os.uname().machine]
# A key of the process's own keyring, gone with it.
key = libc.syscall(number, b"user", b"redrive-test", b"secret", 6, -2)
sys.exit(0 if key > 0 else 1)
"""


@needs_bubblewrap
@needs_python
def test_keyrings_are_out_of_reach():
    argv = (SYSTEM_PYTHON, "-c", KEYS)
    if subprocess.run(argv, capture_output=True).returncode != 0:
        pytest.skip("keyrings are closed or unknown here, so there is no control")
    done = run_confined(argv, Confinement())
    assert (done.stdout, done.exit_code) == (b"alive\n", 1)


@needs_bubblewrap
def test_a_filter_of_system_calls_holds():
    if any("system calls" in missing for missing in probe().missing):
        pytest.skip(f"this sandbox lacks: {probe().missing}")
    assert inside("grep Seccomp: /proc/self/status").stdout.split() == [b"Seccomp:", b"2"]


# --- limits ------------------------------------------------------------------------------------
@needs_bubblewrap
def test_a_flood_of_processes_is_ended():
    limits = Limits(n_processes=20, wall_s=20)
    script = "for i in $(seq 60); do sleep 30 & done 2>/dev/null; echo all; wait"
    assert inside("for i in 1 2 3; do true & done; wait; echo few", limits=limits).exit_code == 0
    done = inside(script, limits=limits)
    assert (done.is_process_flood, done.exit_code) == (True, None)
    assert not done.is_timeout
    assert outside("for i in $(seq 60); do sleep 1 & done; echo all").stdout == b"all\n"


@needs_bubblewrap
def test_a_fork_bomb_ends():
    # It doubles as a real one does, and ends by itself where no limit holds it: at 512 processes.
    # Each shell waits, or the first one would be gone, and all with it, before the others are many.
    grow = "f $(($1-1)) | f $(($1-1)) & wait"
    bomb = f'f() {{ if [ "$1" = 0 ]; then exec sleep 20; else {grow}; fi; }}; f 8'
    done = inside(bomb, limits=Limits(n_processes=50, wall_s=15))
    assert done.is_process_flood or b"fork" in done.stderr.lower()
    assert not done.is_timeout


ALLOCATE = "block = bytearray(400 * 1024 * 1024); print(len(block))"


@needs_bubblewrap
@needs_python
def test_memory_is_limited():
    limits = Limits(address_space_bytes=200 * MIB)
    argv = (SYSTEM_PYTHON, "-c", ALLOCATE)
    assert b"MemoryError" in run_confined(argv, Confinement(limits=limits)).stderr
    assert run_confined(argv, Confinement()).exit_code == 0
    assert subprocess.run(argv, capture_output=True).returncode == 0


@needs_bubblewrap
def test_a_loop_is_ended_by_its_cpu_time():
    done = inside("while :; do :; done", limits=Limits(cpu_s=1, wall_s=30))
    assert (done.signal, done.is_timeout) == (9, False)


@needs_bubblewrap
def test_the_size_of_a_file_is_limited(tmp_path):
    script = f"head -c 3000000 /dev/zero > {tmp_path}/file; echo alive"
    done = inside(script, writable=(Bind(str(tmp_path)),), limits=Limits(file_bytes=MIB))
    assert b"alive" in done.stdout
    assert (tmp_path / "file").stat().st_size == MIB
    outside(script)
    assert (tmp_path / "file").stat().st_size == 3_000_000


@needs_bubblewrap
@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm", "~"])
def test_folders_in_memory_are_limited(folder):
    if any("no size limit" in missing for missing in probe().missing):
        pytest.skip("this bubblewrap cannot limit folders in memory")
    script = (
        f"for i in 1 2 3 4 5 6 7 8; do head -c 500000 /dev/zero > {folder}/$i; done; "
        f"cat {folder}/* | wc -c"
    )
    done = inside(
        script,
        limits=Limits(scratch_bytes=2 * MIB),
        environment=ENVIRONMENT | {"HOME": SCRATCH_HOME},
    )
    assert 500_000 < int(done.stdout) <= 2 * MIB
    assert b"No space left" in done.stderr


@needs_bubblewrap
def test_nothing_can_be_written_beside_the_folders_in_memory():
    done = inside("echo x > /x; echo x > /dev/x; echo x > /etc/x; echo x > /proc/x; echo alive")
    assert done.stdout == b"alive\n"
    assert done.stderr.count(b"cannot create") == 4


@needs_bubblewrap
def test_open_files_are_limited():
    assert inside("ulimit -n", limits=Limits(n_open_files=33)).stdout == b"33\n"


@needs_bubblewrap
def test_a_flood_of_output_is_dropped_and_the_exit_code_kept():
    limits = Limits(output_bytes=1000)
    done = inside("head -c 5000000 /dev/zero; echo ok >&2; exit 2", limits=limits)
    assert (len(done.stdout), done.stderr, done.exit_code) == (1000, b"ok\n", 2)
    assert done.is_output_cut
    assert len(outside("head -c 5000000 /dev/zero").stdout) == 5_000_000


@needs_bubblewrap
def test_an_endless_flood_ends_with_the_time():
    for wall_s in (0.5, 5, 50):  # more, where the machine takes that long to begin
        limits = Limits(output_bytes=10, wall_s=wall_s)
        done = inside("while :; do echo flood; done", limits=limits)
        if done.stdout:
            break
    assert (done.is_timeout, done.exit_code, done.stdout) == (True, None, b"flood\nfloo")


@needs_bubblewrap
def test_the_time_ends_grandchildren_too(tmp_path):
    beats = tmp_path / "beats"
    script = (
        f"(setsid sh -c 'while :; do echo x >> {beats}; sleep 0.05; done' "
        ">/dev/null 2>&1 </dev/null &) ; sleep 600"
    )
    for wall_s in (0.7, 5, 50):  # more, where the machine takes that long to begin
        done = inside(script, writable=(Bind(str(tmp_path)),), limits=Limits(wall_s=wall_s))
        assert done.is_timeout
        assert done.wall_s < 300
        if beats.exists():
            break
    size = beats.stat().st_size
    assert size > 0
    time.sleep(0.3)
    assert beats.stat().st_size == size


@needs_bubblewrap
def test_what_is_left_running_ends_with_the_command(tmp_path):
    beats = tmp_path / "beats"
    begun = f"until test -s {beats}; do sleep 0.05; done"
    script = f"(while :; do echo x >> {beats}; sleep 0.05; done) & {begun}; exit 0"
    done = inside(script, writable=(Bind(str(tmp_path)),))
    assert (done.exit_code, done.is_timeout) == (0, False)
    size = Path(beats).stat().st_size
    assert size > 0
    time.sleep(0.3)
    assert beats.stat().st_size == size


@needs_bubblewrap
@pytest.mark.parametrize("argv", [(), ("sh", "a\0b")])
def test_a_command_that_cannot_be_written_down_is_refused(argv):
    with pytest.raises(UsageError, match="empty or holds a NUL"):
        run_confined(argv, Confinement())


@needs_bubblewrap
def test_a_working_folder_that_is_not_there_is_a_failure_of_the_sandbox():
    with pytest.raises(ContainmentError, match="chdir"):
        inside("true", cwd="/nowhere")
