"""Small trials for tests of the ledger: planned runs, entries, models, requests."""

import hashlib
from collections.abc import Sequence
from decimal import Decimal

from msgspec import Raw

from redrive import canonical
from redrive.audit.workflow import WorkflowSpec
from redrive.capture.ports import SentRequest
from redrive.replay.ledger import (
    Entry,
    Fact,
    Finished,
    Graded,
    Ledger,
    Opened,
    Reserved,
    Settled,
    Started,
    fold,
)
from redrive.replay.trial_plan import PlanModel, PlannedWorkflow, TrialPlan, plan_runs
from redrive.replay.trial_values import (
    EpisodeEnd,
    Outcome,
    Price,
    Purpose,
    RunKey,
    TrialTask,
    Usage,
)

PRICE = Price(Decimal("1.00"), Decimal("10.00"))
MODEL = PlanModel("small", "local", PRICE, max_tokens=16)
KEYED = PlanModel("keyed", "local", PRICE, max_tokens=16, is_idempotent=True)
COMPLETE = EpisodeEnd(Outcome.COMPLETE)
NS = 10**9


def planned(
    *, variants: int = 2, tasks: int = 2, attempts: int = 1, replay: str = "1", judging: str = "1"
) -> TrialPlan:
    """Plan a trial of workflows `w@1…` and tasks `task-1…`."""
    ceilings = {Purpose.REPLAY: Decimal(replay), Purpose.JUDGING: Decimal(judging)}
    workflows = [
        PlannedWorkflow(f"w.py:v{n}", WorkflowSpec("w", str(n)), "d")
        for n in range(1, variants + 1)
    ]
    made = [TrialTask(f"task-{n}", f"t{n}", Raw(b"{}")) for n in range(1, tasks + 1)]
    return TrialPlan(
        name="triage",
        workflows=tuple(workflows),
        tasks=tuple(made),
        models=(MODEL, KEYED),
        ceilings=ceilings,
        attempts=attempts,
        digest=canonical.text_digest("plan"),
    )


def key(variant: int = 1, task: int = 1, attempt: int = 1) -> RunKey:
    """Name a run of `planned()`."""
    return RunKey(f"w@{variant}", f"task-{task}", attempt)


def opened(plan: TrialPlan | None = None) -> Opened:
    """Give the first fact of a trial's ledger."""
    plan = plan or planned()
    return Opened("triage-1", plan.digest, tuple(plan_runs(plan)), dict(plan.ceilings))


def reserved(
    charge: str,
    usd: str = "0.10",
    *,
    purpose: Purpose = Purpose.REPLAY,
    subject: str = "s",
    sha256: str | None = None,
    occurrence: int = 0,
) -> Reserved:
    """Reserve for a question of its own, unless one is named."""
    digest = sha256 or canonical.text_digest(charge)
    return Reserved(charge, purpose, subject, "small", Decimal(usd), digest, occurrence)


def settled(charge: str, usd: str = "0.05", basis: str = "usage") -> Settled:
    """Settle a charge, without an answer."""
    return Settled(charge, Decimal(usd), basis)


def entries(*facts: Fact, start: int = 0) -> list[Entry]:
    """Number facts."""
    return [Entry(n, (n + 1) * NS, fact) for n, fact in enumerate(facts, start=start)]


def ledger_of(*facts: Fact, plan: TrialPlan | None = None) -> Ledger:
    """Fold facts behind the first one."""
    return fold(entries(opened(plan), *facts))


def chat_body(text: str, *, max_tokens: int | None = 16, **fields: object) -> bytes:
    """Write a chat request."""
    bounded = {} if max_tokens is None else {"max_tokens": max_tokens}
    messages = [{"role": "user", "content": text}]
    return canonical.encode({"model": "small", "messages": messages, **bounded, **fields})


def chat_request(text: str, **fields: object) -> SentRequest:
    """Make a chat request as a proxy sees it."""
    body = chat_body(text, **fields)  # type: ignore[arg-type] - the fields of a body
    return SentRequest("POST", "http://model/v1/chat/completions", (), body, NS)


def chat_answer(n_input: int, n_output: int, text: str = "yes") -> bytes:
    """Write a chat answer that tells its usage."""
    usage = {"prompt_tokens": n_input, "completion_tokens": n_output}
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop"}
    return canonical.encode({"model": "served", "choices": [choice], "usage": usage})


def whole_trial(answer: bytes) -> Sequence[Fact]:
    """Give facts of every kind behind the first, the answer named by one of them."""
    digest = hashlib.sha256(answer).hexdigest()
    charge = reserved("c1", subject=str(key()))
    paid = Settled("c1", Decimal("0.02"), "usage", Usage(10, 1), digest, "served")
    grade = Graded("task-1", "correct", Raw(b'{"w@1":1}'))
    return (Started(key(), 1), charge, paid, Finished(key(), COMPLETE), reserved("c2"), grade)
