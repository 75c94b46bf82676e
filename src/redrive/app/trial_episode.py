"""One run of a trial: in the sandbox, to its end, recorded as a full session.

Wires broker, processes, workspace and session. The sandbox is the guarantee; nothing is started
where no level is proven, and nothing of a run outlives it.

Source: DESIGN.md §6; `redrive.app.trial_ports.RunEpisode`.
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import UNSET

from redrive.app.trial_broker import Broker
from redrive.app.trial_code_digest import find_place
from redrive.app.trial_collecting import collect_workspace, remove_tree
from redrive.app.trial_confinement import RunPlace, confine, python_command
from redrive.app.trial_messages import ChildSetup
from redrive.app.trial_ports import Account, EpisodeJob
from redrive.app.trial_processes import (
    ProcessEnd,
    ProcessPlan,
    RunConfined,
    describe_end,
    run_process,
)
from redrive.app.trial_session import EpisodeSession
from redrive.app.trial_state import RunState
from redrive.app.trial_workers import Workers
from redrive.app.trial_workspace import copy_workspace
from redrive.errors import ContainmentError, UsageError
from redrive.replay.trial_values import EpisodeEnd, Outcome
from redrive.sandbox.bubblewrap import probe, run_confined

_CHILD = "redrive.app.trial_child"
_MAX_THREADS = 512
_TICK_S = 0.05
_GRACE_S = 2.0
"""How long a workflow's process may take to go after it has told its end."""
_SHOWN_CHARS = 500
_KEPT_OUTPUT_BYTES = 64 * 1024


def run_episode(job: EpisodeJob, account: Account, stop: threading.Event) -> EpisodeEnd:
    """Make one run to its end; see `redrive.app.trial_ports.RunEpisode`.

    Raises:
        ContainmentError: no level is proven here, or the sandbox failed; nothing ran outside it.
        UsageError: the workflow's code or the workspace cannot be read, or changed since the plan.
        StoreError: the episode cannot be stored.
    """
    level = probe()
    if not level.is_proven:
        raise ContainmentError(f"nothing is run: {level.reason}")
    started_s = time.monotonic()
    state = RunState(job.limits)
    with _private_folder() as folder:
        place = _place_of(job, folder)
        session = EpisodeSession(job, level.name, state.note)
        try:
            run = _Run(job, account, stop, state, place, session, run_confined)
            asyncio.run(run.to_end())
            return run.finish(level.name, time.monotonic() - started_s)
        except BaseException:
            with suppress(Exception):
                session.abandon()
            raise


@contextmanager
def _private_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="redrive-run-"))
    try:
        yield folder.resolve()
    finally:
        remove_tree(folder)


def _place_of(job: EpisodeJob, folder: Path) -> RunPlace:
    """Make the run's folder: its copy of the workspace, which must be the one that was planned."""
    workspace, task = folder / "workspace", job.task.workspace
    if task is None:
        workspace.mkdir(mode=0o700)
    else:
        found = copy_workspace(workspace, task.path, task.kind, task.commit)
        if found != task.digest:
            raise UsageError(
                f"the workspace of task {job.task.name} is not the planned one any more",
                where=task.path,
                hint="plan the trial again, or put the workspace back",
            )
    code = find_place(job.workflow.place or job.workflow.source, Path())
    return RunPlace(folder, workspace, code, job.store, job.caller, job.limits)


class _Run:
    """One run: what it has, and what became of it."""

    def __init__(
        self,
        job: EpisodeJob,
        account: Account,
        stop: threading.Event,
        state: RunState,
        place: RunPlace,
        session: EpisodeSession,
        confined: RunConfined,
    ) -> None:
        self._job = job
        self._account = account
        self._stop = stop
        self._state = state
        self._place = place
        self._session = session
        self._confined = confined
        self._deadline_s = time.monotonic() + job.limits.wall_s
        self._broker: Broker | None = None
        self._workers: Workers | None = None
        self._end: ProcessEnd | None = None

    async def to_end(self) -> None:
        """Run the workflow until it and everything that it started has ended."""
        loop = asyncio.get_running_loop()
        # Each confined process is waited for in a thread.
        loop.set_default_executor(ThreadPoolExecutor(_MAX_THREADS, "redrive-run"))
        job, eligible = self._job, self._job.eligible
        self._workers = workers = Workers(
            self._place,
            self._confined,
            self._state,
            tools=tuple({tool.id: tool for tool in eligible.tools.values()}.values()),
            simulated=eligible.simulated,
            deadline_s=self._deadline_s,
            seed=job.run.seed,
        )
        self._broker = broker = Broker(job, self._account, self._state, self._session, workers)
        watching = asyncio.create_task(self._watch())
        try:
            self._end = await run_process(
                self._plan(broker),
                self._confined,
                broker.proxy.serve_connection,
                self._state.ending,
            )
        finally:
            watching.cancel()
            self._state.ending.set()
            await workers.close()
            await broker.proxy.close()
            await asyncio.gather(watching, return_exceptions=True)

    def _plan(self, broker: Broker) -> ProcessPlan:
        job = self._job
        setup = ChildSetup(
            channel=0,
            path=broker.proxy.path_for("x").rpartition("/")[0],
            code=self._place.code,
            tools=broker.desk.capabilities,
            models=tuple(model.plan.name for model in job.models),
            task=job.task.input,
            task_id=job.task.task_id,
            attempt=job.run.key.attempt,
            seed=job.run.seed,
            most_bytes=job.limits.output_bytes,
        )
        left_s = self._deadline_s - time.monotonic()
        confinement = confine(self._place, wall_s=left_s, seed=job.run.seed)
        return ProcessPlan(python_command(_CHILD), confinement, setup)

    async def _watch(self) -> None:
        """End the run when it is stopped, too long, or has told its end and does not go."""
        state, over_s = self._state, 0.0
        while not state.ending.is_set():
            now_s = time.monotonic()
            if self._stop.is_set():
                state.stop(Outcome.CANCELLED, "it was interrupted")
            elif now_s > self._deadline_s:
                state.stop(Outcome.TIMEOUT, f"it took more than {self._job.limits.wall_s:g} s")
            elif state.is_over:
                over_s = over_s or now_s
                if now_s > over_s + _GRACE_S:
                    state.ending.set()
            await asyncio.sleep(_TICK_S)

    # --- what became of it ----------------------------------------------------------------------

    def finish(self, isolation: str, wall_s: float) -> EpisodeEnd:
        """Collect and store what is left of the run, after its last process."""
        broker, workers, state = self._broker, self._workers, self._state
        assert broker is not None  # noqa: S101 - made before anything ran
        assert workers is not None  # noqa: S101 - made before anything ran
        broker.close()
        for denied in workers.take_denied():
            broker.desk.deny(denied.tool, denied.reason)
        collected = collect_workspace(
            self._place.workspace, self._job.task.workspace, workers.made, self._job.limits
        )
        outcome, error = self._outcome()
        backend = self._session.backend
        self._keep_outputs()
        digest = None
        if collected.archive is not None:
            digest = backend.keep(
                "trial.workspace", {"files": collected.n_files}, collected.archive
            )
        output: Any = UNSET if state.end is None else state.end.output
        fields = {"outcome": outcome.value, "error": error}
        backend.note("trial.end", fields if output is UNSET else {**fields, "output": output})
        self._session.end(outcome)
        return EpisodeEnd(
            outcome=outcome,
            output=output,
            error=error,
            denied=state.denied,
            simulated=state.simulated,
            session_id=self._session.id,
            isolation=isolation,
            wall_s=wall_s,
            files=collected.files,
            files_artefact=digest,
            notes=(*state.notes, *collected.notes),
        )

    def _outcome(self) -> tuple[Outcome, str | None]:
        state = self._state
        outcome, error = self._own_outcome()
        if state.denied and outcome not in (Outcome.CANCELLED, Outcome.CEILING):
            first = state.denied[0]
            return Outcome.DENIED, f"{first.tool}: {first.reason}"
        return outcome, error

    def _own_outcome(self) -> tuple[Outcome, str | None]:
        state, ended = self._state, self._end
        if state.why is not None:
            return state.why
        if state.end is not None:
            failure = state.end.failure
            if failure is None:
                return Outcome.COMPLETE, None
            where = f" ({failure.where})" if failure.where else ""
            words = f"{failure.type}: {failure.message}{where}"
            kind = Outcome.LIMIT if failure.type in _LIMIT_ERRORS else Outcome.FAILED
            return kind, _one_line(words)
        assert ended is not None  # noqa: S101 - the process has ended
        result = ended.result
        if result.is_timeout:
            return Outcome.TIMEOUT, describe_end(result)
        if result.is_process_flood or result.signal in _LIMIT_SIGNALS:
            return Outcome.LIMIT, describe_end(result)
        return Outcome.FAILED, _one_line(f"it ended without an output: {describe_end(result)}")

    def _keep_outputs(self) -> None:
        if self._end is None:
            return
        result = self._end.result
        for name, data in (("stdout", result.stdout), ("stderr", result.stderr)):
            if data:
                text = data[:_KEPT_OUTPUT_BYTES].decode("utf-8", "replace")
                fields = {"text": text, "n_bytes": len(data), "is_cut": result.is_output_cut}
                self._session.backend.note(f"trial.{name}", fields)


# A workflow that runs into its own limits says so itself, as far as it can.
_LIMIT_ERRORS = ("MemoryError", "OverflowError")
_LIMIT_SIGNALS = (24, 25)  # SIGXCPU, SIGXFSZ


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_SHOWN_CHARS]
