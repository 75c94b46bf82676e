"""Runs of trials for tests: a workflow's file, a scripted model, an account that counts."""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw

from redrive.app.auditing import audit_session
from redrive.app.opening import open_session
from redrive.app.trial_code import load_code
from redrive.app.trial_code_digest import digest_code, find_place
from redrive.app.trial_episode import run_episode
from redrive.app.trial_messages import CodePlace
from redrive.app.trial_ports import CeilingReached, EpisodeJob, OpenedModel
from redrive.app.trial_workspace import digest_workspace
from redrive.audit.eligibility import EligibleWorkflow, load
from redrive.audit.workflow import WorkflowSpec
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.record.event import Event
from redrive.replay.trial_plan import PlanModel, PlannedWorkflow, RunLimits
from redrive.replay.trial_values import (
    EpisodeEnd,
    PlannedRun,
    Price,
    RunKey,
    TrialTask,
    Workspace,
)
from redrive.stores.sqlite import open_store
from redrive.trial import to_spec

PRICE = Price(Decimal("0.1"), Decimal("0.4"))
LIMITS = RunLimits(wall_s=60.0, cpu_s=20, memory_bytes=1024**3)
Script = Callable[[dict[str, Any]], Any]
"""Is given a request's body; gives a text, a list of (call id, name, arguments), or an answer."""


@dataclass
class FakeCharge:
    """One charge; keeps how it was settled."""

    account: "FakeAccount"
    number: int
    settled: list[tuple[int, bytes, Outcome]] = field(default_factory=list)

    @property
    def idempotency_key(self) -> str:
        return f"charge-{self.number}"

    def settle(self, status: int, headers: Headers, body: bytes, outcome: Outcome) -> None:
        self.settled.append((status, body, outcome))


@dataclass
class FakeAccount:
    """Admits `most` calls, and serves what `paid` holds for a request's body."""

    most: int = 1000
    paid: Mapping[bytes, ServedAnswer] = field(default_factory=dict)
    charges: list[FakeCharge] = field(default_factory=list)
    asked: list[SentRequest] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(self, model: PlanModel, request: SentRequest) -> FakeCharge | ServedAnswer:
        with self.lock:
            if request.body in self.paid:
                return self.paid[request.body]
            if len(self.charges) >= self.most:
                raise CeilingReached("replay: 1.00 USD")
            self.asked.append(request)
            self.charges.append(FakeCharge(self, len(self.charges)))
            return self.charges[-1]

    @property
    def settled_once(self) -> bool:
        return all(len(charge.settled) == 1 for charge in self.charges)


@dataclass
class ScriptedModel:
    """Answers in this process."""

    script: Script
    seen: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, request: SentRequest) -> ServedAnswer:
        body = json.loads(request.body)
        self.seen.append(body)
        said = self.script(body)
        if isinstance(said, ServedAnswer):
            return said
        message: dict[str, Any] = {"role": "assistant", "content": said}
        if isinstance(said, list):
            calls = [
                {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
                for i, n, a in said
            ]
            message = {"role": "assistant", "content": None, "tool_calls": calls}
        finish = "tool_calls" if isinstance(said, list) else "stop"
        answer = {
            "id": f"c{len(self.seen)}",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "system_fingerprint": "fp1",
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        }
        return ServedAnswer(
            200, (("content-type", "application/json"),), json.dumps(answer).encode()
        )


def make_model(script: Script = lambda _: "fine", name: str = "small") -> OpenedModel:
    """Open a model of this process."""
    return OpenedModel(PlanModel(name, "script", PRICE), answer=ScriptedModel(script))


def make_task(value: Any = "task", workspace: Path | None = None) -> TrialTask:
    """Make a task; its workspace is a folder."""
    held = None
    if workspace is not None:
        held = Workspace("folder", str(workspace), digest_workspace(str(workspace), "folder"))
    return TrialTask("5ca1ab1e00facade", "one", Raw(msgspec.json.encode(value)), workspace=held)


def read_spec(file: Path, name: str = "workflow") -> WorkflowSpec:
    """Read what a workflow declares, in this process: tests write their own workflows."""

    workflow, tools = load_code(CodePlace(name, file=str(file), folder=str(file.parent)))
    sys.path.remove(str(file.parent))
    sys.modules.pop(file.stem, None)
    return to_spec(workflow, tools.values())


def unchecked(
    spec: WorkflowSpec, *names: str, simulated: frozenset[str] = frozenset()
) -> EligibleWorkflow:
    """Bypass the check, as only a test may: `names` may be called, whatever they are."""
    eligible = EligibleWorkflow.__new__(EligibleWorkflow)
    tools = {tool.id: tool for tool in spec.tools if tool.id in names}
    for slot, value in (("spec", spec), ("tools", tools), ("simulated", simulated)):
        object.__setattr__(eligible, slot, value)
    return eligible


@dataclass
class Bench:
    """Runs one workflow after another on a store of its own."""

    folder: Path
    account: FakeAccount = field(default_factory=FakeAccount)
    stop: threading.Event = field(default_factory=threading.Event)
    caller: dict[str, str] = field(default_factory=dict)
    n_runs: int = 0

    @property
    def store(self) -> Path:
        return self.folder / "store.db"

    def write(self, code: str, name: str = "workflows.py") -> Path:
        """Write a workflow's file."""
        folder = self.folder / "code"
        folder.mkdir(exist_ok=True)
        file = folder / name
        file.write_text(code, "utf-8")
        return file

    def job(
        self,
        file: Path,
        *,
        name: str = "workflow",
        task: TrialTask | None = None,
        models: tuple[OpenedModel, ...] | None = None,
        limits: RunLimits = LIMITS,
        eligible: EligibleWorkflow | None = None,
        simulate: frozenset[str] = frozenset(),
    ) -> EpisodeJob:
        """Make the job of a run."""
        self.n_runs += 1
        spec = read_spec(file, name) if eligible is None else eligible.spec
        held = load(spec, simulate=simulate) if eligible is None else eligible
        task = make_task() if task is None else task
        key = RunKey(spec.label, task.task_id, self.n_runs)
        return EpisodeJob(
            trial_id="t-00000000",
            run=PlannedRun(key, 7),
            execution=1,
            task=task,
            workflow=PlannedWorkflow(
                f"{file}:{name}", spec, digest_code(find_place(f"{file}:{name}", Path()))
            ),
            eligible=held,
            models=(make_model(),) if models is None else models,
            limits=limits,
            store=self.store,
            caller={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **self.caller},
        )

    def events(self, end: EpisodeEnd) -> list[Event]:
        """Read the session of a run."""
        store = open_store(self.store, create=False)
        try:
            session = open_session(store, end.session_id)
            return list(session.reader.read_events(range(len(session.index))))
        finally:
            store.close()

    def is_closed(self, end: EpisodeEnd) -> bool:
        """Audit the session of a run."""
        store = open_store(self.store, create=False)
        try:
            session = open_session(store, end.session_id)
            return audit_session(session, session.trajectory())[1] is not None
        finally:
            store.close()

    def run(self, code: str, **options: Any) -> EpisodeEnd:
        """Write a workflow and run it."""
        return run_episode(self.job(self.write(code), **options), self.account, self.stop)


def output_of(end: EpisodeEnd) -> Any:
    """Give what a run gave back."""
    assert isinstance(end.output, Raw), end.error
    return json.loads(bytes(end.output))
