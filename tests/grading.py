"""Plans, groups and a metering stand-in for tests of graders."""

import io
import tarfile
import threading
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import UNSET, Raw

from redrive import canonical
from redrive.app.trial_asking import measure_question
from redrive.app.trial_ports import CeilingReached, OpenedModel
from redrive.audit.workflow import WorkflowSpec
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.grading import (
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GraderSpec,
    JobEnd,
    Question,
    Reply,
    SandboxJob,
)
from redrive.replay.trial_plan import PlanModel, PlannedWorkflow, TrialPlan
from redrive.replay.trial_values import EpisodeEnd, Price, Purpose, RunKey, TrialTask
from redrive.replay.trial_values import Outcome as RunOutcome

MODEL = PlanModel("small", "python:judge.py:judge", Price(Decimal(1), Decimal(2)), 256)
_UNSET: Any = UNSET


def raw(value: Any) -> Raw:
    return Raw(canonical.encode(value))


def make_task(expected: Any = _UNSET, *, input: Any = "Say it.", name: str = "t1") -> TrialTask:
    told = UNSET if expected is UNSET else raw(expected)
    return TrialTask(f"{name}-id", name, raw(input), expected=told)


def make_plan(
    graders: Sequence[GraderSpec],
    *,
    variants: Sequence[str] = ("A@1", "B@1"),
    tasks: Sequence[TrialTask] | None = None,
    attempts: int = 1,
    judging_usd: str | None = "1",
) -> TrialPlan:
    ceilings = {Purpose.REPLAY: Decimal(1)}
    if judging_usd is not None:
        ceilings[Purpose.JUDGING] = Decimal(judging_usd)
    named = (label.split("@") for label in variants)
    return TrialPlan(
        name="trial",
        workflows=tuple(
            PlannedWorkflow("w.py:w", WorkflowSpec(id=one, version=version), "0" * 64)
            for one, version in named
        ),
        tasks=tuple([make_task()] if tasks is None else tasks),
        models=(MODEL,),
        ceilings=ceilings,
        graders=tuple(graders),
        attempts=attempts,
        seed=7,
    )


def end_of(
    output: Any = _UNSET, outcome: RunOutcome = RunOutcome.COMPLETE, **more: Any
) -> EpisodeEnd:
    told = output if output is UNSET or isinstance(output, Raw) else raw(output)
    return EpisodeEnd(outcome, told, **more)


def make_group(
    outputs: Mapping[str, Any],
    *,
    task: TrialTask | None = None,
    attempt: int = 1,
    **more: Any,
) -> GradeGroup:
    """Make a group of complete episodes: label → output, or an `EpisodeEnd`."""
    told = task or make_task()
    ends = {k: v if isinstance(v, EpisodeEnd) else end_of(v) for k, v in outputs.items()}
    episodes = tuple(
        GradedEpisode(RunKey(label, told.task_id, attempt), end) for label, end in ends.items()
    )
    return GradeGroup(told, tuple(outputs), episodes, **more)


def setup_of(
    base: Path,
    kind: str,
    options: Mapping[str, Any],
    tasks: Sequence[TrialTask] | None = None,
) -> GraderSetup:
    chosen = (make_task("yes"),) if tasks is None else tuple(tasks)
    spec = GraderSpec("g", kind, options)
    return GraderSetup(spec, base, chosen, {MODEL.name: MODEL}, measure_question)


def tar_of(files: Mapping[str, bytes | str], *, links: Mapping[str, str] | None = None) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in files.items():
            body = content.encode() if isinstance(content, str) else content
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(body), 0o755 if name.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(body))
    return data.getvalue()


class FakeContext:
    """A `GradeContext` that answers from functions and notes what it was asked."""

    seed = 11

    def __init__(
        self,
        judge: Callable[[Question], str | None] = lambda _: None,
        run: Callable[[SandboxJob], JobEnd] = lambda _: JobEnd(0, b"", b""),
    ) -> None:
        self._judge, self._run = judge, run
        self.asked: list[Question] = []
        self.jobs: list[SandboxJob] = []

    def ask(self, question: Question) -> Reply:
        self.asked.append(question)
        text = self._judge(question)
        number = f"{len(self.asked):064d}"
        return Reply(text, "" if text is not None else "no form of its API", number, number)

    def run(self, job: SandboxJob) -> JobEnd:
        self.jobs.append(job)
        return self._run(job)


class FakeCharge:
    def __init__(self, account: "FakeAccount", key: str) -> None:
        self._account, self.idempotency_key = account, key

    def settle(self, status: int, headers: Headers, body: bytes, outcome: Outcome) -> None:
        assert self.idempotency_key not in self._account.settled, "settled twice"
        self._account.settled[self.idempotency_key] = ServedAnswer(status, headers, body, outcome)


class FakeAccount:
    """Admits `n_admitted` calls, serves what was paid before, and notes how each was settled."""

    def __init__(self, n_admitted: int = 10**9, paid: Sequence[ServedAnswer] = ()) -> None:
        self.n_admitted = n_admitted
        self.paid = list(paid)
        self.reserved: list[SentRequest] = []
        self.settled: dict[str, ServedAnswer] = {}
        self._lock = threading.Lock()

    def reserve(self, model: PlanModel, request: SentRequest) -> FakeCharge | ServedAnswer:
        with self._lock:
            if self.paid:
                return self.paid.pop(0)
            if len(self.reserved) >= self.n_admitted:
                raise CeilingReached("judging: 0.2 USD")
            self.reserved.append(request)
            return FakeCharge(self, f"charge-{len(self.reserved)}")


class ScriptedJudge:
    """An in-process model of the Chat Completions form."""

    def __init__(self, say: Callable[[str], str]) -> None:
        self._say = say
        self.bodies: list[dict[str, Any]] = []

    def answer(self, request: SentRequest) -> ServedAnswer:
        body = canonical.decode_value(request.body)
        self.bodies.append(body)
        said = self._say(body["messages"][-1]["content"])
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": len(request.body), "completion_tokens": body["max_tokens"]}
        data = canonical.encode({"model": "m", "choices": [choice], "usage": usage})
        return ServedAnswer(200, (("content-type", "application/json"),), data)


def opened(judge: ScriptedJudge) -> Mapping[str, OpenedModel]:
    return {MODEL.name: OpenedModel(MODEL, answer=judge)}


def answers_in(text: str) -> list[str]:
    """Give the answers in a judge's prompt, in the order shown."""
    found, lines = [], text.split("\n")
    marks = [n for n, line in enumerate(lines) if line.startswith("#") and " answer " in line]
    for start, stop in zip(marks[::2], marks[1::2], strict=True):
        found.append("\n".join(lines[start + 1 : stop]))
    return found
