"""One run of a trial: in the sandbox, to its end, recorded as a full session.

Wires broker, processes, workspace and session. The sandbox is the guarantee; nothing is started
where no level is proven, and nothing of a run outlives it.

Source: DESIGN.md §6; `redrive.app.trial_ports.RunEpisode`.
"""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import UNSET

from redrive.app.trial_broker import Broker
from redrive.app.trial_collecting import collect_workspace
from redrive.app.trial_command import plan_command, read_end
from redrive.app.trial_confinement import RunPlace, confine, python_command
from redrive.app.trial_folder import open_place
from redrive.app.trial_messages import ChildSetup
from redrive.app.trial_outcome import judge_run
from redrive.app.trial_ports import Account, EpisodeJob
from redrive.app.trial_processes import ProcessEnd, ProcessPlan, run_process, setup_start
from redrive.app.trial_session import EpisodeSession
from redrive.app.trial_state import RunState
from redrive.app.trial_worker_plans import WorkerPlans
from redrive.app.trial_workers import Workers
from redrive.errors import ContainmentError
from redrive.replay.trial_values import EpisodeEnd, Outcome
from redrive.sandbox.disk import DiskBudget, DiskWatch
from redrive.sandbox.door import NO_LEVEL_HINT, find_level

_CHILD = "redrive.app.trial_child"
_MAX_THREADS = 512
_TICK_S = 0.05
_GRACE_S = 2.0
"""How long a workflow's process may take to go after it has told its end."""
_KEPT_OUTPUT_BYTES = 64 * 1024


def run_episode(job: EpisodeJob, account: Account, stop: threading.Event) -> EpisodeEnd:
    """Make one run to its end; see `redrive.app.trial_ports.RunEpisode`.

    Raises:
        ContainmentError: no level is proven here, or the sandbox failed; nothing ran outside it.
        UsageError: the workflow's code or the workspace cannot be read, or changed since the plan.
        StoreError: the episode cannot be stored.
    """
    level = find_level()
    if not level.is_proven:
        raise ContainmentError(f"nothing is run: {level.reason}", hint=NO_LEVEL_HINT)
    started_s = time.monotonic()
    with open_place(job, level.name) as place:
        state = RunState(job.limits)
        session = EpisodeSession(job, level.name, state.note)
        try:
            run = _Run(job, account, stop, place, state, session)
            asyncio.run(run.to_end())
            return run.finish(started_s)
        except BaseException:
            with suppress(Exception):
                session.abandon()
            raise


class _Run:
    """One run: what it has, and what became of it."""

    def __init__(
        self,
        job: EpisodeJob,
        account: Account,
        stop: threading.Event,
        place: RunPlace,
        state: RunState,
        session: EpisodeSession,
    ) -> None:
        self._job = job
        self._stop = stop
        self._place = place
        self._state = state
        self._session = session
        self._is_command = job.workflow.spec.kind == "command"
        self._deadline_s = time.monotonic() + job.limits.wall_s
        plans = partial(
            WorkerPlans,
            place,
            state,
            job.eligible.spec,
            simulated=job.eligible.simulated,
            deadline_s=self._deadline_s,
            seed=job.run.seed,
        )
        tools = {tool.id: tool for tool in job.eligible.tools.values()}
        self._workers = Workers(
            lambda on_denied: plans(on_denied=on_denied),
            tuple(tools.values()),
            self._deadline_s,
            is_shared=self._is_command,
        )
        self._broker = Broker(job, account, state, session, self._workers)
        self._end: ProcessEnd | None = None

    async def to_end(self) -> None:
        """Run the workflow until it and everything that it started has ended."""
        # Each confined process is waited for in a thread.
        executor = ThreadPoolExecutor(_MAX_THREADS, "redrive-run")
        asyncio.get_running_loop().set_default_executor(executor)
        proxy, ending = self._broker.proxy, self._state.ending
        folders = (str(self._place.workspace), str(self._place.folder / "out"))
        budget = DiskBudget(folders, self._job.limits.disk_bytes)
        with DiskWatch((budget,), lambda: None) as disk:
            watching = asyncio.create_task(self._watch(disk))
            try:
                plan = self._plan()
                self._end = await run_process(plan, self._place.run, proxy.serve_connection, ending)
            finally:
                watching.cancel()
                ending.set()
                await self._workers.close()
                await proxy.close()
                await asyncio.gather(watching, return_exceptions=True)

    def _plan(self) -> ProcessPlan:
        job, place = self._job, self._place
        left_s = self._deadline_s - time.monotonic()
        if self._is_command:
            return plan_command(job, place, self._broker.proxy, left_s)
        setup = ChildSetup(
            channel=0,
            path=self._broker.path,
            code=place.code,
            tools=self._broker.desk.capabilities,
            models=tuple(model.plan.name for model in job.models),
            task=job.task.input,
            task_id=job.task.task_id,
            attempt=job.run.key.attempt,
            seed=job.run.seed,
            most_bytes=job.limits.output_bytes,
        )
        confinement = confine(place, wall_s=left_s, seed=job.run.seed)
        return ProcessPlan(confinement, setup_start(python_command(_CHILD), setup))

    async def _watch(self, disk: DiskWatch) -> None:
        """End the run when it is stopped, too long or too large, or has told its end and stays."""
        state, over_s = self._state, 0.0
        while not state.ending.is_set():
            now_s = time.monotonic()
            if self._stop.is_set():
                state.stop(Outcome.CANCELLED, "it was interrupted")
            elif now_s > self._deadline_s:
                state.stop(Outcome.TIMEOUT, f"it took more than {self._job.limits.wall_s:g} s")
            elif disk.is_full:
                state.stop(Outcome.LIMIT, f"more than {self._job.limits.disk_bytes} bytes of disk")
            elif state.is_over:
                over_s = over_s or now_s
                if now_s > over_s + _GRACE_S:
                    state.ending.set()
            await asyncio.sleep(_TICK_S)

    def finish(self, started_s: float) -> EpisodeEnd:
        """Collect and store what is left of the run, after its last process."""
        job, place, state = self._job, self._place, self._state
        result = None if self._end is None else self._end.result
        if self._is_command and self._end is not None:
            end = read_end(self._end, place)
            if end is not None:
                state.take_end(end)
        self._broker.close()
        for denied in self._workers.take_denied():
            self._broker.desk.deny(denied.tool, denied.reason)
        collected = collect_workspace(
            place.workspace, job.task.workspace, self._workers.made, job.limits
        )
        outcome, error = judge_run(state, result)
        if collected.is_cut and outcome is Outcome.COMPLETE:
            outcome, error = Outcome.LIMIT, f"it left too much: {'; '.join(collected.notes)}"
        output: Any = UNSET if state.end is None else state.end.output
        self._keep_outputs()
        backend, digest = self._session.backend, None
        if collected.archive is not None:
            fields = {"files": collected.n_files}
            digest = backend.keep("trial.workspace", fields, collected.archive)
        told = {"outcome": outcome.value, "error": error}
        backend.note("trial.end", told if output is UNSET else {**told, "output": output})
        self._session.end(outcome)
        return EpisodeEnd(
            outcome=outcome,
            output=output,
            error=error,
            denied=state.denied,
            simulated=state.simulated,
            session_id=self._session.id,
            isolation=place.level,
            wall_s=time.monotonic() - started_s,
            files=collected.files,
            files_artefact=digest,
            notes=(*state.notes, *collected.notes),
        )

    def _keep_outputs(self) -> None:
        if self._end is None:
            return
        result = self._end.result
        for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
            if data:
                text = data[:_KEPT_OUTPUT_BYTES].decode("utf-8", "replace")
                fields = {"text": text, "n_bytes": len(data), "is_cut": result.is_output_cut}
                self._session.backend.note(f"trial.{name}", fields)
