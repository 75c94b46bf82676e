"""Feeds and reads a confined process within bounds, and ends it with everything it started.

Knows processes, pipes and what a launcher says about the command on its status pipe: one JSON
object a line, `child-pid` (the process below which all of the run lies) and, in the end,
`exit-code`. Does not know which launcher it is, nor whether it confines anything.

The number of processes is held by the kernel: for an ordinary user by RLIMIT_NPROC, some above the
number at which a run is ended; for root by a control group, exactly. Root without one is counted
and ended: a fork bomb overshoots as far as it gets between two looks. Priorities (SCHED_IDLE or
nice 19 for the confined, a real-time one for this thread) were measured not to shorten that.

Source: DESIGN.md §6.
"""

import os
import resource
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import IO

import msgspec

from redrive.errors import ContainmentError
from redrive.sandbox.confinement import ConfinedResult, Confinement, Limits
from redrive.sandbox.control_group import ControlGroup, find_parent, open_group
from redrive.sandbox.disk import DiskBudget, DiskWatch
from redrive.sandbox.processes import list_descendants
from redrive.sandbox.wiring import Kept, Wiring

_TICK_S = 0.02
_END_TIMEOUT_S = 5.0
_CHUNK_BYTES = 65536
# Between the number of processes that ends a run and the one at which the kernel refuses more: a
# shell that is refused exits with a code of its own, which could read as an answer.
_PROCESS_MARGIN = 256
_FIRST_SIGNAL_CODE = 128
LIMITS_REFUSED = 125


class Status(msgspec.Struct, frozen=True, rename="kebab"):
    """What a launcher says of the command."""

    child_pid: int | None = None
    exit_code: int | None = None


class Launched(msgspec.Struct, frozen=True):
    """A launcher that was started.

    Args:
        name: what messages call it.
        process: the launcher itself, with pipes as input and outputs.
        status: the reading end of what it says of the command.
        end: ends it with everything it started; called at most once while it runs.
        refusal: with this at the end of stderr and exit code 125, it did not start the command; the
            command cannot know it.
    """

    name: str
    process: "subprocess.Popen[bytes]"
    status: IO[bytes]
    end: Callable[["subprocess.Popen[bytes]"], None]
    refusal: bytes = b""


@contextmanager
def on_cpus(n_most: int | None) -> Iterator[None]:
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


def enter_group(stack: ExitStack, n_most: int) -> ControlGroup | None:
    """Open a control group for a run, to be entered before all else; `None` where none holds."""
    parent = find_parent()
    if parent is None:
        return None
    try:
        return stack.enter_context(open_group(parent, n_most))
    except OSError:
        return None


def list_limits(limits: Limits, n_others: int = 0) -> tuple[tuple[int, int], ...]:
    """List limits as `setrlimit` takes them; one that holds already cannot be raised again.

    Args:
        limits: of the run.
        n_others: processes of this user that count as well.
    """
    wanted = (
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_AS, limits.address_space_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, limits.n_open_files),
        (resource.RLIMIT_NPROC, limits.n_processes + _PROCESS_MARGIN + n_others),
    )
    held = ((kind, value, resource.getrlimit(kind)[1]) for kind, value in wanted)
    return tuple(
        (kind, value if hard == resource.RLIM_INFINITY else min(value, hard))
        for kind, value, hard in held
    )


def disk_budgets(confinement: Confinement) -> tuple[DiskBudget, ...]:
    """Say what the folders of the host that a process writes may take."""
    if confinement.limits.disk_bytes is None:
        return ()
    folders = [bind.source for bind in confinement.writable]
    if confinement.home_folder is not None:
        folders.append(confinement.home_folder)
    return (DiskBudget(tuple(folders), confinement.limits.disk_bytes),)


@contextmanager
def sealed(data: bytes) -> Iterator[int]:
    """Give a descriptor to read `data` from, which has no path."""
    descriptor = os.memfd_create("redrive-sandbox")
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def started(
    name: str,
    command: Sequence[str],
    descriptors: Sequence[int],
    end: Callable[["subprocess.Popen[bytes]"], None],
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a launcher with an empty environment, and end it with everything it started.

    Raises:
        ContainmentError: it does not start.
    """
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
        raise ContainmentError(f"{name} does not start: {error}") from error
    try:
        yield process
    finally:
        end(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a launcher at once, with its process group."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Run:
    """One started launcher: moves bytes until all its outputs have ended."""

    def __init__(
        self,
        launched: Launched,
        limits: Limits,
        group: ControlGroup | None,
        wiring: Wiring,
        budgets: Sequence[DiskBudget] = (),
    ) -> None:
        self._launched = launched
        self._process = launched.process
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
            launched.process.stdout: self._stdout,
            launched.process.stderr: self._stderr,
            launched.status: self._status,
        }
        self._selector = selectors.DefaultSelector()
        self._disk = DiskWatch(budgets, lambda: self._last_status().child_pid)
        self._is_timeout = self._is_process_flood = self._is_stopped = False
        self._is_disk_full = False

    def finish(self, stdin: bytes) -> ConfinedResult:
        """Feed and read it to its end.

        Raises:
            ContainmentError: it did not start the command, or did not end.
        """
        with self._selector, self._disk:
            for source in self._sources:
                self._selector.register(source, selectors.EVENT_READ)  # type: ignore[arg-type]
            self._offer(memoryview(stdin))
        self._process.wait()
        # What was refused a process may have answered otherwise than it would have; what filled
        # the disk just before it ended did so too.
        self._is_process_flood |= self._group is not None and self._group.has_refused()
        self._is_disk_full |= self._disk.look()
        if self._is_ended:
            return self._result(None)
        code = self._last_status().exit_code
        is_refusal = code == LIMITS_REFUSED and self._is_refused()
        if code is None or is_refusal:
            said = bytes(self._stderr.data).removesuffix(self._launched.refusal)
            words = " ".join(said.decode("utf-8", "replace").split())
            raise ContainmentError(
                f"{self._launched.name} did not start the command: {words or 'it gave no reason'}",
                hint="redrive doctor shows what the sandbox can do here",
            )
        return self._result(code)

    def _is_refused(self) -> bool:
        mark = self._launched.refusal
        return bool(mark) and bytes(self._stderr.data[-len(mark) :]) == mark

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
                self._launched.end(self._process)
                deadline_s = time.monotonic() + _END_TIMEOUT_S

    def _must_end(self) -> bool:
        self._is_timeout = time.monotonic() > self._started_s + self._limits.wall_s
        if self._group is not None:
            self._is_process_flood = self._group.has_refused()
        else:
            self._is_process_flood = self._n_processes() > self._limits.n_processes
        self._is_stopped = self._stop is not None and self._stop.is_set()
        self._is_disk_full = self._disk.is_full
        return self._is_ended

    @property
    def _is_ended(self) -> bool:
        """Say whether the process was ended from here, or what it answered is no answer."""
        return any((self._is_timeout, self._is_process_flood, self._is_disk_full, self._is_stopped))

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

    def _last_status(self) -> Status:
        found = Status()
        for line in self._status.data.splitlines():
            with suppress(msgspec.DecodeError):
                status = msgspec.json.decode(line, type=Status)
                found = Status(
                    found.child_pid if status.child_pid is None else status.child_pid,
                    found.exit_code if status.exit_code is None else status.exit_code,
                )
        return found

    def _n_processes(self) -> int:
        root = self._last_status().child_pid
        if root is None:
            return 0
        # A flood leaves no time to count it all.
        return sum(1 for _ in islice(list_descendants(root), self._limits.n_processes + 1))

    def _result(self, code: int | None) -> ConfinedResult:
        by_signal = None if code is None or code <= _FIRST_SIGNAL_CODE else code - 128
        return ConfinedResult(
            exit_code=code,
            signal=by_signal if by_signal in set(signal.valid_signals()) else None,
            stdout=bytes(self._stdout.data),
            stderr=bytes(self._stderr.data),
            is_timeout=self._is_timeout,
            is_process_flood=self._is_process_flood and not self._is_timeout,
            is_disk_full=self._is_disk_full and not (self._is_timeout or self._is_process_flood),
            is_stopped=self._is_stopped
            and not (self._is_timeout or self._is_process_flood or self._is_disk_full),
            is_output_cut=self._stdout.is_cut or self._stderr.is_cut,
            wall_s=time.monotonic() - self._started_s,
        )
