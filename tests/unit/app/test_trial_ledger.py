"""A ledger is durable before anything is acted upon, and a resumed trial pays nothing twice."""

import threading
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from redrive.app.trial_accounts import LedgerCharge
from redrive.app.trial_ledger import TrialLedger, grade_subject
from redrive.app.trial_ports import Account, CeilingReached, OpenedModel
from redrive.capture.ports import Outcome as ExchangeOutcome
from redrive.capture.ports import ServedAnswer
from redrive.errors import RecordError, StoreError, UsageError
from redrive.replay.ledger import Basis, Graded, Stopped
from redrive.replay.trial_plan import PlanModel, TrialPlan
from redrive.replay.trial_values import EpisodeEnd, Outcome, Purpose
from tests.stored import opened, raw_database
from tests.trials import COMPLETE, KEYED, MODEL, chat_answer, chat_request, key, planned

ANSWER = chat_answer(40, 4)
COST = Decimal("0.00008")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def begun(path: Path, plan: TrialPlan | None = None) -> TrialLedger:
    return TrialLedger.begin(path, plan or planned(), b"the plan", now_ns=lambda: 7)


def run_account(ledger: TrialLedger) -> Account:
    ledger.start_run(key())
    return ledger.account(str(key()), Purpose.REPLAY)


def charge(account: Account, text: str = "x", model: PlanModel = MODEL) -> LedgerCharge:
    taken = account.reserve(model, chat_request(text))
    assert isinstance(taken, LedgerCharge)
    return taken


def pay(account: Account, text: str = "x", model: PlanModel = MODEL) -> LedgerCharge:
    taken = charge(account, text, model)
    taken.settle(200, (), ANSWER, ExchangeOutcome.COMPLETE)
    return taken


def replay_money(ledger: TrialLedger) -> tuple[Decimal, Decimal]:
    budget = ledger.ledger.budgets[Purpose.REPLAY]
    return budget.reserved, budget.spent


# --- beginning


def test_a_trial_begins_with_its_plan_and_every_run_that_is_planned(path: Path) -> None:
    with begun(path) as ledger:
        assert ledger.trial_id == f"triage-{planned().digest[:8]}"
        assert ledger.plan_document == b"the plan"
        assert len(ledger.ledger.runs.merged()) == 4
    with begun(path) as again:
        assert again.trial_id.endswith("@2")
    with opened(path) as store:
        assert [row.n_entries for row in store.trials.list_trials()] == [1, 1]
        assert store.verify().is_ok


def test_a_store_that_is_not_there_is_not_made_unless_asked_for(path: Path) -> None:
    with pytest.raises(UsageError, match="no store"):
        TrialLedger.begin(path, planned(), b"", create=False)
    with pytest.raises(UsageError, match="no store"):
        TrialLedger.resume(path, "triage")
    assert not path.exists()


def test_a_trial_is_held_by_one_process_and_free_after_its_end(path: Path) -> None:
    with begun(path) as ledger:
        with pytest.raises(StoreError, match="is being run by process"):
            TrialLedger.resume(path, "triage")
        ledger.start_run(key())
    with TrialLedger.resume(path, "triage") as again:
        assert again.start_run(key()) == 2


def test_a_trial_that_is_not_there_is_refused(path: Path) -> None:
    begun(path).close()
    with pytest.raises(UsageError, match="no trial 'other'"):
        TrialLedger.resume(path, "other")
    TrialLedger.resume(path, "triage").close()


def test_a_damaged_ledger_is_not_resumed_and_not_held(path: Path) -> None:
    with begun(path) as ledger:
        ledger.start_run(key())
    with raw_database(path) as connection:
        connection.execute("UPDATE trial_entries SET number = 5 WHERE number = 1")
    for _ in range(2):
        with pytest.raises(Exception, match="does not match its seal"):
            TrialLedger.resume(path, "triage")


# --- money


def test_a_reservation_is_stored_before_it_is_given(path: Path) -> None:
    with begun(path) as ledger:
        taken = charge(run_account(ledger))
        with opened(path, read_only=True) as store:
            *_, last = store.trials.entries(ledger.trial_id)
        assert last.fact == ledger.ledger.open_charges[0].reserved
        assert replay_money(ledger) == (taken.usd, 0)
        taken.settle(200, (), ANSWER, ExchangeOutcome.COMPLETE)
        assert replay_money(ledger) == (0, COST)


def test_a_charge_is_settled_once_whatever_comes_later(path: Path) -> None:
    with begun(path) as ledger:
        taken = pay(run_account(ledger))
        taken.settle(0, (), b"", ExchangeOutcome.CANCELLED)
        taken.settle(200, (), chat_answer(9, 9), ExchangeOutcome.COMPLETE)
        assert replay_money(ledger) == (0, COST)


def test_at_a_ceiling_nothing_is_reserved_and_the_stop_is_noted_once(path: Path) -> None:
    with begun(path, planned(replay="0.0005")) as ledger:
        account = run_account(ledger)
        held = charge(account)
        n_before = ledger.ledger.n_entries
        for text in ("y", "z", "y"):
            with pytest.raises(CeilingReached, match="replay"):
                account.reserve(MODEL, chat_request(text, max_tokens=40))
        assert ledger.ledger.n_entries == n_before + 1
        (stop,) = ledger.ledger.stops.values()
        assert stop.purpose is Purpose.REPLAY
        assert "the replay ceiling of 0.0005 USD is reached: 0.00 spent" in stop.reason
        assert replay_money(ledger) == (held.usd, 0)


def test_judgements_are_not_paid_from_the_replay_ceiling(path: Path) -> None:
    with begun(path, planned(replay="0")) as ledger:
        with pytest.raises(CeilingReached):
            run_account(ledger).reserve(MODEL, chat_request("x"))
        pay(ledger.account(grade_subject("task-1", "judge"), Purpose.JUDGING))
        assert ledger.ledger.budgets[Purpose.JUDGING].spent == COST


def test_a_ledger_that_cannot_be_written_admits_nothing_any_more(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with begun(path) as ledger:
        account = run_account(ledger)
        held = charge(account)
        with monkeypatch.context() as patch:
            patch.setattr("redrive.stores.trials.append_row", fail)
            with pytest.raises(StoreError, match="the disk is full"):
                account.reserve(MODEL, chat_request("y"))
        for _ in range(2):
            with pytest.raises(StoreError, match="could not be written: the disk is full"):
                account.reserve(MODEL, chat_request("y"))
            with pytest.raises(StoreError, match="could not be written"):
                held.settle(200, (), ANSWER, ExchangeOutcome.COMPLETE)
    with TrialLedger.resume(path, "triage") as again:
        assert [s.reserved.charge for s in again.ledger.open_charges] == [held.idempotency_key]


def test_a_closed_ledger_refuses(path: Path) -> None:
    ledger = begun(path)
    account = run_account(ledger)
    ledger.close()
    ledger.close()
    with pytest.raises(StoreError, match="is closed"):
        account.reserve(MODEL, chat_request("x"))


def test_a_trial_goes_on_under_other_ceilings(path: Path) -> None:
    with begun(path, planned(replay="0")) as ledger, pytest.raises(CeilingReached):
        run_account(ledger).reserve(MODEL, chat_request("x"))
    with TrialLedger.resume(path, "triage") as again:
        n_before = again.ledger.n_entries
        again.change_ceilings({Purpose.REPLAY: Decimal(0), Purpose.JUDGING: Decimal(1)})
        assert again.ledger.n_entries == n_before
        again.change_ceilings({Purpose.REPLAY: Decimal(1)})
        pay(run_account(again))
        assert not again.ledger.stops


# --- runs and judgements


def test_the_end_of_a_run_settles_what_it_left_open(path: Path) -> None:
    with begun(path) as ledger:
        account = run_account(ledger)
        pay(account, "paid")
        left = [charge(account, "left", model) for model in (MODEL, KEYED)]
        other = charge(ledger.account("other", Purpose.REPLAY))
        ledger.finish_run(key(), COMPLETE)
        assert replay_money(ledger) == (other.usd, COST + sum(c.usd for c in left))
        left[0].settle(200, (), ANSWER, ExchangeOutcome.COMPLETE)
        assert replay_money(ledger)[1] == COST + sum(c.usd for c in left)
        with pytest.raises(RecordError, match="is finished"):
            ledger.start_run(key())


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.CEILING])
def test_a_run_that_will_be_made_again_leaves_its_charges_open(
    path: Path, outcome: Outcome
) -> None:
    with begun(path) as ledger:
        held = charge(run_account(ledger))
        ledger.finish_run(key(), EpisodeEnd(outcome))
        assert replay_money(ledger) == (held.usd, 0)
        assert ledger.start_run(key()) == 2


def test_a_judgement_settles_what_it_left_open(path: Path) -> None:
    with begun(path) as ledger:
        held = charge(ledger.account(grade_subject("task-1", "judge"), Purpose.JUDGING))
        ledger.grade(Graded("task-1", "judge", Raw(b"{}")))
        budget = ledger.ledger.budgets[Purpose.JUDGING]
        assert (budget.reserved, budget.spent) == (0, held.usd)


def test_an_interruption_is_noted_once_in_each_process(path: Path) -> None:
    for _ in range(2):
        with begun(path) if not path.exists() else TrialLedger.resume(path, "triage") as ledger:
            ledger.stop("interrupted")
            ledger.stop("interrupted")
    with opened(path) as store:
        facts = [e.fact for e in store.trials.entries(ledger.trial_id)]
    assert facts[1:] == [Stopped("interrupted")] * 2


def test_engines_started_here_are_named_by_their_own_fingerprint(path: Path) -> None:
    with begun(path) as ledger:
        ledger.note_models([OpenedModel(MODEL, fingerprint="sha256:1f"), OpenedModel(KEYED)])
        taken = [pay(run_account(ledger), "x", MODEL), pay(run_account(ledger), "x", KEYED)]
        states = [ledger.ledger.charges.find(c.idempotency_key) for c in taken]
        found = [s.settled.fingerprint for s in states if s is not None and s.settled is not None]
        assert found == ["sha256:1f", "served"]


# --- resuming


def test_a_resumed_run_is_given_the_answers_that_were_paid_for_in_order(path: Path) -> None:
    answers = [chat_answer(10, n, f"answer {n}") for n in range(3)]
    with begun(path) as ledger:
        account = run_account(ledger)
        for text, answer in zip(("x", "y", "x"), answers, strict=True):
            headers = (("content-type", "application/json"), ("set-cookie", "secret"))
            charge(account, text).settle(200, headers, answer, ExchangeOutcome.COMPLETE)
        spent = replay_money(ledger)
    with TrialLedger.resume(path, "triage") as again:
        assert again.n_settled(str(key())) == {"small": 3}
        account = run_account(again)
        n_before = again.ledger.n_entries
        served = [account.reserve(MODEL, chat_request(text)) for text in ("x", "x", "y")]
        expected = [answers[0], answers[2], answers[1]]
        kept = (("content-type", "application/json"),)
        assert served == [ServedAnswer(200, kept, body) for body in expected]
        assert (again.ledger.n_entries, replay_money(again)) == (n_before, spent)
        charge(account, "x")


def test_another_subject_or_model_is_not_given_an_answer(path: Path) -> None:
    with begun(path) as ledger:
        pay(run_account(ledger))
        charge(ledger.account(str(key(2)), Purpose.REPLAY))
        charge(ledger.account(str(key()), Purpose.REPLAY), "x", KEYED)


def test_an_error_costs_nothing_and_is_given_again_where_it_was_asked_again(path: Path) -> None:
    with begun(path) as ledger:
        account = run_account(ledger)
        charge(account).settle(429, (), b"slow", ExchangeOutcome.COMPLETE)
        assert replay_money(ledger) == (0, 0)
        pay(account)
    with TrialLedger.resume(path, "triage") as again:
        account = run_account(again)
        given = [account.reserve(MODEL, chat_request("x")) for _ in range(2)]
        slow = ServedAnswer(429, (), b"slow")
        assert given == [slow, ServedAnswer(200, (), ANSWER)]


def test_an_error_that_was_the_last_word_is_asked_anew(path: Path) -> None:
    with begun(path) as ledger:
        first = charge(run_account(ledger))
        first.settle(401, (), b"who are you", ExchangeOutcome.COMPLETE)
    with TrialLedger.resume(path, "triage") as again:
        second = pay(run_account(again))
        assert second.idempotency_key != first.idempotency_key
        assert replay_money(again) == (0, COST)
    with TrialLedger.resume(path, "triage") as third:
        given = run_account(third).reserve(MODEL, chat_request("x"))
        assert given == ServedAnswer(200, (), ANSWER)


def test_an_open_charge_is_sent_again_under_its_key_where_that_is_billed_once(path: Path) -> None:
    with begun(path) as ledger:
        first = charge(run_account(ledger), "x", KEYED)
        cut = charge(ledger.account(str(key()), Purpose.REPLAY), "cut", KEYED)
        cut.settle(200, (), ANSWER[:9], ExchangeOutcome.CUT)
        before = replay_money(ledger)
    with TrialLedger.resume(path, "triage") as again:
        account = run_account(again)
        n_before = again.ledger.n_entries
        same, same_cut = charge(account, "x", KEYED), charge(account, "cut", KEYED)
        assert same.idempotency_key == first.idempotency_key
        assert same_cut.idempotency_key == cut.idempotency_key
        assert (again.ledger.n_entries, replay_money(again)) == (n_before, before)
        for taken in (same, same_cut):
            taken.settle(200, (), ANSWER, ExchangeOutcome.COMPLETE)
        assert replay_money(again) == (0, 2 * COST)


def test_an_open_charge_counts_in_full_where_a_key_means_nothing(path: Path) -> None:
    with begun(path) as ledger:
        first = charge(run_account(ledger))
    with TrialLedger.resume(path, "triage") as again:
        second = charge(run_account(again))
        assert second.idempotency_key != first.idempotency_key
        assert replay_money(again) == (second.usd, first.usd)
        state = again.ledger.charges.find(first.idempotency_key)
        assert state is not None
        assert state.settled is not None
        assert state.settled.basis == Basis.RESERVATION
    with TrialLedger.resume(path, "triage") as third:
        charge(run_account(third))
        assert replay_money(third) == (first.usd, 2 * first.usd)


def test_at_the_ceiling_an_answer_that_was_paid_for_is_still_given(path: Path) -> None:
    with begun(path, planned(replay="0.0003")) as ledger:
        pay(run_account(ledger))
    with TrialLedger.resume(path, "triage") as again:
        account = run_account(again)
        with pytest.raises(CeilingReached):
            account.reserve(MODEL, chat_request("y", max_tokens=99))
        assert isinstance(account.reserve(MODEL, chat_request("x")), ServedAnswer)


def test_eight_threads_never_pass_the_ceiling(path: Path) -> None:
    plan = planned(variants=4, tasks=2, replay="0.003")
    with begun(path, plan) as ledger:
        refused = []

        def work(number: int) -> None:
            account = ledger.account(f"s{number}", Purpose.REPLAY)
            try:
                for turn in range(6):
                    pay(account, f"{turn}")
            except CeilingReached:
                refused.append(number)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        budget = ledger.ledger.budgets[Purpose.REPLAY]
        assert budget.reserved == 0
        assert budget.spent <= budget.ceiling
        assert refused, "the control: the ceiling was reached"
    with opened(path) as store:
        assert store.verify().is_ok
    with TrialLedger.resume(path, "triage") as again:
        assert again.ledger.budgets == ledger.ledger.budgets


def test_the_state_held_is_the_fold_of_what_is_stored(path: Path) -> None:
    with begun(path) as ledger:
        account = run_account(ledger)
        pay(account)
        charge(account, "y")
        held = ledger.ledger
    with TrialLedger.resume(path, "triage") as again:
        assert msgspec.json.encode(again.ledger.opened) == msgspec.json.encode(held.opened)
        assert again.ledger.budgets == held.budgets
        assert again.ledger.charges.merged() == held.charges.merged()
        assert again.ledger.subjects.merged() == held.subjects.merged()
