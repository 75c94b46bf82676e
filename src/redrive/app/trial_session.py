"""The episode of one run as a recorded session: begun, and ended, in the store.

Knows what an episode's session says of its run. Must not know processes or the wire.

Source: DESIGN.md §3, §6 "Episodes are full sessions in the store".
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from redrive import canonical
from redrive.app.recorder_opening import RecorderOptions, open_recorder
from redrive.app.trial_ports import EpisodeJob
from redrive.audit.manifest import CLASSES
from redrive.capture.interception import captured_by
from redrive.capture.recorder import Recorder
from redrive.capture.recording import FORMAT, RecordingBackend
from redrive.record.event import SessionStarted, raw_of
from redrive.replay.trial_values import Outcome

_NO_ID = re.compile(r"[^A-Za-z0-9._@-]")
_OF_RUN = "trial"
STATUS: Mapping[Outcome, str] = {
    **dict.fromkeys(Outcome, "failure"),
    Outcome.COMPLETE: "success",
    Outcome.CANCELLED: "cancelled",
}


def episode_id(job: EpisodeJob) -> str:
    """Name an episode: unique in a trial, and for each execution of a run."""
    key = job.run.key
    again = f"-x{job.execution}" if job.execution > 1 else ""
    name = f"trial-{job.trial_id}-{key.variant}-{key.task_id}-{key.attempt}{again}"
    return f"{FORMAT}:{_NO_ID.sub('_', name)}"


class EpisodeSession:
    """One episode while it is recorded.

    What is intercepted is known once the workflow's process has said so, and stands in the first
    event; so the session begins with that, or with its end.

    Args:
        job: the run.
        isolation: the proven level.
        on_fault: told what could not be recorded.

    Raises:
        StoreError: the store cannot be used, or holds this episode already.
    """

    def __init__(self, job: EpisodeJob, isolation: str, on_fault: Callable[[str], None]) -> None:
        self.id = episode_id(job)
        self._job = job
        self._isolation = isolation
        self._on_fault = on_fault
        self._backend: RecordingBackend | None = None
        self._recorder: Recorder = open_recorder(
            job.store, self.id, RecorderOptions(is_fail_closed=True), on_fault, job.caller
        )

    @property
    def backend(self) -> RecordingBackend:
        """The backend; begun with nothing intercepted if it was not begun."""
        return self.begin((), {}) if self._backend is None else self._backend

    def begin(self, intercepted: Sequence[str], environment: Mapping[str, Any]) -> RecordingBackend:
        """Begin; called in the context that the workflow's first place inherits.

        Args:
            intercepted: sources whose reads the workflow's process intercepts.
            environment: what it says that it runs in.
        """
        job = self._job
        is_python = job.workflow.spec.kind == "python"
        self._backend = RecordingBackend(
            self._recorder,
            self.id,
            self._describe(intercepted, environment),
            now_ns=time.time_ns,
            by_context=is_python,
            engine=job.models[0].fingerprint if len(job.models) == 1 else None,
            on_fault=self._on_fault,
        )
        return self._backend

    def end(self, outcome: Outcome) -> None:
        """Write how the run ended.

        Raises:
            StoreError: the end is not stored.
        """
        self.backend.end(STATUS[outcome])
        self._recorder.close()

    def abandon(self) -> None:
        """Close it after an error, as far as it came."""
        self._recorder.close()

    def _describe(
        self, intercepted: Sequence[str], environment: Mapping[str, Any]
    ) -> SessionStarted:
        job = self._job
        captures = {**dict.fromkeys(CLASSES, "captured"), **captured_by(intercepted)}
        return SessionStarted(
            task=_text_of(job.task.input),
            format_id=self.id.partition(":")[2],
            tools={name: tool.effect for name, tool in job.eligible.tools.items()},
            captures=captures,
            basis="intercepted",
            environment=raw_of({**environment, _OF_RUN: self._facts()}),
            agent=job.workflow.spec.id,
            agent_version=job.workflow.spec.version,
        )

    def _facts(self) -> dict[str, Any]:
        """Say what the run is; nothing here is read by the workflow's own word."""
        job, key = self._job, self._job.run.key
        workspace = job.task.workspace
        return {
            "purpose": "replay",
            "trial": job.trial_id,
            "variant": key.variant,
            "task_id": key.task_id,
            "task": job.task.name,
            "attempt": key.attempt,
            "execution": job.execution,
            "seed": job.run.seed,
            "isolation": self._isolation,
            "workflow_digest": job.workflow.digest,
            "workspace_digest": None if workspace is None else workspace.digest,
            "models": [model.plan.name for model in job.models],
            "simulated": sorted(job.eligible.simulated),
        }


def _text_of(task: Raw) -> str:
    value = canonical.decode_value(bytes(task))
    return value if isinstance(value, str) else bytes(task).decode("utf-8", "replace")
