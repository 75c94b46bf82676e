"""The workers of one run, from outside: a confined process for each tool, started when called.

Knows which worker is there, and when one must not be started beside others. Must not know who calls
or what is recorded.

Source: DESIGN.md §6 "each tool's code runs in its own sandboxed worker with only the declared
grants".
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

from redrive.app.trial_calls import Ran
from redrive.app.trial_forwarder import OnDenied
from redrive.app.trial_grants import is_below_written
from redrive.app.trial_messages import CallTold, WorkerTold
from redrive.app.trial_stillness import Stillness
from redrive.app.trial_worker_plans import SIMULATORS, WorkerPlans
from redrive.app.trial_worker_process import ToolWorker, WorkerLost
from redrive.audit.workflow import Grants, ToolSpec
from redrive.errors import RedriveError, UsageError
from redrive.replay.trial_values import DeniedCall

CALL_S = 300.0
"""How long one call may take; a run's own wall time may be shorter."""
LOST = "WorkerLost"
_TRIES = 5
_MAX_DENIED = 1000


class Workers:
    """Runs the tools of one run; see `redrive.app.trial_calls.ToolRunner`.

    Args:
        make_plans: makes the plans, given who is told of places that are not granted.
        tools: all that may run, to tell whose grants lie in whose.
        deadline_s: when the run ends, on the monotonic clock.
        is_shared: whether something else writes the whole workspace meanwhile, and cannot be held.
    """

    def __init__(
        self,
        make_plans: Callable[[OnDenied], WorkerPlans],
        tools: tuple[ToolSpec, ...],
        deadline_s: float,
        *,
        is_shared: bool = False,
    ) -> None:
        self._plans = make_plans(self._deny_place)
        self._grants = {self._plans.key_of(tool): tool.grants for tool in tools}
        self._deadline_s = deadline_s
        self._is_shared = is_shared
        self._denied: list[DeniedCall] = []
        self._workers: dict[str, ToolWorker] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._still = Stillness()

    @property
    def made(self) -> frozenset[str]:
        """Relative paths that were made in the workspace so that they could be shown."""
        return frozenset(self._plans.made)

    async def run(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> Ran:
        """Run a tool in its worker; one that is gone is started anew."""
        told = await self._run(tool, arguments)
        return Ran(told, self.take_denied())

    def take_denied(self) -> tuple[DeniedCall, ...]:
        """Take what workers tried and may not, since the last time."""
        taken, self._denied = tuple(self._denied), []
        return taken

    async def close(self) -> None:
        """End every worker, and wait until it is gone."""
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))

    async def _run(self, tool: ToolSpec, arguments: Mapping[str, Any]) -> CallTold:
        key = self._plans.key_of(tool)
        async with self._locks.setdefault(key, asyncio.Lock()):
            try:
                told = await self._call(key, tool, arguments)
            except WorkerLost as lost:
                await self._drop(key)
                return CallTold(error=(LOST, f"tool {tool.id}: {lost}"))
            except RedriveError as error:
                await self._drop(key)
                return CallTold(error=(type(error).__name__, f"tool {tool.id}: {error.message}"))
        for name in told.denied:
            self._deny_place(name, f"called by the tool {tool.id}")
        return CallTold(told.result, told.error)

    async def _call(self, key: str, tool: ToolSpec, arguments: Mapping[str, Any]) -> WorkerTold:
        for _ in range(_TRIES):
            worker = await self._get(key, tool)
            async with self._still.moving():
                if self._workers.get(key) is worker:  # it was not ended for another one meanwhile
                    return await worker.call(tool.id, arguments, self._left_s())
        raise WorkerLost("its worker had to be ended again and again")

    def _left_s(self) -> float:
        return max(0.0, min(CALL_S, self._deadline_s - time.monotonic()))

    async def _get(self, key: str, tool: ToolSpec) -> ToolWorker:
        worker = self._workers.get(key)
        if worker is not None and worker.is_alive:
            return worker
        await self._drop(key)
        if key == SIMULATORS or not self._may_be_swapped(key, tool.grants):
            # A module may do something as it is imported.
            async with self._still.moving():
                return await self._start(key, tool)
        # While its paths are looked up, nobody may swap one for a link.
        async with self._still.still():
            for name in [name for name in self._workers if self._grants[name].write]:
                await self._drop(name)
            return await self._start(key, tool)

    def _may_be_swapped(self, key: str, grants: Grants) -> bool:
        if self._is_shared and is_below_written(grants, [Grants(write=(".",))]):
            raise UsageError(
                "it is granted a part of the workspace, which the command may swap for a link",
                hint='grant "." to the tools of a command workflow',
            )
        return is_below_written(grants, [g for name, g in self._grants.items() if name != key])

    async def _start(self, key: str, tool: ToolSpec) -> ToolWorker:
        worker = self._workers[key] = self._plans.make(tool)
        await worker.start(self._left_s())
        return worker

    async def _drop(self, key: str) -> None:
        worker = self._workers.pop(key, None)
        if worker is not None:
            await worker.close()

    def _deny_place(self, place: str, reason: str) -> None:
        if len(self._denied) < _MAX_DENIED:
            self._denied.append(DeniedCall(place, reason))
