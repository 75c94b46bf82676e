"""What has happened in one run so far, and whether it goes on.

Knows counts, limits and ends; from any thread. Must not know processes or the wire.
"""

import threading

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.app.trial_messages import Failure
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import DeniedCall, Outcome

MAX_DENIED = 1000
MAX_TOLD_BYTES = 512 * 1024 * 1024
"""What one run may have recorded: more fills the disk, not the record."""


class RunEnd(msgspec.Struct, frozen=True):
    """The workflow's own end: an output, or what it failed with."""

    output: Raw | UnsetType = UNSET
    failure: Failure | None = None


class RunState:
    """The state of one run.

    Args:
        limits: of the run.

    Attributes:
        ending: set when every process of the run has to end.
        model_fault: why the newest exchange with a model gave no answer, where that was not the
            request's fault; `None` where it gave one, or nothing was asked.
    """

    def __init__(self, limits: RunLimits) -> None:
        self.ending = threading.Event()
        self._limits = limits
        self._lock = threading.Lock()
        self._denied: list[DeniedCall] = []
        self._simulated: set[str] = set()
        self._notes: dict[str, None] = {}
        self._told_bytes = self._n_models = self._n_tools = 0
        self._end: RunEnd | None = None
        self._why: tuple[Outcome, str] | None = None
        self.model_fault: str | None = None

    @property
    def is_over(self) -> bool:
        """Whether the workflow has ended, or the run is being ended: nothing is let through."""
        return self._end is not None or self._why is not None

    @property
    def end(self) -> RunEnd | None:
        """What the workflow ended with, as far as it told."""
        return self._end

    @property
    def why(self) -> tuple[Outcome, str] | None:
        """What ended the run from outside, first of all that did: an outcome and one line."""
        return self._why

    @property
    def denied(self) -> tuple[DeniedCall, ...]:
        """The refused calls, in order."""
        return tuple(self._denied)

    @property
    def simulated(self) -> tuple[str, ...]:
        """The tools whose simulator answered, sorted."""
        return tuple(sorted(self._simulated))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report should add, each once."""
        return tuple(self._notes)

    def take_end(self, end: RunEnd) -> bool:
        """Take the workflow's end; false where the run was over already."""
        with self._lock:
            if self.is_over:
                return False
            self._end = end
            return True

    def stop(self, outcome: Outcome, why: str) -> None:
        """End the run; the first reason counts. A workflow that has told its end has ended."""
        with self._lock:
            if not self.is_over:
                self._why = (outcome, why)
        self.ending.set()

    def refuse(self, outcome: Outcome, why: str) -> None:
        """Let nothing more through, and leave it to others when the processes end."""
        with self._lock:
            if not self.is_over:
                self._why = (outcome, why)

    def deny(self, tool: str, reason: str) -> bool:
        """Note a refused call; false beyond `MAX_DENIED`, which ends the run.

        Its name is the run's to choose; half a surrogate pair in it becomes an escape.
        """
        told = DeniedCall(canonical.safe_text(tool[:512]), canonical.escape_surrogates(reason))
        with self._lock:
            is_listed = len(self._denied) < MAX_DENIED
            if is_listed:
                self._denied.append(told)
        if not is_listed:
            self.stop(Outcome.LIMIT, f"more than {MAX_DENIED} refused calls")
        return is_listed

    def simulate(self, tool: str) -> None:
        """Note that a simulator answered."""
        with self._lock:
            self._simulated.add(tool)

    def note(self, line: str) -> None:
        """Add a line for reports."""
        with self._lock:
            self._notes[line] = None

    def count_model(self) -> bool:
        """Count a call of a model; false beyond the limit, which ends the run."""
        with self._lock:
            self._n_models += 1
            is_within = self._n_models <= self._limits.model_calls
        if not is_within:
            self.refuse(Outcome.LIMIT, f"more than {self._limits.model_calls} model calls")
        return is_within

    def count_tool(self) -> bool:
        """Count a call of a tool; false beyond the limit, which ends the run."""
        with self._lock:
            self._n_tools += 1
            is_within = self._n_tools <= self._limits.tool_calls
        if not is_within:
            self.refuse(Outcome.LIMIT, f"more than {self._limits.tool_calls} tool calls")
        return is_within

    def count_told(self, n_bytes: int) -> bool:
        """Count what is to be recorded; false beyond what a run may, which ends it."""
        with self._lock:
            self._told_bytes += n_bytes
            is_within = self._told_bytes <= MAX_TOLD_BYTES
        if not is_within:
            self.stop(Outcome.LIMIT, f"more than {MAX_TOLD_BYTES >> 20} MiB to record")
        return is_within
