"""Starts bubblewrap, feeds and reads it within bounds, and ends it with everything inside.

Knows processes and pipes. Does not know whether this bubblewrap confines anything: callers go
through `bubblewrap.run_confined`, which has that proven first.

Nothing of the caller reaches the process: bubblewrap starts with an empty environment (its own
stays readable in `/proc/1/environ`), its arguments come through a descriptor that it closes (they
would stay readable in `/proc/1/cmdline`), and no other descriptor is inherited but the one that a
`Wiring` names.

The number of processes is held by the kernel: for an ordinary user by RLIMIT_NPROC, some above the
number at which a run is ended; for root by a control group, exactly. Root without one is counted
and ended: a fork bomb overshoots as far as it gets between two looks. Priorities (SCHED_IDLE or
nice 19 for the confined, a real-time one for this thread) were measured not to shorten that.

Source: DESIGN.md §6; man page of bwrap(1).
"""

import os
import platform
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import IO

import msgspec

from redrive.errors import ContainmentError, UsageError
from redrive.sandbox.confinement import ConfinedResult, Confinement, Limits, dump_arguments
from redrive.sandbox.control_group import ControlGroup, find_parent, open_group
from redrive.sandbox.system_calls import dump_filter
from redrive.sandbox.wiring import UNWIRED, Kept, Wiring, take_channel

_TICK_S = 0.02
_END_TIMEOUT_S = 5.0
_CHUNK_BYTES = 65536
# Between the number of processes that ends a run and the one at which the kernel refuses more: a
# shell that is refused exits with a code of its own, which could read as an answer.
_PROCESS_MARGIN = 256
# Bubblewrap outside, which waits, and inside, which is the first process there.
_N_OWN_PROCESSES = 2
_FIRST_SIGNAL_CODE = 128
_LIMITS_REFUSED = 125
_LIMITS_MARK = b"redrive: the limits were refused\n"
# Limits are set inside, where the user's other processes do not count. bash knows -u, dash and
# busybox -p. Not 2 on failure: that is a decision to those who run hooks.
_LIMITS_SCRIPT = """
{ ulimit -c 0 && ulimit -t "$1" && ulimit -v "$2" && ulimit -f "$3" && ulimit -n "$4" &&
  { ulimit -u "$5" 2>/dev/null || ulimit -p "$5"; }; } ||
  { echo 'redrive: the limits were refused' >&2; exit 125; }
shift 5
exec "$@"
"""


# Where glibc counts processors; nothing else of /sys is there.
_CPUS_ONLINE = "/sys/devices/system/cpu/online"


class _Status(msgspec.Struct, frozen=True, rename="kebab"):
    child_pid: int | None = None
    exit_code: int | None = None


@cache
def read_options(bubblewrap: str) -> str:
    """Read the help text of a bubblewrap, which names the options it knows; empty if it fails."""
    try:
        done = subprocess.run(
            [bubblewrap, "--help"], env={}, capture_output=True, timeout=_END_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def launch(
    bubblewrap: str,
    argv: Sequence[str],
    confinement: Confinement,
    stdin: bytes,
    wiring: Wiring = UNWIRED,
) -> ConfinedResult:
    """Run a command under a bubblewrap of which nothing is proven.

    An exception that comes in between, such as an interrupt, ends the command and all it started.

    Args:
        bubblewrap: path of the program.
        argv: the command and its arguments, looked up inside.
        confinement: what it has.
        stdin: what it reads; then its input is closed.
        wiring: see `Wiring`.

    Raises:
        UsageError: the confinement, the command or the channel is not what it must be.
        ContainmentError: bubblewrap did not start the command, or did not end.
    """
    with ExitStack() as stack:
        channel = take_channel(stack, wiring.channel)
        if not argv or any("\0" in word for word in argv):
            raise UsageError("a command for the sandbox is empty or holds a NUL character")
        arguments = dump_arguments(confinement, read_options(bubblewrap))
        command = ("/bin/sh", "-c", _LIMITS_SCRIPT, "sh", *_limit_words(confinement.limits), *argv)
        # Entered first, so that it is removed when all else has ended.
        group = _enter_group(stack, confinement.limits)
        read_end, write_end = os.pipe()
        status = stack.enter_context(os.fdopen(read_end, "rb", buffering=0))
        # Closed as soon as the child has its own, or the end would never be seen.
        with os.fdopen(write_end, "wb"), ExitStack() as handed:
            descriptors = [write_end, *channel]
            words = ["--json-status-fd", str(write_end)]
            for option, data, path in _files(confinement):
                descriptors.append(handed.enter_context(_sealed(data)))
                words += (option, str(descriptors[-1]), *path)
            sealed = "\0".join((*words, *arguments)).encode("utf-8", "surrogateescape")
            descriptors.append(handed.enter_context(_sealed(sealed)))
            start = (bubblewrap, "--args", str(descriptors[-1]), "--", *command)
            joining = () if group is None else group.joining()
            with _on_cpus(confinement.n_cpus):
                process = stack.enter_context(_started((*joining, *start), descriptors))
        if wiring.channel is not None:
            wiring.channel.close()
        return _Run(process, status, confinement.limits, group, wiring).finish(stdin)


def _files(confinement: Confinement) -> Iterator[tuple[str, bytes, tuple[str, ...]]]:
    """Yield what bubblewrap reads beside its arguments: option, bytes, path inside if it has one.

    They come before the arguments, which make the root read-only in the end.
    """
    refused_calls = dump_filter(platform.machine())
    if refused_calls is not None:
        yield "--seccomp", refused_calls, ()
    if confinement.n_cpus is not None:
        shown = f"0-{confinement.n_cpus - 1}\n" if confinement.n_cpus > 1 else "0\n"
        yield "--ro-bind-data", shown.encode(), (_CPUS_ONLINE,)


@contextmanager
def _on_cpus(n_most: int | None) -> Iterator[None]:
    """Let this thread, and so what it starts meanwhile, run on the first processors only."""
    if n_most is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:n_most])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _enter_group(stack: ExitStack, limits: Limits) -> ControlGroup | None:
    parent = find_parent()
    if parent is None:
        return None
    try:
        return stack.enter_context(open_group(parent, limits.n_processes + _N_OWN_PROCESSES))
    except OSError:
        return None


def _limit_words(limits: Limits) -> Iterator[str]:
    wanted = (
        (resource.RLIMIT_CPU, limits.cpu_s, 1),
        (resource.RLIMIT_AS, limits.address_space_bytes, 1024),
        (resource.RLIMIT_FSIZE, limits.file_bytes, 512),
        (resource.RLIMIT_NOFILE, limits.n_open_files, 1),
        (resource.RLIMIT_NPROC, limits.n_processes + _PROCESS_MARGIN, 1),
    )
    for kind, value, unit in wanted:
        _, hard = resource.getrlimit(kind)
        # A limit that holds already cannot be raised again.
        yield str((value if hard == resource.RLIM_INFINITY else min(value, hard)) // unit)


@contextmanager
def _sealed(data: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("redrive-sandbox")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _started(
    command: Sequence[str], descriptors: Sequence[int]
) -> Iterator["subprocess.Popen[bytes]"]:
    try:
        process = subprocess.Popen(
            command,
            bufsize=0,
            cwd="/",
            env={},
            pass_fds=descriptors,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        raise ContainmentError(f"bubblewrap does not start: {error}") from error
    try:
        yield process
    finally:
        _end(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill bubblewrap; the kernel then ends every process of its namespace."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class _Run:
    """One started bubblewrap: moves bytes until all its outputs have ended."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        status: IO[bytes],
        limits: Limits,
        group: ControlGroup | None,
        wiring: Wiring,
    ) -> None:
        self._process = process
        self._limits = limits
        self._group = group
        self._stop = wiring.stop
        self._started_s = time.monotonic()
        self._stdout, self._stderr = (
            Kept(limits.output_bytes, pass_on, wiring.passed_bytes)
            for pass_on in (wiring.on_stdout, wiring.on_stderr)
        )
        self._status = Kept(_CHUNK_BYTES)
        self._sources = {
            process.stdout: self._stdout,
            process.stderr: self._stderr,
            status: self._status,
        }
        self._selector = selectors.DefaultSelector()
        self._is_timeout = self._is_process_flood = self._is_stopped = False

    def finish(self, stdin: bytes) -> ConfinedResult:
        with self._selector:
            for source in self._sources:
                self._selector.register(source, selectors.EVENT_READ)  # type: ignore[arg-type]
            self._offer(memoryview(stdin))
        self._process.wait()
        # What was refused a process may have answered otherwise than it would have.
        self._is_process_flood |= self._group is not None and self._group.has_refused()
        if self._is_ended:
            return self._result(None)
        code = self._last_status().exit_code
        if code is None or (code == _LIMITS_REFUSED and self._stderr.data == _LIMITS_MARK):
            words = " ".join(self._stderr.data.decode("utf-8", "replace").split())
            raise ContainmentError(
                f"bubblewrap did not start the command: {words or 'it gave no reason'}",
                hint="redrive doctor shows what the sandbox can do here",
            )
        return self._result(code)

    def _offer(self, left: memoryview) -> None:
        """Write `left` and read until every output has ended or the process was ended."""
        stdin = self._process.stdin
        assert stdin is not None  # noqa: S101 - it was asked for
        os.set_blocking(stdin.fileno(), False)
        self._selector.register(stdin, selectors.EVENT_WRITE)
        deadline_s = self._started_s + self._limits.wall_s
        while self._selector.get_map():
            for key, _ in self._selector.select(_TICK_S):
                if key.fileobj is stdin:
                    left = self._write(stdin, left)
                else:
                    self._read(key)
            if self._is_ended:
                if time.monotonic() > deadline_s:
                    raise ContainmentError("the sandbox did not end when it was killed")
            elif self._must_end():
                self._hasten()
                _end(self._process)
                deadline_s = time.monotonic() + _END_TIMEOUT_S

    def _must_end(self) -> bool:
        self._is_timeout = time.monotonic() > self._started_s + self._limits.wall_s
        if self._group is not None:
            self._is_process_flood = self._group.has_refused()
        else:
            self._is_process_flood = self._n_processes() > self._limits.n_processes
        self._is_stopped = self._stop is not None and self._stop.is_set()
        return self._is_ended

    @property
    def _is_ended(self) -> bool:
        """Say whether the process was ended from here, or what it answered is no answer."""
        return self._is_timeout or self._is_process_flood or self._is_stopped

    def _hasten(self) -> None:
        """Let the first process die before the others have multiplied further, where allowed.

        It ends them all, but only once it is its turn among them.
        """
        root = self._last_status().child_pid
        if root is not None:
            with suppress(PermissionError, ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, root, -20)

    def _write(self, stdin: IO[bytes], left: memoryview) -> memoryview:
        try:
            left = left[os.write(stdin.fileno(), left) :]
        except BlockingIOError:
            return left
        except BrokenPipeError:
            left = left[:0]
        if not left:
            self._selector.unregister(stdin)
            stdin.close()
        return left

    def _read(self, key: selectors.SelectorKey) -> None:
        chunk = os.read(key.fd, _CHUNK_BYTES)
        if chunk:
            self._sources[key.fileobj].take(chunk)  # type: ignore[index]
        else:
            self._selector.unregister(key.fileobj)

    def _last_status(self) -> _Status:
        found = _Status()
        for line in self._status.data.splitlines():
            with suppress(msgspec.DecodeError):
                status = msgspec.json.decode(line, type=_Status)
                found = _Status(
                    found.child_pid if status.child_pid is None else status.child_pid,
                    found.exit_code if status.exit_code is None else status.exit_code,
                )
        return found

    def _n_processes(self) -> int:
        root = self._last_status().child_pid
        return 0 if root is None else _count_below(root, self._limits.n_processes + 1)

    def _result(self, code: int | None) -> ConfinedResult:
        by_signal = None if code is None or code <= _FIRST_SIGNAL_CODE else code - 128
        return ConfinedResult(
            exit_code=code,
            signal=by_signal if by_signal in set(signal.valid_signals()) else None,
            stdout=bytes(self._stdout.data),
            stderr=bytes(self._stderr.data),
            is_timeout=self._is_timeout,
            is_process_flood=self._is_process_flood and not self._is_timeout,
            is_stopped=self._is_stopped and not (self._is_timeout or self._is_process_flood),
            is_output_cut=self._stdout.is_cut or self._stderr.is_cut,
            wall_s=time.monotonic() - self._started_s,
        )


def _count_below(root: int, enough: int) -> int:
    """Count the descendants of a process, up to `enough`: a flood leaves no time to count it all.

    Orphans stay below the root, which is its namespace's first process.
    """
    count, open_pids = 0, [root]
    while open_pids and count < enough:
        children = _children(open_pids.pop())
        count += len(children)
        open_pids += children
    return count


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found
