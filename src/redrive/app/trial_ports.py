"""The ports between the parts of a trial: who meters, who runs one episode, who grades.

Each is written against these, and `app.trial_running` wires them.

Source: DESIGN.md §6.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from redrive.audit.eligibility import EligibleWorkflow
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.replay.trial_plan import PlanModel, PlannedWorkflow, RunLimits
from redrive.replay.trial_values import EpisodeEnd, PlannedRun, TrialTask


class CeilingReached(BaseException):
    """The next call would pass a ceiling; not an `Exception`, so that no agent code swallows it."""


class Charge(Protocol):
    """One admitted call: it is settled exactly once, whatever becomes of it."""

    @property
    def idempotency_key(self) -> str:
        """Sent with the request; the same one again after an interruption."""
        ...

    def settle(self, status: int, headers: Headers, body: bytes, outcome: Outcome) -> None:
        """Settle by what came back: the body as it came over the wire, as far as it came."""
        ...


class Account(Protocol):
    """Meters what one subject (a run, or a judgement) asks of models; from any thread."""

    def reserve(self, model: PlanModel, request: SentRequest) -> Charge | ServedAnswer:
        """Reserve the bound of a call, durably, before it is sent.

        Returns:
            A charge; or the answer that was paid for already, before an interruption.

        Raises:
            CeilingReached: the ceiling of this purpose does not admit it; nothing was reserved.
        """
        ...


class OpenedModel(msgspec.Struct, frozen=True):
    """A model of the plan, ready to be asked.

    Attributes:
        plan: as planned.
        url: base URL of its HTTP API (such as `http://127.0.0.1:8080/v1`); empty for a model in
            this process.
        headers: replace those of the same name in what is sent; never recorded.
        answer: answers a request in this process (a script, a Python model); `None` with a URL.
        fingerprint: of the engine, where who started it knows.
        api: `openai` or `anthropic`: whose base URL variable names it.
        asks: what its endpoint calls it, where that is another name than the plan's: it takes the
            place of the request's `model` in what is sent.
    """

    plan: PlanModel
    url: str = ""
    headers: Headers = ()
    answer: "InProcessModel | None" = None
    fingerprint: str | None = None
    api: str = "openai"
    asks: str = ""


class InProcessModel(Protocol):
    """Answers a request in the bytes of its API, without a network."""

    def answer(self, request: SentRequest) -> ServedAnswer:
        """Answer; a model that fails gives the status and body that its API would."""
        ...


class EpisodeJob(msgspec.Struct, frozen=True):
    """All that one run needs.

    Attributes:
        trial_id: of the trial.
        run: which run, with its seed.
        execution: from 1; above 1 after an interruption.
        task: its input and workspace.
        workflow: the variant as planned.
        eligible: what its broker may let it call; only a passed check makes one.
        models: what it may ask; the first one is the default.
        limits: what it may spend.
        store: where its episode goes.
        caller: the caller's environment: `PATH`, `HOME`, `LANG`, and the secrets that grants name.
    """

    trial_id: str
    run: PlannedRun
    execution: int
    task: TrialTask
    workflow: PlannedWorkflow
    eligible: EligibleWorkflow
    models: tuple[OpenedModel, ...]
    limits: RunLimits
    store: Path
    caller: Mapping[str, str]


class RunEpisode(Protocol):
    """Makes one run to its end, in the sandbox, and stores its episode."""

    def __call__(self, job: EpisodeJob, account: Account, stop: threading.Event) -> EpisodeEnd:
        """Run; set `stop` from outside to end it (the outcome is then `CANCELLED`).

        Raises:
            ContainmentError: no level is proven here; nothing ran.
        """
        ...
