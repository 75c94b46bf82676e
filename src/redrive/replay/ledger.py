"""The trial ledger: what was reserved, spent, started and finished, as a fold over entries.

Knows money and runs. Must not know where entries are kept, nor who asks for what. Entries only
grow; the state of a trial is what its entries fold to, on resume as while it runs.

Source: DESIGN.md §6 "a ledger with `purpose`".
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import StrEnum
from typing import assert_never

import msgspec
from msgspec import Raw
from msgspec.structs import replace as _replace

from redrive.errors import RecordError
from redrive.replay.money import ZERO, add, dump_usd, is_amount, subtract
from redrive.replay.persistent import Table
from redrive.replay.trial_values import (
    FINISHED,
    EpisodeEnd,
    PlannedRun,
    Purpose,
    RunKey,
    Usage,
)


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """A trial was begun: what is planned, under which ceilings.

    Again, of the same trial, plan and runs, where it goes on under other ceilings.
    """

    trial_id: str
    plan_digest: str
    runs: tuple[PlannedRun, ...]
    ceilings: Mapping[Purpose, Decimal]


class Started(msgspec.Struct, frozen=True, tag="started"):
    """A run was started; `execution` counts from 1, and is above 1 after an interruption."""

    key: RunKey
    execution: int


class Reserved(msgspec.Struct, frozen=True, tag="reserved"):
    """Spend was admitted, before the request was sent.

    Attributes:
        charge: unique in the trial; also the request's `Idempotency-Key`.
        purpose: what it is for.
        subject: who asked: `str(RunKey)` of a run, or `grade:TASK_ID:GRADER` of a judgement.
        model: the plan's name of it.
        usd: the bound that is held back.
        request_sha256: of the request's body.
        occurrence: how many equal requests this subject sent before; from 0.
    """

    charge: str
    purpose: Purpose
    subject: str
    model: str
    usd: Decimal
    request_sha256: str
    occurrence: int


class Basis(StrEnum):
    """What a settled amount rests on."""

    USAGE = "usage"  # the answer told its tokens
    ERROR = "error"  # the endpoint refused or failed with a status: nothing
    RESERVATION = "reservation"  # all that was held: no whole answer, or one that tells no usage


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """What a reserved call cost in the end.

    Attributes:
        charge: of the `Reserved` entry.
        usd: what it cost; never above what was reserved unless the endpoint says so.
        basis: a word of `Basis`.
        usage: as the answer told it.
        answer_sha256: artefact of the stored answer (status, headers, body), for a resumed run.
        fingerprint: of the model, as far as it says.
    """

    charge: str
    usd: Decimal
    basis: str
    usage: Usage | None = None
    answer_sha256: str | None = None
    fingerprint: str | None = None


class Finished(msgspec.Struct, frozen=True, tag="finished"):
    """A run ended, once and for all (or was cancelled, and will be run again)."""

    key: RunKey
    end: EpisodeEnd


class Graded(msgspec.Struct, frozen=True, tag="graded"):
    """One grader judged all episodes of one task; `result` is its JSON."""

    task_id: str
    grader: str
    result: Raw


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """A ceiling was reached (`purpose`), or the trial was interrupted (no purpose)."""

    reason: str
    purpose: Purpose | None = None


Fact = Opened | Started | Reserved | Settled | Finished | Graded | Stopped


class Entry(msgspec.Struct, frozen=True):
    """One line of a ledger: `number` is dense from 0."""

    number: int
    at_ns: int
    fact: Fact


class Budget(msgspec.Struct, frozen=True):
    """Money of one purpose in USD, or of one subject (which has no ceiling of its own)."""

    ceiling: Decimal = ZERO
    reserved: Decimal = ZERO
    spent: Decimal = ZERO


class ChargeState(msgspec.Struct, frozen=True):
    """A reservation, and how it was settled; `None` while it is open."""

    reserved: Reserved
    settled: Settled | None = None


class RunState(msgspec.Struct, frozen=True):
    """One run as far as it is.

    Attributes:
        planned: the run with its seed.
        execution: how often it was started; 0 before the first time.
        end: of the last execution; `None` where that is under way, was killed, or never began.
    """

    planned: PlannedRun
    execution: int = 0
    end: EpisodeEnd | None = None

    @property
    def is_finished(self) -> bool:
        """Whether it came to an end that stands: it is never run again."""
        return self.end is not None and self.end.outcome in FINISHED


AskKey = tuple[str, str, str, int]
"""Subject, model, sha256 of the request, occurrence: what an answer is served again for."""


class Ledger(msgspec.Struct, frozen=True):
    """What the entries of one trial fold to; `apply` gives the next one.

    Attributes:
        opened: the newest `Opened`; `None` before the first entry.
        n_entries: how many were applied: the number of the next one.
        budgets: by purpose; those with a ceiling, and those that something was reserved for.
        runs: every planned run by key, in the plan's order.
        charges: by charge, in the order reserved.
        asked: the newest charge of each question.
        subjects: what each subject reserved and spent.
        grades: by task and grader, in the order judged.
        stops: the newest stop by purpose, as long as nothing went on behind it.
        overrun_usd: by how much answers cost more than was reserved for them, in all.
    """

    opened: Opened | None = None
    n_entries: int = 0
    budgets: Mapping[Purpose, Budget] = {}
    runs: Table[RunKey, RunState] = Table()
    charges: Table[str, ChargeState] = Table()
    asked: Table[AskKey, str] = Table()
    subjects: Table[str, Budget] = Table()
    grades: Table[tuple[str, str], Graded] = Table()
    stops: Mapping[Purpose | None, Stopped] = {}
    overrun_usd: Decimal = ZERO

    @property
    def open_charges(self) -> tuple[ChargeState, ...]:
        """What was reserved and never settled, in the order reserved. Cost: O(charges)."""
        return tuple(c for c in self.charges.merged().values() if c.settled is None)

    def find_charge(self, key: AskKey) -> ChargeState | None:
        """Find the newest charge of a question."""
        charge = self.asked.find(key)
        return None if charge is None else self.charges.find(charge)


def fold(entries: Iterable[Entry]) -> Ledger:
    """Fold all entries of a trial, oldest first. Raises as `apply` does."""
    ledger = Ledger()
    for entry in entries:
        ledger = apply(ledger, entry)
    return ledger


def apply(ledger: Ledger, entry: Entry) -> Ledger:
    """Give the ledger with one more entry.

    Raises:
        RecordError: the entry cannot follow: its number is not the next, it is about a run or a
            charge that is not there or is done already, or it would pass a ceiling. The ledger
            stays as it was.

    Cost: O(log n) amortised; O(runs) for `Opened`.
    """
    if entry.number != ledger.n_entries:
        raise _refused(entry, f"expected entry {ledger.n_entries}")
    fact = entry.fact
    if ledger.opened is None and not isinstance(fact, Opened):
        raise _refused(entry, "a ledger begins with `opened`")
    match fact:
        case Opened():
            grown = _open(ledger, entry, fact)
        case Started():
            grown = _start(ledger, entry, fact)
        case Reserved():
            grown = _reserve(ledger, entry, fact)
        case Settled():
            grown = _settle(ledger, entry, fact)
        case Finished():
            grown = _finish(ledger, entry, fact)
        case Graded():
            grown = _grade(ledger, entry, fact)
        case Stopped():
            grown = _replace(ledger, stops={**ledger.stops, fact.purpose: fact})
        case _:
            assert_never(fact)
    return _replace(grown, n_entries=ledger.n_entries + 1)


def admit(ledger: Ledger, purpose: Purpose, usd: Decimal) -> bool:
    """Say whether an amount may be reserved: spent + reserved + it is no more than the ceiling.

    A purpose without a ceiling has one of 0: it admits what costs nothing.
    """
    budget = ledger.budgets.get(purpose, Budget())
    return add(budget.spent, budget.reserved, usd) <= budget.ceiling


def spend_document(ledger: Ledger) -> dict[str, dict[str, str]]:
    """Give what a report says of money, by purpose in alphabetical order, as decimal strings."""
    return {
        purpose.value: {
            "ceiling_usd": dump_usd(budget.ceiling),
            "reserved_usd": dump_usd(budget.reserved),
            "spent_usd": dump_usd(budget.spent),
        }
        for purpose, budget in sorted(ledger.budgets.items())
    }


def _open(ledger: Ledger, entry: Entry, fact: Opened) -> Ledger:
    if not all(map(is_amount, fact.ceilings.values())):
        raise _refused(entry, "a ceiling that is no amount of money")
    known = ledger.opened
    if known is None:
        runs: Table[RunKey, RunState] = Table()
        for planned in fact.runs:
            if runs.find(planned.key) is not None:
                raise _refused(entry, f"run {planned.key} is planned twice")
            runs = runs.set(planned.key, RunState(planned))
    elif _replace(known, ceilings=fact.ceilings) != fact:
        raise _refused(entry, "a trial goes on with its own plan and runs")
    else:
        runs = ledger.runs
    budgets = {purpose: Budget(usd) for purpose, usd in fact.ceilings.items()}
    for purpose, budget in ledger.budgets.items():
        ceiling = fact.ceilings.get(purpose, ZERO)
        budgets[purpose] = _replace(budget, ceiling=ceiling)
    return _replace(ledger, opened=fact, runs=runs, budgets=budgets, stops={})


def _start(ledger: Ledger, entry: Entry, fact: Started) -> Ledger:
    run = _get_run(ledger, entry, fact.key)
    if run.is_finished:
        raise _refused(entry, f"run {fact.key} is finished")
    if fact.execution != run.execution + 1:
        raise _refused(entry, f"run {fact.key}: expected execution {run.execution + 1}")
    started = RunState(run.planned, fact.execution)
    ledger = _without_stops(ledger, Purpose.REPLAY)
    return _replace(ledger, runs=ledger.runs.set(fact.key, started))


def _reserve(ledger: Ledger, entry: Entry, fact: Reserved) -> Ledger:
    if ledger.charges.find(fact.charge) is not None:
        raise _refused(entry, f"charge {fact.charge} is reserved twice")
    if not is_amount(fact.usd):
        raise _refused(entry, "no amount of money")
    if not admit(ledger, fact.purpose, fact.usd):
        raise _refused(entry, f"it passes the ceiling of {fact.purpose}")
    key = (fact.subject, fact.model, fact.request_sha256, fact.occurrence)
    earlier = ledger.find_charge(key)
    if earlier is not None and earlier.settled is None:
        raise _refused(entry, f"its question is open as charge {earlier.reserved.charge}")
    ledger = _without_stops(ledger, fact.purpose)
    return _replace(
        _spend(ledger, fact, reserved=fact.usd),
        charges=ledger.charges.set(fact.charge, ChargeState(fact)),
        asked=ledger.asked.set(key, fact.charge),
    )


def _settle(ledger: Ledger, entry: Entry, fact: Settled) -> Ledger:
    state = ledger.charges.find(fact.charge)
    if state is None or state.settled is not None:
        what = "was never reserved" if state is None else "is settled already"
        raise _refused(entry, f"charge {fact.charge} {what}")
    if not is_amount(fact.usd):
        raise _refused(entry, "no amount of money")
    held = state.reserved.usd
    over = max(ZERO, subtract(fact.usd, held))
    return _replace(
        _spend(ledger, state.reserved, reserved=held.copy_negate(), spent=fact.usd),
        charges=ledger.charges.set(fact.charge, _replace(state, settled=fact)),
        overrun_usd=add(ledger.overrun_usd, over),
    )


def _spend(ledger: Ledger, charge: Reserved, *, reserved: Decimal, spent: Decimal = ZERO) -> Ledger:
    """Move money of a purpose and of a subject."""

    def moved(budget: Budget | None) -> Budget:
        old = budget or Budget()
        return Budget(old.ceiling, add(old.reserved, reserved), add(old.spent, spent))

    budget = moved(ledger.budgets.get(charge.purpose))
    return _replace(
        ledger,
        budgets={**ledger.budgets, charge.purpose: budget},
        subjects=ledger.subjects.set(charge.subject, moved(ledger.subjects.find(charge.subject))),
    )


def _finish(ledger: Ledger, entry: Entry, fact: Finished) -> Ledger:
    run = _get_run(ledger, entry, fact.key)
    if not run.execution or run.end is not None:
        what = "is finished already" if run.execution else "was never started"
        raise _refused(entry, f"run {fact.key} {what}")
    return _replace(ledger, runs=ledger.runs.set(fact.key, _replace(run, end=fact.end)))


def _grade(ledger: Ledger, entry: Entry, fact: Graded) -> Ledger:
    key = (fact.task_id, fact.grader)
    if ledger.grades.find(key) is not None:
        raise _refused(entry, f"task {fact.task_id} is graded by {fact.grader} already")
    ledger = _without_stops(ledger, Purpose.JUDGING)
    return _replace(ledger, grades=ledger.grades.set(key, fact))


def _get_run(ledger: Ledger, entry: Entry, key: RunKey) -> RunState:
    run = ledger.runs.find(key)
    if run is None:
        raise _refused(entry, f"run {key} is not planned")
    return run


def _without_stops(ledger: Ledger, purpose: Purpose) -> Ledger:
    """Forget that a purpose, or the whole trial, was stopped: it goes on."""
    if not ledger.stops.keys() & {purpose, None}:
        return ledger
    stops = {p: stop for p, stop in ledger.stops.items() if p not in (purpose, None)}
    return _replace(ledger, stops=stops)


def _refused(entry: Entry, reason: str) -> RecordError:
    return RecordError(
        f"the trial's ledger is wrong: {reason}",
        where=f"entry {entry.number} ({type(entry.fact).__name__.lower()})",
    )
