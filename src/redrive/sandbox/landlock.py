"""Starts a command under Landlock and seccomp, where namespaces are closed.

Does not know whether they hold here: callers go through `door`, which has that proven first.

The command sees the host's own tree, of which it can open what it was shown; it has no network at
all, no `/proc`, no shared memory. Nothing can be shown at another path, and nothing lies in memory:
its home is a private folder on disk, removed in the end. Variables, and the working folder, that
name the home or `/tmp` of the other level get that folder instead. What the level does not give is
refused before anything runs, or named in `find_missing`.

Source: DESIGN.md §6; landlock(7).
"""

import base64
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import msgspec

from redrive.errors import ContainmentError, UsageError
from redrive.sandbox.confinement import (
    MAX_CPUS,
    SCRATCH,
    SCRATCH_HOME,
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    ConfinedResult,
    Confinement,
    lies_in,
)
from redrive.sandbox.disk import DiskBudget
from redrive.sandbox.landlock_calls import find_strict_filter
from redrive.sandbox.private_folder import open_private_folder
from redrive.sandbox.running import (
    Launched,
    Run,
    disk_budgets,
    enter_group,
    kill,
    list_limits,
    on_cpus,
    sealed,
    started,
)
from redrive.sandbox.wiring import UNWIRED, Wiring, take_channel

# Without its third version, files that can only be read could be cut to nothing (Linux 6.2).
FIRST_ABI = 3
SCOPES_ABI = 6
_NET_ABI, _DEVICES_ABI = 4, 5
_CREATE_RULESET, _ASK_VERSION = 444, 1
_CHILD = Path(__file__).with_name("landlock_child.py")
_END_TIMEOUT_S = 5.0
# Of nobody else: what is swept is removed.
_PREFIX = "redrive-landlock-"
# The process that waits.
_N_OWN_PROCESSES = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 0x1, 0x2, 0x4, 0x8
_TRUNCATE, _USE_DEVICES = 0x4000, 0x8000
_READ = _EXECUTE | _READ_FILE | _READ_FOLDER
# Remove and make folders, files, sockets, pipes and links, move between folders; no devices.
_WRITE = (
    _READ | _WRITE_FILE | _TRUNCATE | 0x10 | 0x20 | 0x80 | 0x100 | 0x200 | 0x400 | 0x1000 | 0x2000
)
_ALL_FILES, _ALL_TCP, _ALL_SCOPES = 0x7FFF, 0x3, 0x3
_DEVICES = (
    *(("/dev/null", _READ_FILE | _WRITE_FILE), ("/dev/zero", _READ_FILE | _WRITE_FILE)),
    *(("/dev/urandom", _READ_FILE), ("/dev/random", _READ_FILE)),
)


_KERNEL_FOLDERS = ("/dev", "/proc", "/sys")


class _Placed(msgspec.Struct, frozen=True):
    """A confinement with its places on the host: home folder, working folder, variables, rules."""

    home: str
    cwd: str
    environment: Mapping[str, str]
    rules: tuple[tuple[str, int], ...]


@cache
def find_abi() -> int:
    """Find the version of Landlock that this kernel offers; 0 where it is off or unknown."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = (ctypes.c_void_p(None), ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION))
    return max(int(libc.syscall(ctypes.c_long(_CREATE_RULESET), *words)), 0)


def find_obstacle() -> str:
    """Say why this level cannot be had here; empty if it can be tried."""
    abi = find_abi()
    if abi == 0:
        return "Landlock is off or unknown to this kernel"
    if abi < FIRST_ABI:
        return f"Landlock's version here is {abi}, and {FIRST_ABI} is the first that holds"
    if find_strict_filter(refuses_signals=False) is None:
        return "no filter of system calls is known for this machine, and Landlock needs one"
    return ""


def find_missing() -> tuple[str, ...]:
    """Name what this level does not hold or give, for the report."""
    return (
        *(() if find_abi() >= SCOPES_ABI else ("signals are refused, also between own processes",)),
        "no network at all, also not inside: what needs HTTP is ineligible",
        "no /proc, no shared memory; modes, owners and times of files cannot be changed",
        "names, sizes and times of the host's files can be asked for, their contents not",
        "home and temporary files lie on disk, where their size is measured and not held",
        "an ordinary user's other processes count when the kernel refuses one more",
    )


def launch_landlock(
    argv: Sequence[str], confinement: Confinement, stdin: bytes = b"", wiring: Wiring = UNWIRED
) -> ConfinedResult:
    """Run a command under a Landlock of which nothing is proven.

    An exception that comes in between, such as an interrupt, ends the command and all it started.

    Args:
        argv: the command and its arguments, looked up in the `PATH` of the confinement.
        confinement: what it has.
        stdin: what it reads; then its input is closed.
        wiring: see `Wiring`.

    Raises:
        UsageError: the confinement asks for what this level cannot give, or it, the command or the
            channel is not what it must be.
        ContainmentError: the kernel did not confine the command, or it did not end.
    """
    with ExitStack() as stack:
        channel = take_channel(stack, wiring.channel)
        if not argv or any("\0" in word for word in argv):
            raise UsageError("a command for the sandbox is empty or holds a NUL character")
        _check(confinement)
        # Entered first, so that it is removed when all else has ended.
        group = enter_group(stack, confinement.limits.n_processes + _N_OWN_PROCESSES)
        placed = _place(confinement, str(stack.enter_context(open_private_folder(_PREFIX))))
        read_end, write_end = os.pipe()
        status = stack.enter_context(os.fdopen(read_end, "rb", buffering=0))
        # Closed as soon as the child has its own, or the end would never be seen.
        with os.fdopen(write_end, "wb"), ExitStack() as handed:
            setup = _dump_setup(argv, confinement, placed, channel, write_end)
            told = handed.enter_context(sealed(setup))
            joining = () if group is None else group.joining()
            with on_cpus(confinement.n_cpus):
                process = stack.enter_context(
                    started(
                        "Landlock", (*joining, *_words(told)), (told, write_end, *channel), _end
                    )
                )
        if wiring.channel is not None:
            wiring.channel.close()
        budgets = (
            *disk_budgets(confinement),
            DiskBudget((placed.home,), confinement.limits.scratch_bytes),
        )
        launched = Launched("Landlock", process, status, _end)
        return Run(launched, confinement.limits, group, wiring, budgets).finish(stdin)


def _words(setup: int) -> tuple[str, ...]:
    source = _CHILD.read_text(encoding="utf-8")
    return (sys.executable, "-I", "-S", "-B", "-c", source, str(setup))


def _dump_setup(
    argv: Sequence[str],
    confinement: Confinement,
    placed: _Placed,
    channel: Sequence[int],
    status: int,
) -> bytes:
    abi = find_abi()
    has_scopes = abi >= SCOPES_ABI
    lines = find_strict_filter(refuses_signals=not has_scopes)
    if lines is None:
        raise ContainmentError("no filter of system calls is known for this machine")
    # A core's size does not bind one that is piped to a program of the host; one byte forbids both.
    core = (resource.RLIMIT_CORE, min(1, resource.getrlimit(resource.RLIMIT_CORE)[1] % 2**63))
    setup = {
        "argv": list(argv),
        "environment": dict(placed.environment),
        "cwd": placed.cwd,
        "channel": channel[0] if channel else None,
        "limits": (core, *list_limits(confinement.limits, _n_tasks_of_user())),
        "handled": (
            _ALL_FILES | (_USE_DEVICES if abi >= _DEVICES_ABI else 0),
            _ALL_TCP if abi >= _NET_ABI else 0,
            _ALL_SCOPES if has_scopes else 0,
        ),
        "rules": placed.rules,
        "filter": base64.b64encode(lines).decode(),
        "status": status,
        "parent": os.getpid(),
    }
    return json.dumps(setup).encode()


def _n_tasks_of_user() -> int:
    """Count the threads of this user, which the kernel counts too; of root it counts none."""
    user, count = os.geteuid(), 0
    if user == 0:
        return 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    count += len(os.listdir(f"/proc/{entry.name}/task"))
    return count


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ask the process that waits to end all; it does not outlive this one in any case."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        kill(process)
        raise ContainmentError("what ran under Landlock did not end when it was told to") from error


# --- what this level can give ---------------------------------------------------------------------
def _check(confinement: Confinement) -> None:
    words = (
        *confinement.environment,
        *confinement.environment.values(),
        confinement.cwd,
        *(bind.source for bind in (*confinement.readable, *confinement.writable)),
    )
    if any("\0" in word for word in words):
        raise UsageError("a path or variable for the sandbox holds a NUL character")
    if any(not name or "=" in name for name in confinement.environment):
        raise UsageError("a variable for the sandbox has no name that can be one")
    for bind in (*confinement.readable, *confinement.writable):
        if not os.path.isabs(bind.source) or not os.path.exists(bind.source):
            raise UsageError(f"no such file or folder to show to the sandbox: {bind.source!r}")
    for asked in _list_refused(confinement):
        raise UsageError(
            f"the Landlock level cannot {asked}",
            hint="bubblewrap can: redrive doctor shows what it lacks here",
        )


def _list_refused(confinement: Confinement) -> Iterator[str]:
    """Yield what is asked for that this level cannot give."""
    binds = (*confinement.readable, *confinement.writable)
    yield from (
        f"show {bind.source!r} at another path, {bind.target!r}"
        for bind in binds
        if os.path.normpath(bind.inside) != os.path.normpath(bind.source)
    )
    yield from (f"make a folder in memory at {path!r}" for path in confinement.scratch)
    writable = [os.path.realpath(bind.source) for bind in confinement.writable]
    readable = [os.path.realpath(bind.source) for bind in confinement.readable]
    system = [*SYSTEM_FOLDERS, *_KERNEL_FOLDERS]
    yield from (
        f"show {path!r}, where the kernel tells of other processes"
        for path in readable
        if any(lies_in(kernel, path) or lies_in(path, kernel) for kernel in _KERNEL_FOLDERS)
    )
    yield from (
        f"keep {inner!r} from being written below {outer!r}"
        for outer in writable
        for inner in (*readable, *system)
        if inner != outer and lies_in(os.path.realpath(inner), outer)
    )
    yield from (
        f"let {path!r} be changed"
        for path in writable
        if any(lies_in(path, os.path.realpath(folder)) for folder in system)
    )
    if confinement.home not in (SCRATCH_HOME, confinement.home_folder):
        yield f"make an empty home at {confinement.home!r}"
    if confinement.home_folder not in (None, confinement.home):
        yield f"show {confinement.home_folder!r} at another path, {confinement.home!r}"
    n_cpus = confinement.n_cpus
    if n_cpus is not None and not 1 <= n_cpus <= min(MAX_CPUS, len(os.sched_getaffinity(0))):
        yield f"show {n_cpus} processors"


def _place(confinement: Confinement, private: str) -> _Placed:
    home = confinement.home_folder or private
    moved = {confinement.home: home, SCRATCH: private}
    environment = {
        "HOME": home,
        "TMPDIR": private,
        **{name: moved.get(value, value) for name, value in confinement.environment.items()},
    }
    writable = (private, home, *(bind.source for bind in confinement.writable))
    shown = (*SYSTEM_FOLDERS, *SYSTEM_FILES, *(bind.source for bind in confinement.readable))
    return _Placed(
        home=private,
        cwd=moved.get(confinement.cwd, confinement.cwd),
        environment=environment,
        rules=(
            *((os.path.realpath(path), _READ) for path in shown if os.path.exists(path)),
            *((os.path.realpath(path), _WRITE) for path in writable),
            *_DEVICES,
        ),
    )
