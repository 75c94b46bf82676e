"""Runs workers: hands them sessions, answers what they ask, and kills what does not end.

Knows processes, pipes and the watchdog. Must not know policies beyond their number, nor reports.
One thread serves all workers, so that what they ask is answered in one place. A worker that is
killed is blamed on the policy that it was judging: the session is replayed without it, and the
others lose nothing.

Source: DESIGN.md §7 "Purity".
"""

import mmap
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO

from msgspec.structs import replace

from redrive.app.policy_messages import (
    NOBODY,
    Answer,
    Finished,
    Load,
    Loaded,
    Outside,
    Run,
    decode_from_worker,
    frame,
    split_frame,
    split_policy_word,
)
from redrive.app.policy_worker import STATUS_BYTES
from redrive.compare.policy_report import PolicyFault
from redrive.errors import RedriveError

TIMEOUT_S = 10.0
MEMORY_BYTES = 3 * 2**29
_START_TIMEOUT_S = 60.0
_TICK_S = 0.25
_IDLE_FACTOR = 6  # wall time that a worker may take for one judgement that uses no processor
_OWN_FACTOR = 360  # wall time between judgements, in which redrive reads and folds
_READ_BYTES = 1 << 18

Answering = Callable[[Outside], Answer]


class _Worker:
    """One worker process and what it is doing."""

    def __init__(self, load: Load) -> None:
        self.status_file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self.status_file.truncate(STATUS_BYTES)
        descriptor = self.status_file.fileno()
        self.status = memoryview(mmap.mmap(descriptor, STATUS_BYTES)).cast("q")
        lifeline, self._lifeline = os.pipe()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "redrive.app.policy_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            pass_fds=(descriptor, lifeline),
            env=_environment(),
        )
        os.close(lifeline)
        self.buffer = bytearray()
        self.run: Run | None = None
        self.seen = -1
        self.since = time.monotonic()
        self.cpu_since = 0.0
        self.send(replace(load, status_fd=descriptor, lifeline_fd=lifeline))

    def send(self, message: Load | Run | Answer) -> None:
        """Write a message; a dead worker is found when it is read from."""
        assert self.process.stdin is not None  # noqa: S101 - a pipe, as asked for
        try:
            self.process.stdin.write(frame(message))
            self.process.stdin.flush()
        except BrokenPipeError:
            return
        self.rest()

    def rest(self) -> None:
        """Begin a new wait: what came before does not count."""
        self.since, self.cpu_since = time.monotonic(), _cpu_seconds(self.process.pid)

    def is_stuck(self, timeout_s: float) -> bool:
        """Say whether it has been at one judgement for too long, by its own processor time.

        A machine that is busy with other work slows a judgement down without using processor time
        here, so that wall time alone decides only after six times as long.
        """
        if self.status[0] != self.seen:
            self.seen = self.status[0]
            self.rest()
            return False
        elapsed = time.monotonic() - self.since
        if self.judged()[0] == NOBODY:  # at redrive's own work, which grows with the session
            return elapsed >= timeout_s * _OWN_FACTOR
        if elapsed < timeout_s:
            return False
        used = _cpu_seconds(self.process.pid) - self.cpu_since
        return used >= timeout_s / 2 or elapsed >= timeout_s * _IDLE_FACTOR

    def judged(self) -> tuple[int, int]:
        """Give the number of the policy whose code is running, or `NOBODY`, and the event's seq."""
        return split_policy_word(self.status[0])

    def stop(self) -> None:
        """Kill it, and close what it holds."""
        self.process.kill()
        self.process.wait()
        os.close(self._lifeline)
        for pipe in (self.process.stdin, self.process.stdout, self.log, self.status_file):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def tail(self) -> str:
        """Give the last line that it wrote to stderr."""
        self.log.seek(0)
        lines = self.log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""


def _environment() -> dict[str, str]:
    """Give a worker what it needs to start and no more: a fixed hash seed, no time zone."""
    kept = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")
    measured = tuple(name for name in os.environ if name.startswith(("COV_", "COVERAGE_")))
    chosen = {name: os.environ[name] for name in (*kept, *measured) if name in os.environ}
    return chosen | {"PYTHONHASHSEED": "0", "TZ": "UTC", "LANG": "C.UTF-8", "PYTHONUTF8": "1"}


def _cpu_seconds(pid: int) -> float:
    """Give the processor time of a process; 0 where the platform does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class PolicyPool:
    """Workers for one set of policies.

    Args:
        load: what each worker is told at its start.
        n_workers: how many at most.
        timeout_s: processor time of one judgement.
        answer: answers what workers ask.
    """

    def __init__(self, load: Load, *, n_workers: int, timeout_s: float, answer: Answering) -> None:
        self._load = load
        self._n_workers = n_workers
        self._timeout_s = timeout_s
        self._answer = answer
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self.loaded: Loaded | None = None

    def start(self) -> Loaded:
        """Start the first worker and load the policies in it.

        Raises:
            RedriveError: the worker does not start.
        """
        self._add_worker()
        assert self.loaded is not None  # noqa: S101 - set by _add_worker
        return self.loaded

    def close(self) -> None:
        """Kill every worker."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()
        self._selector.close()

    def replay(
        self, sessions: Sequence[str], *, inline: Mapping[str, Run] | None = None
    ) -> Iterator[Finished]:
        """Replay sessions, and yield each result as it comes, in any order.

        Args:
            sessions: ids, each once.
            inline: id → a run that brings its own events.
        """
        known = inline or {}
        waiting = deque(known.get(name, Run(name, number)) for number, name in enumerate(sessions))
        left = len(waiting)
        blamed: dict[int, dict[int, PolicyFault]] = {}
        while left:
            while waiting and (worker := self._idle_worker(len(waiting))) is not None:
                self._begin(worker, waiting.popleft())
            for worker in self._ready():
                message = self._read(worker)
                if isinstance(message, Outside):
                    worker.send(self._answer(message))
                    for other in self._workers:
                        other.rest()  # whoever asked meanwhile had to wait for this answer
                elif isinstance(message, Finished):
                    worker.run = None
                    left -= 1
                    yield _with_blame(message, blamed.pop(message.number, {}))
            for worker in [w for w in self._workers if w.run is not None]:
                if worker.process.poll() is None and not worker.is_stuck(self._timeout_s):
                    continue
                again = self._blame(worker, blamed)
                if isinstance(again, Run):
                    waiting.appendleft(again)
                    continue
                left -= 1
                yield again

    def _begin(self, worker: _Worker, run: Run) -> None:
        worker.run = run
        worker.status[0] = 0
        worker.send(run)

    def _idle_worker(self, n_waiting: int) -> _Worker | None:
        idle = next((w for w in self._workers if w.run is None), None)
        if idle is None and len(self._workers) < self._n_workers and n_waiting:
            return self._add_worker()
        return idle

    def _add_worker(self) -> _Worker:
        """Start a worker; a policy that it does not survive loading is left out of the next."""
        while True:
            worker = _Worker(self._load)
            try:
                message = self._wait_for_start(worker)
            except BaseException:
                worker.stop()
                raise
            if message is not None:
                break
            self._blame_load(worker)
        assert worker.process.stdout is not None  # noqa: S101 - a pipe, as asked for
        assert isinstance(message, Loaded)  # noqa: S101 - the first message of a worker
        self.loaded = message
        self._selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        self._workers.append(worker)
        return worker

    def _wait_for_start(self, worker: _Worker) -> Loaded | Outside | Finished | None:
        """Wait for what a worker says first; `None` if it died, or is stuck."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        assert worker.process.stdout is not None  # noqa: S101 - a pipe, as asked for
        os.set_blocking(worker.process.stdout.fileno(), False)
        while (message := self._read(worker)) is None:
            is_late = worker.judged()[0] == NOBODY and time.monotonic() > deadline
            if worker.process.poll() is not None or worker.is_stuck(self._timeout_s) or is_late:
                return None
            time.sleep(0.005)
        return message

    def _blame_load(self, worker: _Worker) -> None:
        """Stop a worker, and note the policy that it was loading as broken.

        Raises:
            RedriveError: it was loading none.
        """
        code, policy, tail = worker.process.poll(), worker.judged()[0], worker.tail()
        worker.stop()
        if policy < 0 or policy in self._load.broken:
            raise RedriveError(f"a policy worker did not start: {tail or 'no answer'}")
        fault = self._fault(code, " while it was loaded")
        self._load = replace(self._load, broken={**self._load.broken, policy: fault})

    def _fault(self, code: int | None, when: str = "") -> PolicyFault:
        """Tell of a policy that had to be killed (no exit code), or whose process died."""
        if code is None:
            return PolicyFault("watchdog", f"did not end within {self._timeout_s:g} s{when}", "")
        return PolicyFault("limits", f"its process died ({_told(code)}){when}", "")

    def _ready(self) -> list[_Worker]:
        return [key.data for key, _ in self._selector.select(_TICK_S)]

    def _read(self, worker: _Worker) -> Loaded | Outside | Finished | None:
        assert worker.process.stdout is not None  # noqa: S101 - a pipe, as asked for
        try:
            part = os.read(worker.process.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            part = b""
        worker.buffer += part
        data = split_frame(worker.buffer)
        return None if data is None else decode_from_worker(data)

    def _blame(self, worker: _Worker, blamed: dict[int, dict[int, PolicyFault]]) -> Run | Finished:
        """Kill a worker; give its session again, without the policy that it was judging.

        Where it was judging nothing, no policy is to blame: the session cannot be replayed.
        """
        run = worker.run
        assert run is not None  # noqa: S101 - only busy workers are blamed
        code = worker.process.poll()
        policy, seq = worker.judged()
        assert worker.process.stdout is not None  # noqa: S101 - a pipe, as asked for
        self._selector.unregister(worker.process.stdout)
        self._workers.remove(worker)
        tail = worker.tail()
        worker.stop()
        if policy < 0:
            what = tail or ("no answer" if code is None else _told(code))
            error = f"a policy worker broke down outside of any policy: {what}"
            return Finished(run.session_id, run.number, error=error)
        place = f"seq {seq}" if seq >= 0 else "its start"
        event_ref = f"{run.session_id}#{place}" if seq >= 0 else None
        fault = replace(self._fault(code), session_id=run.session_id, event_ref=event_ref)
        blamed.setdefault(run.number, {})[policy] = fault
        return replace(run, dropped={**run.dropped, policy: f"{fault.what}, at {place}"})


def _told(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit {code}"


def _with_blame(finished: Finished, faults: Mapping[int, PolicyFault]) -> Finished:
    outcomes = list(finished.outcomes)
    for number, fault in faults.items():
        if number < len(outcomes):
            known = outcomes[number]
            outcomes[number] = replace(
                known, faults=(*known.faults, fault), n_faults=known.n_faults + 1
            )
    return replace(finished, outcomes=tuple(outcomes))
