"""The workers of one run, from outside: a confined process for each tool, started when called.

Knows workers and grants. Must not know who calls or what is recorded. What comes out of a worker is
hostile: too long an answer, or one that is none, ends it.

Source: DESIGN.md §6 "each tool's code runs in its own sandboxed worker with only the declared
grants".
"""

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from redrive import canonical
from redrive.app.trial_calls import Ran
from redrive.app.trial_confinement import (
    PROXY_PORT,
    WORKSPACE,
    RunPlace,
    confine,
    python_command,
)
from redrive.app.trial_forwarder import forward
from redrive.app.trial_grants import is_below_written, show_grants
from redrive.app.trial_messages import (
    FRAME_HEAD_BYTES,
    CallTold,
    WorkerAsked,
    WorkerSetup,
    WorkerTold,
    dump_frame,
    parse_message,
)
from redrive.app.trial_processes import (
    ProcessEnd,
    ProcessPlan,
    RunConfined,
    describe_end,
    is_stream,
    run_process,
)
from redrive.app.trial_state import RunState
from redrive.audit.workflow import NO_GRANTS, Grants, ToolSpec
from redrive.errors import RedriveError, UsageError
from redrive.replay.trial_values import DeniedCall

CALL_S = 300.0
"""How long one call may take; a run's own wall time may be shorter."""
SIMULATORS = "simulators"
_MODULE = "redrive.app.trial_worker"
_FRAME_SLACK_BYTES = 1024 * 1024
_EXIT_S = 1.0
_TRIES = 5
_MAX_DENIED = 1000
_PROXY_NAMES = ("http_proxy", "https_proxy", "all_proxy")

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WorkerLost(Exception):  # noqa: N818 - what became of it, not a fault of ours
    """A worker that gives no answer any more; its text says why."""


class Workers:
    """Runs the tools of one run; see `redrive.app.trial_calls.ToolRunner`.

    Args:
        place: of the run.
        run: the proven sandbox.
        state: of the run.
        tools: all that may run, to tell whose grants lie in whose.
        simulated: ids of tools of which the simulator is held.
        deadline_s: when the run ends, on the monotonic clock.
        seed: of the run.
    """

    def __init__(
        self,
        place: RunPlace,
        run: RunConfined,
        state: RunState,
        *,
        tools: tuple[ToolSpec, ...],
        simulated: frozenset[str],
        deadline_s: float,
        seed: int,
    ) -> None:
        self._place = place
        self._run_confined = run
        self._state = state
        self._tools = {tool.id: tool for tool in tools}
        self._simulated = simulated
        self._deadline_s = deadline_s
        self._seed = seed
        self._denied: list[DeniedCall] = []
        self._workers: dict[str, _Worker] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._frames = count(1)
        self._still = _Stillness()
        self.made: set[str] = set()

    async def run(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> Ran:
        """Run a tool in its worker; one that is gone is started anew."""
        told = await self._run(tool, arguments)
        return Ran(told, self.take_denied())

    def take_denied(self) -> tuple[DeniedCall, ...]:
        """Take what workers tried and may not, since the last time."""
        taken, self._denied = tuple(self._denied), []
        return taken

    async def _run(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> CallTold:
        key = SIMULATORS if tool.id in self._simulated else tool.id
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                told = await self._call(key, tool, arguments)
            except WorkerLost as lost:
                await self._drop(key)
                return CallTold(error=("WorkerLost", f"tool {tool.id}: {lost}"))
            except RedriveError as error:
                return CallTold(error=(type(error).__name__, f"tool {tool.id}: {error.message}"))
        self._denied += (DeniedCall(name, f"called by the tool {tool.id}") for name in told.denied)
        return CallTold(told.result, told.error)

    async def _call(self, key: str, tool: ToolSpec, arguments: Mapping[str, Any]) -> WorkerTold:
        for _ in range(_TRIES):
            worker = await self._get(key, tool)
            async with self._still.moving():
                if self._workers.get(key) is worker:  # it was not ended for another one meanwhile
                    return await worker.call(tool.id, arguments, self._left_s())
        raise WorkerLost("its worker had to be ended again and again")

    async def close(self) -> None:
        """End every worker, and wait until it is gone."""
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))

    def _left_s(self) -> float:
        return max(0.0, min(CALL_S, self._deadline_s - time.monotonic()))

    async def _get(self, key: str, tool: ToolSpec) -> "_Worker":
        worker = self._workers.get(key)
        if worker is not None and worker.is_alive:
            return worker
        if worker is not None:
            await self._drop(key)
        others = [other.grants for name, other in self._tools.items() if name != tool.id]
        if key == SIMULATORS or not is_below_written(tool.grants, others):
            # A module may do something as it is imported.
            async with self._still.moving():
                return await self._start(key, tool)
        # While its paths are looked up, nobody may swap them.
        async with self._still.still():
            writers = [name for name in self._workers if self._tools.get(name, tool).grants.write]
            for name in writers:
                await self._drop(name)
            return await self._start(key, tool)

    async def _drop(self, key: str) -> None:
        worker = self._workers.pop(key, None)
        if worker is not None:
            await worker.close()

    async def _start(self, key: str, tool: ToolSpec) -> "_Worker":
        plan = self._plan(key, tool)
        network = () if key == SIMULATORS else tool.grants.network
        passing = partial(forward, granted=network, on_denied=self._deny_place)
        worker = _Worker(plan, self._run_confined, passing, self._place.limits.output_bytes)
        self._workers[key] = worker
        await worker.start(self._left_s())
        return worker

    def _deny_place(self, place: str, reason: str) -> None:
        if len(self._denied) < _MAX_DENIED:
            self._denied.append(DeniedCall(place, reason))

    def _plan(self, key: str, tool: ToolSpec) -> ProcessPlan:
        is_simulated = key == SIMULATORS
        grants = NO_GRANTS if is_simulated else tool.grants
        frame = self._place.folder / f"frame-{next(self._frames)}"
        shown = show_grants(grants, self._place.workspace, frame, WORKSPACE)
        self.made.update(shown.made)
        setup = WorkerSetup(
            channel=0,
            code=self._place.code,
            tools=tuple(sorted(self._simulated)) if is_simulated else (tool.id,),
            is_simulated=is_simulated,
            port=PROXY_PORT if grants.network else 0,
            most_bytes=self._place.limits.output_bytes,
        )
        confinement = confine(
            self._place,
            wall_s=self._deadline_s - time.monotonic(),
            seed=self._seed,
            readable=shown.readable,
            writable=shown.writable,
            environment=self._environment(grants),
            cwd=WORKSPACE,
        )
        return ProcessPlan(python_command(_MODULE), confinement, setup)

    def _environment(self, grants: Grants) -> Mapping[str, str]:
        caller = self._place.caller
        found = {name: caller[name] for name in grants.secrets if name in caller}
        for name in grants.secrets:
            if name not in caller:
                self._state.note(f"the variable {name}, which a tool is granted, is not set")
        if grants.network:
            url = f"http://127.0.0.1:{PROXY_PORT}"
            for name in _PROXY_NAMES:
                found |= {name: url, name.upper(): url}
        return found


class _Stillness:
    """Lets calls run at the same time, and someone wait until none does."""

    def __init__(self) -> None:
        self._n_moving = 0
        self._changed = asyncio.Condition()

    def moving(self) -> "_Moving":
        return _Moving(self)

    def still(self) -> "_Still":
        return _Still(self)

    async def begin(self) -> None:
        async with self._changed:
            self._n_moving += 1

    async def end(self) -> None:
        async with self._changed:
            self._n_moving -= 1
            self._changed.notify_all()

    async def wait(self) -> None:
        await self._changed.acquire()
        try:
            await self._changed.wait_for(lambda: not self._n_moving)
        except BaseException:
            self._changed.release()
            raise

    def leave(self) -> None:
        self._changed.release()


class _Moving:
    def __init__(self, still: _Stillness) -> None:
        self._still = still

    async def __aenter__(self) -> None:
        await self._still.begin()

    async def __aexit__(self, *_: object) -> None:
        await self._still.end()


class _Still:
    def __init__(self, still: _Stillness) -> None:
        self._still = still

    async def __aenter__(self) -> None:
        await self._still.wait()

    async def __aexit__(self, *_: object) -> None:
        self._still.leave()


class _Worker:
    """One process."""

    def __init__(
        self,
        plan: ProcessPlan,
        run: RunConfined,
        forward: Callable[[socket.socket], Awaitable[None]],
        most_bytes: int,
    ) -> None:
        self._plan = plan
        self._run_confined = run
        self._forward = forward
        self._most_bytes = most_bytes * 2 + _FRAME_SLACK_BYTES  # base64, and what is around it
        self._stop = threading.Event()
        self._streams: asyncio.Future[_Streams] = asyncio.get_running_loop().create_future()
        self._running: asyncio.Task[ProcessEnd] | None = None
        self._numbers = count(1)

    @property
    def is_alive(self) -> bool:
        """Whether it runs, as far as is known."""
        return self._running is not None and not self._running.done()

    async def start(self, timeout_s: float) -> None:
        """Start it, and wait until it has its tool.

        Raises:
            WorkerLost: it came to nothing.
            RedriveError: the sandbox refuses, or the module's own error.
        """
        self._running = asyncio.create_task(
            run_process(self._plan, self._run_confined, self._serve, self._stop)
        )
        told = await self._take(0, timeout_s)
        if told.error is not None:
            raise UsageError(f"its worker did not start: {told.error[0]}: {told.error[1]}")

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> WorkerTold:
        """Let it run one call; one at a time.

        Raises:
            WorkerLost: it ended, took too long, or said what is no answer.
        """
        number = next(self._numbers)
        frame = dump_frame(WorkerAsked(number, tool, canonical.encode(dict(arguments))))
        return await self._take(number, timeout_s, frame)

    async def close(self) -> None:
        """End it."""
        self._stop.set()
        if self._running is not None:
            await asyncio.gather(self._running, return_exceptions=True)
        if self._streams.done() and not self._streams.cancelled():
            self._streams.result()[1].close()

    async def _serve(self, sock: socket.socket) -> None:
        if not is_stream(sock):
            await self._forward(sock)
        elif self._streams.done():
            sock.close()
        else:
            self._streams.set_result(await asyncio.open_connection(sock=sock))

    async def _take(self, number: int, timeout_s: float, frame: bytes = b"") -> WorkerTold:
        taking = asyncio.create_task(self._exchange(number, frame))
        assert self._running is not None  # noqa: S101 - started before it is asked
        try:
            await asyncio.wait(
                (taking, self._running),
                timeout=timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not taking.done() and self._running.done():
                # What it said last may still be on its way.
                await asyncio.wait((taking,), timeout=_EXIT_S)
        finally:
            taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        if taking.cancelled() or taking.exception() is not None:
            raise WorkerLost(await self._why(taking))
        return taking.result()

    async def _why(self, taking: "asyncio.Task[WorkerTold]") -> str:
        """Say what became of a worker that gave no answer."""
        running = self._running
        assert running is not None  # noqa: S101 - started before it is asked
        if not taking.cancelled():
            await asyncio.wait((running,), timeout=_EXIT_S)
        if running.done():
            error = running.exception()
            if isinstance(error, RedriveError):
                raise error
            if error is not None:
                return f"{type(error).__name__}: {error}"
            return f"its worker is gone: {describe_end(running.result().result)}"
        if taking.cancelled():
            return "it took too long, and was ended"
        return f"its worker said what is no answer: {taking.exception()}"

    async def _exchange(self, number: int, frame: bytes) -> WorkerTold:
        reader, writer = await asyncio.shield(self._streams)
        if frame:
            writer.write(frame)
            with suppress(ConnectionError):
                await writer.drain()
        size = int.from_bytes(await reader.readexactly(FRAME_HEAD_BYTES), "big")
        if size > self._most_bytes:
            raise UsageError(f"{size} bytes are too many")
        told = parse_message(await reader.readexactly(size), WorkerTold)
        if told.number != number:
            raise UsageError(f"it is to another call, {told.number}")
        if (told.result is None) == (told.error is None) and number:
            raise UsageError("it is neither a result nor an error")
        if told.result is not None:
            canonical.decode_value(told.result)
        return told
