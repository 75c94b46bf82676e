"""One Python tool's worker, from outside: a confined process that answers one call at a time.

Knows frames on one stream. What comes out of it is hostile: too long an answer, or one that is
none, ends it.

Source: DESIGN.md §6 "each tool's code runs in its own sandboxed worker".
"""

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from redrive import canonical
from redrive.app.trial_messages import (
    FRAME_HEAD_BYTES,
    WorkerAsked,
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
from redrive.errors import RedriveError, UsageError

_FRAME_SLACK_BYTES = 1024 * 1024
_EXIT_S = 1.0
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class WorkerLost(Exception):  # noqa: N818 - what became of it, not a fault of ours
    """A worker that gives no answer any more; its text says why."""


class ToolWorker(Protocol):
    """A process that runs tools of one kind, from `start` to `close`."""

    @property
    def is_alive(self) -> bool:
        """Whether it runs, as far as is known."""
        ...

    async def start(self, timeout_s: float) -> None:
        """Start it; see `PythonWorker.start`."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], timeout_s: float) -> WorkerTold:
        """Let it run one call; see `PythonWorker.call`."""
        ...

    async def close(self) -> None:
        """End it and everything it started. Idempotent."""
        ...


class PythonWorker:
    """One process.

    Args:
        plan: what is started.
        run: the proven sandbox.
        forward: serves its connections to the network.
        most_bytes: of one result.
    """

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
            canonical.take_json(told.result)
        return told
