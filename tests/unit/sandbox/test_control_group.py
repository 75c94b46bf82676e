"""The number of processes is held for root too, and nothing is left of what holds it."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from redrive.errors import ContainmentError
from redrive.sandbox import control_group
from redrive.sandbox.bubblewrap import probe, run_confined
from redrive.sandbox.confinement import DEFAULT_PATH, ConfinedResult, Confinement, Limits
from redrive.sandbox.control_group import find_parent, open_group

running = sys.modules["redrive.sandbox.running"]
PARENT = find_parent()
needs_group = pytest.mark.skipif(PARENT is None, reason="no pids controller, or not root")
needs_both = pytest.mark.skipif(
    PARENT is None or not probe().is_proven, reason="no pids controller, not root, or no sandbox"
)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not probe().is_proven, reason="not root, or no sandbox"
)
MARK = f"redrive-test-{os.getpid()}"
# Doubles to 511 processes, which end by themselves.
BOMB = 'f() { if [ "$1" = 0 ]; then exec sleep 9; else f $(($1-1)) | f $(($1-1)) & wait; fi; }; f 8'


def inside(script: str, **limits: float) -> ConfinedResult:
    confinement = Confinement(
        environment={"PATH": DEFAULT_PATH, "MARK": MARK},
        limits=Limits(**limits),  # type: ignore[arg-type]
    )
    return run_confined(("/bin/sh", "-c", script), confinement)


@pytest.fixture(autouse=True)
def own_parent(monkeypatch):
    """Let the runs of a test lie in a group of its own, so that what is left is seen."""
    if PARENT is None:
        yield None
        return
    parent = Path(PARENT, f"{MARK}-parent")
    parent.mkdir()
    monkeypatch.setattr(running, "find_parent", lambda: str(parent))
    yield parent
    parent.rmdir()


def left_in(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.is_dir()]


class Sampler:
    """Counts the processes that carry the mark of this test, as often as it can."""

    def __enter__(self) -> "Sampler":
        self.most, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.002):
            self.most = max(self.most, sum(map(is_marked, Path("/proc").glob("[0-9]*"))))


def is_marked(process: Path) -> bool:
    try:
        return f"MARK={MARK}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


# --- what holds --------------------------------------------------------------------------------
@needs_both
def test_a_doubling_bomb_never_has_more_than_the_limit(own_parent):
    with Sampler() as sampler:  # which may look late, hence the sleep
        done = inside(f"sleep 1; {BOMB}", n_processes=50, wall_s=60)
    assert (done.is_process_flood, done.exit_code, done.is_timeout) == (True, None, False)
    assert 0 < sampler.most <= 50
    assert left_in(own_parent) == []


@needs_group
def test_a_doubling_bomb_is_held_while_nobody_watches(own_parent):
    with open_group(str(own_parent), 50) as group, Sampler() as sampler:
        subprocess.run(
            (*group.joining(), "/bin/sh", "-c", BOMB.replace("sleep 9", "sleep 1")),
            env={"PATH": DEFAULT_PATH, "MARK": MARK},
            capture_output=True,
            timeout=120,
        )
        # So it had come to the limit, for however short.
        assert group.has_refused()
    assert 0 < sampler.most <= 50
    assert left_in(own_parent) == []


@needs_both
@pytest.mark.parametrize(("n_more", "is_flood"), [(19, False), (20, True)])
def test_the_limit_is_exact(own_parent, n_more, is_flood):
    done = inside(f"for i in $(seq {n_more}); do sleep 0.3 & done; wait", n_processes=20)
    assert (done.is_process_flood, done.exit_code) == (is_flood, None if is_flood else 0)


@needs_both
def test_an_answer_after_a_refused_process_is_none(own_parent):
    # Gone before the next look: only what the kernel counted tells of it.
    script = "(sleep 0.2 & sleep 0.2 & sleep 0.2 & sleep 0.2 &) 2>/dev/null; exit 2"
    done = inside(script, n_processes=3)
    assert (done.is_process_flood, done.exit_code) == (True, None)


@needs_both
def test_the_inside_sees_no_control_groups(own_parent):
    done = inside("cat /proc/self/cgroup; grep cgroup /proc/mounts; ls -d /sys/fs/cgroup; echo end")
    assert b"redrive" not in done.stdout
    assert done.stdout.endswith(b":/\nend\n")
    assert b"/sys/fs/cgroup" in done.stderr
    assert "cgroup" in Path("/proc/mounts").read_text()


@needs_both
def test_this_process_stays_where_it_was(own_parent):
    before = Path("/proc/self/cgroup").read_text()
    inside("true")
    assert Path("/proc/self/cgroup").read_text() == before


# --- nothing is left ---------------------------------------------------------------------------
@needs_both
@pytest.mark.parametrize(
    ("script", "limits"),
    [
        ("exit 3", {}),
        ("setsid sleep 60 >/dev/null 2>&1 & exit 0", {}),
        ("sleep 60", {"wall_s": 0.3}),
        ("setsid sleep 60 & setsid sleep 60 & sleep 60", {"n_processes": 2}),
        ("kill -9 $$", {}),
    ],
    ids=["normal end", "left running", "timeout", "flood", "killed"],
)
def test_the_group_is_removed(own_parent, script, limits):
    inside(f"{script}", **limits)
    assert left_in(own_parent) == []


@needs_both
def test_the_group_is_removed_after_an_exception(own_parent, monkeypatch):
    seen = []

    def fail(*_: object) -> None:
        seen.extend(left_in(own_parent))
        raise KeyboardInterrupt

    monkeypatch.setattr(running.Run, "finish", fail)
    with pytest.raises(KeyboardInterrupt):
        inside("sleep 60")
    assert len(seen) == 1
    assert left_in(own_parent) == []


@needs_both
def test_the_group_is_removed_where_the_command_did_not_start(own_parent):
    confinement = Confinement(cwd="/nowhere")
    with pytest.raises(ContainmentError, match="chdir"):
        run_confined(("true",), confinement)
    assert left_in(own_parent) == []


@needs_group
def test_what_is_left_in_a_group_is_killed(own_parent):
    with open_group(str(own_parent), 5) as group:
        process = subprocess.Popen((*group.joining(), "sleep", "60"))
        wait_until(lambda: Path(group.folder, "cgroup.procs").read_text() == f"{process.pid}\n")
    assert process.wait(60) == -signal.SIGKILL
    assert left_in(own_parent) == []


KILLED = """
import sys, time
from redrive.sandbox.control_group import open_group
with open_group(sys.argv[1], 5):
    print("open", flush=True)
    time.sleep(60)
"""


@needs_group
def test_the_next_redrive_removes_what_a_killed_one_left(own_parent):
    command = [sys.executable, "-c", KILLED, str(own_parent)]
    with (
        open_group(str(own_parent), 5) as in_use,
        subprocess.Popen(command, stdout=subprocess.PIPE) as killed,
    ):
        assert killed.stdout.readline() == b"open\n"
        control_group._sweep(str(own_parent))
        assert len(left_in(own_parent)) == 2
        killed.kill()
        killed.wait()
        control_group._sweep(str(own_parent))
        assert left_in(own_parent) == [Path(in_use.folder)]


def wait_until(is_so) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- where it cannot be ------------------------------------------------------------------------
def write_about(folder: Path, cgroup: str, mountinfo: str) -> str:
    (folder / "cgroup").write_text(cgroup)
    (folder / "mountinfo").write_text(mountinfo)
    return str(folder)


@needs_root
def test_without_a_controller_processes_are_counted(tmp_path, monkeypatch):
    mount = f"1 0 0:1 / {tmp_path} rw - cgroup cgroup rw,pids\n"
    about = write_about(tmp_path, "8:pids:/\n", mount)
    # A folder, but no controller makes files in it.
    assert find_parent(about) is None
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []
    monkeypatch.setattr(running, "find_parent", lambda: find_parent(about))
    assert inside("for i in 1 2 3; do true & done; wait", n_processes=20).exit_code == 0
    done = inside("for i in $(seq 40); do sleep 9 & done; wait", n_processes=20, wall_s=20)
    assert (done.is_process_flood, done.exit_code, done.is_timeout) == (True, None, False)


@needs_root
def test_a_group_that_can_no_longer_be_made_falls_back_to_counting(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "find_parent", lambda: str(tmp_path / "gone"))
    assert inside("exit 3").exit_code == 3


@needs_group
def test_a_group_that_is_taken_away_is_a_fault_of_the_sandbox(own_parent):
    with open_group(str(own_parent), 5) as group:
        os.rmdir(group.folder)
        with pytest.raises(ContainmentError, match="is gone"):
            group.has_refused()


def test_an_ordinary_user_is_left_to_the_kernels_own_limit(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    find_parent.cache_clear()
    assert find_parent() is None
    find_parent.cache_clear()


@pytest.mark.parametrize(
    ("cgroup", "root", "expected"),
    [
        ("3:cpu,pids:/a/b\n0::/x\n", "/", "a/b"),
        ("3:pids:/docker/1/b\n", "/docker/1", "b"),
        ("3:pids:/\n", "/", "."),
        ("3:pids:/docker/12\n", "/docker/1", None),
        ("3:pids:/../x\n", "/", None),
        ("3:pids:/\n", "/..", None),
        ("3:cpu:/a\n", "/", None),
    ],
)
def test_the_own_group_of_version_1_is_found(tmp_path, cgroup, root, expected):
    mountinfo = (
        "1 0 0:1 / /other rw - cgroup cgroup rw,cpu\n"
        "2 0 0:1 / /else rw shared:1 - ext4 /dev/x rw\n"
        f"3 0 0:1 {root} {tmp_path} rw shared:1 - cgroup cgroup rw,cpu,pids\n"
    )
    found = control_group._candidates(write_about(tmp_path, cgroup, mountinfo))
    assert [os.path.normpath(path) for path in found] == (
        [] if expected is None else [os.path.normpath(tmp_path / expected)]
    )


@pytest.mark.parametrize(
    ("controllers", "limits", "expected"),
    [
        ({"": "cpu pids", "a": "pids", "a/b": ""}, {}, "a"),
        ({"": "pids", "a": "pids", "a/b": "pids"}, {}, "a/b"),
        ({"": "pids", "a": "", "a/b": ""}, {"a/memory.max": "max", "a/io.max": ""}, "."),
        ({"": "pids", "a": "", "a/b": ""}, {"a/b/pids.max": "99"}, "."),
        ({"": "pids", "a": "", "a/b": ""}, {"a/memory.max": "4096"}, None),
        ({"": "pids", "a": "", "a/b": ""}, {"a/b/cpu.max": "5000 100000"}, None),
        ({"": "", "a": "", "a/b": ""}, {}, None),
    ],
)
def test_version_2_is_joined_where_processes_count_and_no_limit_is_left(
    tmp_path, controllers, limits, expected
):
    for folder, names in controllers.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "cgroup.subtree_control").write_text(f"{names}\n")
    for file, text in limits.items():
        (tmp_path / file).write_text(f"{text}\n")
    about = write_about(tmp_path, "0::/a/b\n", f"1 0 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    found = list(control_group._candidates(about))
    assert found == ([] if expected is None else [os.path.normpath(tmp_path / expected)])
