"""Keeps the ledger of one trial while it runs: every entry is durable before it is acted upon.

Knows the store's trials, the fold of the ledger, and how model calls are metered. Must not know
sandboxes, plan files or graders. Any thread may use it; one lock orders all entries.

Source: DESIGN.md §6; docs/trial-ledger.md.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from redrive.app.trial_accounts import LedgerAccount, LedgerCharge, Question
from redrive.app.trial_answers import Settlement, parse_answer, settle_by_answer
from redrive.app.trial_ports import CeilingReached, OpenedModel
from redrive.capture.ports import ServedAnswer
from redrive.errors import RedriveError, StoreError
from redrive.replay.ledger import (
    Basis,
    Budget,
    ChargeState,
    Entry,
    Fact,
    Finished,
    Graded,
    Ledger,
    Opened,
    Reserved,
    Settled,
    Started,
    Stopped,
    admit,
    apply,
    fold,
)
from redrive.replay.money import dump_usd
from redrive.replay.trial_plan import PlanModel, TrialPlan, plan_runs
from redrive.replay.trial_values import FINISHED, EpisodeEnd, Purpose, RunKey
from redrive.stores.database import Database, open_database
from redrive.stores.recording_lock import hold_trial
from redrive.stores.schema import migrate
from redrive.stores.trials import SqliteTrialTables

BUSY_TIMEOUT_MS = 30_000
"""Episodes are stored by other connections meanwhile; giving up would end the trial."""

NowNs = Callable[[], int]


def grade_subject(task_id: str, grader: str) -> str:
    """Name the judgement of one task's episodes by one grader, as the ledger's subjects do."""
    return f"grade:{task_id}:{grader}"


class TrialLedger:
    """The ledger of one trial, held by this process; see `begin` and `resume`.

    A write that fails poisons it: whatever is asked of it then is refused, since only the store
    knows what it holds.
    """

    def __init__(
        self, trial_id: str, database: Database, resources: ExitStack, now_ns: NowNs
    ) -> None:
        self.trial_id = trial_id
        self._tables = SqliteTrialTables(database)
        self._resources = resources
        self._now_ns = now_ns
        self._lock = threading.RLock()
        self._stopped: set[Purpose | None] = set()
        self._fingerprints: dict[str, str] = {}
        self._fault: str | None = None
        self._ledger = fold(self._tables.entries(trial_id))
        self._open_charges: dict[str, list[str]] = {}
        self._answered: dict[str, Counter[str]] = {}
        for state in self._ledger.charges.merged().values():
            self._note_charge(state.reserved)
            if state.settled is not None:
                self._note_charge(state.settled)

    @classmethod
    def begin(
        cls,
        store: Path,
        plan: TrialPlan,
        document: bytes,
        *,
        create: bool = True,
        now_ns: NowNs = time.time_ns,
    ) -> Self:
        """Begin a trial: store its plan and what is to be run, and hold it for this process.

        Args:
            store: where sessions lie.
            plan: what is to be run.
            document: what a resumed trial needs of the plan; any bytes.
            create: make the store if it does not exist.
            now_ns: the clock, in UTC nanoseconds.

        Raises:
            UsageError: the store does not exist, and `create` is false.
            StoreError: it cannot be written.
        """
        with ExitStack() as undo:
            database = _open(store, undo, create=create)
            tables = SqliteTrialTables(database)
            with database.transaction():
                base_id = f"{plan.name}-{plan.digest[:8]}"
                row = tables.create(base_id, plan.digest, document, now_ns())
                runs = tuple(plan_runs(plan))
                opened = Opened(row.trial_id, plan.digest, runs, dict(plan.ceilings))
                tables.append(row.trial_id, [Entry(0, row.created_ns, opened)])
                undo.callback(hold_trial(store, row.trial_id).release)
            ledger = cls(row.trial_id, database, undo, now_ns)
            ledger._resources = undo.pop_all()
        return ledger

    @classmethod
    def resume(cls, store: Path, name: str, *, now_ns: NowNs = time.time_ns) -> Self:
        """Go on with a stored trial, and hold it for this process.

        Args:
            store: where it lies.
            name: its id, or a unique prefix of it.
            now_ns: the clock, in UTC nanoseconds.

        Raises:
            UsageError: there is no such store or trial.
            StoreError: another process runs it, which is named; or the store cannot be written.
            RecordError, TamperError: its ledger is damaged.
        """
        with ExitStack() as undo:
            database = _open(store, undo, create=False)
            trial_id = SqliteTrialTables(database).get_trial(name).trial_id
            undo.callback(hold_trial(store, trial_id).release)
            ledger = cls(trial_id, database, undo, now_ns)
            ledger._resources = undo.pop_all()
        return ledger

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the trial and the store's connection; idempotent."""
        with self._lock:
            self._fault = self._fault or f"the ledger of trial {self.trial_id} is closed"
            self._resources.close()

    # --- what there is

    @property
    def ledger(self) -> Ledger:
        """What all entries so far fold to."""
        return self._ledger

    @property
    def plan_document(self) -> bytes:
        """What the trial was begun with."""
        with self._lock:
            return self._tables.get_plan(self.trial_id)

    def n_settled(self, subject: str) -> Mapping[str, int]:
        """Count the settled answers of a subject by model: what its next execution is given."""
        with self._lock:
            return dict(self._answered.get(subject, {}))

    # --- what happens

    def note_models(self, models: Iterable[OpenedModel]) -> None:
        """Take the fingerprints of engines that were started here: they know better."""
        self._fingerprints.update(
            {m.plan.name: m.fingerprint for m in models if m.fingerprint is not None}
        )

    def change_ceilings(self, ceilings: Mapping[Purpose, Decimal]) -> None:
        """Go on under other ceilings; nothing is written where they are equal."""
        with self._lock:
            opened = self._ledger.opened
            if opened is not None and dict(opened.ceilings) != dict(ceilings):
                self._append(msgspec.structs.replace(opened, ceilings=dict(ceilings)))

    def start_run(self, key: RunKey) -> int:
        """Note that a run is started; give which execution of it this is, from 1.

        Raises:
            RecordError: it is not planned, or is finished.
        """
        with self._lock:
            state = self._ledger.runs.find(key)
            execution = 1 if state is None else state.execution + 1
            self._append(Started(key, execution))
            return execution

    def finish_run(self, key: RunKey, end: EpisodeEnd) -> None:
        """Note how a run ended; charges of it that are open then cost what was reserved.

        Of one that will be run again they stay open: its next execution settles them.

        Raises:
            RecordError: it was not started, or has ended.
        """
        with self._lock:
            settled = self._settle_all(str(key)) if end.outcome in FINISHED else []
            self._append(*settled, Finished(key, end))

    def grade(self, graded: Graded) -> None:
        """Note a judgement; its open charges cost what was reserved.

        Raises:
            RecordError: this grader judged this task already.
        """
        with self._lock:
            subject = grade_subject(graded.task_id, graded.grader)
            self._append(*self._settle_all(subject), graded)

    def stop(self, reason: str, purpose: Purpose | None = None) -> None:
        """Note that the trial stops; a second time for the same purpose nothing is noted.

        Where a purpose is named, nothing is reserved for it any more in this process.
        """
        with self._lock:
            if purpose not in self._stopped:
                self._append(Stopped(reason, purpose))
                self._stopped.add(purpose)

    def account(self, subject: str, purpose: Purpose) -> LedgerAccount:
        """Open the account of a run (`str(RunKey)`) or a judgement (`grade_subject`).

        One account is one execution: what it asks is counted anew, so that equal requests get the
        answers that earlier executions paid for, in order.
        """
        return LedgerAccount(self, subject, purpose)

    # --- money; for `LedgerAccount` and `LedgerCharge` alone

    def reserve(
        self, model: PlanModel, purpose: Purpose, question: Question, usd: Decimal
    ) -> LedgerCharge | ServedAnswer:
        """Reserve an amount, or give the answer that was paid for; see `Account.reserve`."""
        subject, sha256, occurrence = question
        with self._lock:
            self._require_sound()
            known = self._ledger.find_charge((subject, model.name, sha256, occurrence))
            facts: list[Fact] = []
            if known is not None and known.settled is None:
                if model.is_idempotent:
                    return LedgerCharge(self, model, known.reserved)
                facts.append(_all_of(known.reserved))
            elif known is not None and known.settled is not None:
                paid = known.settled.answer_sha256
                if paid is not None and not self._is_last_error(known, model, question):
                    return parse_answer(self._tables.get_answer(paid))
            self._require_admitted(purpose, subject, usd)
            charge = f"redrive-{uuid.uuid4().hex}"
            reserved = Reserved(charge, purpose, subject, model.name, usd, sha256, occurrence)
            self._append(*facts, reserved)
            return LedgerCharge(self, model, reserved)

    def _is_last_error(self, known: ChargeState, model: PlanModel, question: Question) -> bool:
        """Say whether an error was the last word on a question: it cost nothing, and is asked anew.

        One that was asked again comes again, so that what came behind it is served as well.
        """
        subject, sha256, occurrence = question
        if known.settled is None or known.settled.basis != Basis.ERROR:
            return False
        return self._ledger.find_charge((subject, model.name, sha256, occurrence + 1)) is None

    def settle(self, model: PlanModel, reserved: Reserved, answer: ServedAnswer) -> None:
        """Settle a charge by its answer, unless it is settled already; see `Charge.settle`."""
        fingerprint = self._fingerprints.get(model.name)
        settlement = settle_by_answer(model, reserved, answer, fingerprint=fingerprint)
        if settlement is None:
            return
        with self._lock:
            self._require_sound()
            state = self._ledger.charges.find(reserved.charge)
            if state is not None and state.settled is None:
                self._settle(settlement)

    def _settle(self, settlement: Settlement) -> None:
        answers = () if settlement.answer is None else (settlement.answer,)
        self._append(settlement.settled, answers=answers)

    def _require_admitted(self, purpose: Purpose, subject: str, usd: Decimal) -> None:
        """Stop the purpose where an amount passes its ceiling.

        Raises:
            CeilingReached: it does, or the purpose was stopped before.
        """
        if purpose in self._stopped:
            raise CeilingReached(f"the ceiling of {purpose} was reached")
        if admit(self._ledger, purpose, usd):
            return
        budget = self._ledger.budgets.get(purpose, Budget())
        reason = (
            f"the {purpose} ceiling of {dump_usd(budget.ceiling)} USD is reached: "
            f"{dump_usd(budget.spent)} spent, {dump_usd(budget.reserved)} reserved, and the next "
            f"call of {subject} may cost {dump_usd(usd)}"
        )
        self.stop(reason, purpose)
        raise CeilingReached(reason)

    def _settle_all(self, subject: str) -> list[Fact]:
        """Give the entries that settle what is open of a subject, at its reservation."""
        charges = self._open_charges.get(subject, [])
        states = [self._ledger.charges.find(charge) for charge in charges]
        return [_all_of(state.reserved) for state in states if state is not None]

    def _append(self, *facts: Fact, answers: Sequence[bytes] = ()) -> None:
        """Make entries durable, then part of the ledger; the lock is held.

        Raises:
            RecordError: one of them cannot follow; nothing is written.
            StoreError: the store cannot be written, or could not be before.
        """
        self._require_sound()
        grown, entries = self._ledger, []
        for fact in facts:
            entry = Entry(grown.n_entries, self._now_ns(), fact)
            grown = apply(grown, entry)
            entries.append(entry)
        try:
            self._tables.append(self.trial_id, entries, answers)
        except BaseException as error:
            what = error.message if isinstance(error, RedriveError) else type(error).__name__
            self._fault = f"the ledger of trial {self.trial_id} could not be written: {what}"
            raise
        self._ledger = grown
        for fact in facts:
            self._note_charge(fact)

    def _note_charge(self, fact: Fact) -> None:
        match fact:
            case Reserved():
                self._open_charges.setdefault(fact.subject, []).append(fact.charge)
            case Settled():
                state = self._ledger.charges.find(fact.charge)
                if state is None:
                    return
                charge = state.reserved
                self._open_charges[charge.subject].remove(charge.charge)
                if fact.answer_sha256 is not None:
                    self._answered.setdefault(charge.subject, Counter())[charge.model] += 1
            case _:
                pass

    def _require_sound(self) -> None:
        if self._fault is not None:
            raise StoreError(self._fault)


def _all_of(reserved: Reserved) -> Settled:
    """Settle a charge of which nothing is known at all that was reserved."""
    return Settled(reserved.charge, reserved.usd, Basis.RESERVATION)


def _open(store: Path, undo: ExitStack, *, create: bool) -> Database:
    database = open_database(
        store, create=create, read_only=False, busy_timeout_ms=BUSY_TIMEOUT_MS, is_shared=True
    )
    undo.callback(database.close)
    migrate(database)
    return database
