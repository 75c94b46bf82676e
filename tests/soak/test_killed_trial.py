"""`kill -9` at any moment of a trial: all that was billed is in the ledger, and nothing twice."""

import os
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from msgspec.structs import replace

from redrive import canonical
from redrive.app.trial_ledger import TrialLedger
from redrive.capture.ports import Outcome, ServedAnswer
from redrive.replay.ledger import Basis, Finished, Ledger, apply, fold
from redrive.replay.trial_plan import PlanModel
from redrive.replay.trial_values import FINISHED, Purpose
from tests.billing_endpoint import Bills, started_endpoint
from tests.soak.trials import PLAN, Endpoint, Killer, run_trial, started_killer
from tests.stored import opened
from tests.trials import MODEL, chat_body

KILLS = 100 if os.environ.get("REDRIVE_SOAK") == "full" else 20
MOST_BILLS = 30
LONGEST_MS = 12
NEVER = 10**6


class Soak:
    """Trials under one endpoint, one after the other, killed and resumed until each is done."""

    def __init__(self, folder: Path, killer: Killer, bills: Bills, words: str) -> None:
        self.folder, self.killer, self.bills, self.words = folder, killer, bills, words
        self.n_kills = self.n_trials = self.n_open = 0
        self._draws = canonical.stream("kill", f"trial {words}")

    def run_one(self) -> Ledger:
        """Run a trial to its end, over kills; give its ledger."""
        self.n_trials += 1
        store = self.folder / f"{self.n_trials}.db"
        while True:
            is_last = self.n_kills >= KILLS
            n_bills = NEVER if is_last else 1 + next(self._draws) % MOST_BILLS
            after_ms = next(self._draws) % LONGEST_MS
            is_killed = self.killer.run(
                store, self.bills.path, n_bills=n_bills, after_ms=after_ms, words=self.words
            )
            if not is_killed:
                return check_ledger(store)
            self.n_kills += 1
            self.n_open += self._check_killed(store)

    def _check_killed(self, store: Path) -> bool:
        """Hold that no bill is unknown to the ledger; say whether one was open."""
        with opened(store) as found:
            if not found.trials.list_trials():
                return False
        ledger = check_ledger(store, is_over=False)
        billed = self.bills.usd_of(set(ledger.charges.merged()))
        budget = ledger.budgets[Purpose.REPLAY]
        assert budget.spent + budget.reserved >= billed, "a bill is unknown to the ledger"
        return bool(ledger.open_charges)


def check_ledger(store: Path, *, is_over: bool = True) -> Ledger:
    """Hold what every ledger promises, at every entry; give the ledger."""
    with opened(store) as found:
        verified = found.verify()
        assert verified.is_ok, verified.faults
        (trial,) = found.trials.list_trials()
        entries = list(found.trials.entries(trial.trial_id))
    ledger, ends = Ledger(), Counter[str]()
    for entry in entries:
        ledger = apply(ledger, entry)
        for budget in ledger.budgets.values():
            assert budget.spent + budget.reserved <= budget.ceiling, "a ceiling is passed"
        if isinstance(entry.fact, Finished) and entry.fact.end.outcome in FINISHED:
            ends[str(entry.fact.key)] += 1
    assert ledger.overrun_usd == 0, "more was spent than was reserved"
    assert set(ends.values()) <= {1}, "a run finished twice"
    if is_over:
        assert len(ends) == PLAN.n_runs, "a run is missing"
        assert not ledger.open_charges
    return ledger


def check_sum(ledger: Ledger, bills: Bills) -> None:
    """Hold that the bills of a ledger's charges add up to what it says was spent."""
    spent = ledger.budgets[Purpose.REPLAY].spent
    billed = bills.usd_of(set(ledger.charges.merged()))
    assert spent == billed, "the ledger is not the sum of the bills"


def test_a_killed_trial_pays_nothing_twice_and_forgets_nothing(tmp_path: Path) -> None:
    bills = Bills(tmp_path / "bills")
    spent = Decimal(0)
    with (
        started_endpoint(bills.path, delay_ms=6) as url,
        started_killer(url) as killer,
    ):
        soak = Soak(tmp_path, killer, bills, "keyed")
        while soak.n_kills < KILLS:
            ledger = soak.run_one()
            check_sum(ledger, bills)
            spent += ledger.budgets[Purpose.REPLAY].spent
    assert spent == bills.usd, "no bill but those of the ledgers"
    keys = [key for key, _ in bills.lines]
    assert len(keys) == len(set(keys))
    assert soak.n_open >= KILLS // 4, "the control: killed while something was asked"


def test_where_keys_mean_nothing_the_ledger_counts_no_less_than_was_billed(tmp_path: Path) -> None:
    bills = Bills(tmp_path / "bills")
    with (
        started_endpoint(bills.path, ignores_keys=True, delay_ms=6) as url,
        started_killer(url) as killer,
    ):
        soak = Soak(tmp_path, killer, bills, "")
        ledger = soak.run_one()
        spent = ledger.budgets[Purpose.REPLAY].spent
        assert spent > bills.usd_of(set(ledger.charges.merged()))
    assert soak.n_open, "the control: killed while something was asked"


def test_a_plan_that_is_wrong_about_keys_is_caught(tmp_path: Path) -> None:
    bills = Bills(tmp_path / "bills")
    with (
        started_endpoint(bills.path, ignores_keys=True, delay_ms=6) as url,
        started_killer(url) as killer,
    ):
        soak = Soak(tmp_path, killer, bills, "keyed")
        with pytest.raises(AssertionError, match=r"unknown to the ledger|sum of the bills"):
            check_sum(soak.run_one(), bills)


def test_a_ledger_that_forgets_to_settle_is_caught(tmp_path: Path) -> None:
    bills = Bills(tmp_path / "bills")
    with started_endpoint(bills.path) as url:
        run_trial(tmp_path / "1.db", url, "keyed,forgetful")
        with pytest.raises(AssertionError, match="not the sum of the bills"):
            check_sum(check_ledger(tmp_path / "1.db"), bills)


def test_eight_runs_at_a_time_add_up_to_what_was_billed(tmp_path: Path) -> None:
    bills = Bills(tmp_path / "bills")
    with started_endpoint(bills.path, delay_ms=3) as url:
        run_trial(tmp_path / "1.db", url, "")
        ledger = check_ledger(tmp_path / "1.db")
        check_sum(ledger, bills)
        assert ledger.budgets[Purpose.REPLAY].spent == bills.usd > 0
        n_bills = len(bills.lines)
        assert n_bills == len(ledger.charges.merged()) == PLAN.n_runs * 7
        run_trial(tmp_path / "1.db", url, "")
        assert len(bills.lines) == n_bills, "what is finished is not asked again"


def ask_all(ledger: TrialLedger, url: str, model: PlanModel) -> list[ServedAnswer]:
    account = ledger.account("s", Purpose.REPLAY)
    said = [
        f"{fault} {n}" for fault in ("fine", "fault:429", "fault:500", "fault:cut") for n in "ab"
    ]
    return [Endpoint(url).ask(account, model, chat_body(text)) for text in said]


@pytest.mark.parametrize("is_keyed", [False, True])
def test_refusals_cost_nothing_and_what_was_cut_is_never_forgotten(
    tmp_path: Path, *, is_keyed: bool
) -> None:
    bills, model = Bills(tmp_path / "bills"), replace(MODEL, is_idempotent=is_keyed)
    with (
        started_endpoint(bills.path) as url,
        TrialLedger.begin(tmp_path / "1.db", PLAN, b"") as ledger,
    ):
        answers = ask_all(ledger, url, model)
        assert [answer.status for answer in answers] == [200, 200, 429, 429, 500, 500, 200, 200]
        assert [answer.outcome for answer in answers[-2:]] == [Outcome.CUT] * 2
        assert len(bills.lines) == 4, "two answers, and two that were cut"
        states = ledger.ledger.charges.merged().values()
        settled = [state.settled for state in states]
        bases = ["open" if one is None else str(one.basis) for one in settled]
        rest = "open" if is_keyed else Basis.RESERVATION
        assert bases == [Basis.USAGE] * 2 + [Basis.ERROR] * 4 + [rest] * 2
        budget = ledger.ledger.budgets[Purpose.REPLAY]
        assert budget.spent + budget.reserved > bills.usd
        again = ask_all(ledger, url, model)
        assert again[:6] == [
            replace(answer, headers=again[n].headers) for n, answer in enumerate(answers[:6])
        ]
        assert len(bills.lines) == 4, "nothing is billed twice"


def test_the_check_finds_a_ledger_that_lost_an_entry(tmp_path: Path) -> None:
    bills = Bills(tmp_path / "bills")
    with started_endpoint(bills.path) as url:
        run_trial(tmp_path / "1.db", url, "")
    with TrialLedger.resume(tmp_path / "1.db", "triage") as ledger:
        entries = list(ledger._tables.entries(ledger.trial_id))
    shorter = fold(entries[:-40])
    with pytest.raises(AssertionError, match="not the sum of the bills"):
        check_sum(shorter, bills)
