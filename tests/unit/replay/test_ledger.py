"""The ledger is the fold of its entries: money is held back, then spent, within its ceiling."""

from decimal import Decimal

import msgspec
import pytest
from msgspec import Raw

from redrive.errors import RecordError
from redrive.replay.ledger import (
    Budget,
    Entry,
    Fact,
    Finished,
    Graded,
    Ledger,
    Opened,
    Started,
    Stopped,
    admit,
    apply,
    fold,
    spend_document,
)
from redrive.replay.trial_values import EpisodeEnd, Outcome, Purpose, RunKey
from tests.trials import (
    COMPLETE,
    entries,
    key,
    ledger_of,
    opened,
    planned,
    reserved,
    settled,
    whole_trial,
)

CANCELLED = EpisodeEnd(Outcome.CANCELLED)


def refused(ledger: Ledger, fact: Fact, match: str) -> None:
    """Hold that a fact cannot follow, and that the ledger stays as it was."""
    before = msgspec.structs.astuple(ledger)
    with pytest.raises(RecordError, match=match):
        apply(ledger, Entry(ledger.n_entries, 0, fact))
    assert msgspec.structs.astuple(ledger) == before


# --- money


def test_a_reservation_is_held_back_and_then_spent() -> None:
    held = ledger_of(reserved("a", "0.30"), reserved("b", "0.20", purpose=Purpose.JUDGING))
    assert held.budgets[Purpose.REPLAY] == Budget(Decimal(1), Decimal("0.30"))
    assert held.budgets[Purpose.JUDGING] == Budget(Decimal(1), Decimal("0.20"))
    spent = apply(held, Entry(3, 0, settled("a", "0.12")))
    assert spent.budgets[Purpose.REPLAY] == Budget(Decimal(1), Decimal(0), Decimal("0.12"))
    assert spent.budgets[Purpose.JUDGING] == held.budgets[Purpose.JUDGING]
    assert [state.reserved.charge for state in spent.open_charges] == ["b"]
    assert spent.subjects.find("s") == Budget(Decimal(0), Decimal("0.20"), Decimal("0.12"))


def test_a_ceiling_admits_up_to_itself_and_nothing_beyond() -> None:
    ledger = ledger_of(reserved("a", "0.30"), settled("a", "0.25"), reserved("b", "0.50"))
    assert admit(ledger, Purpose.REPLAY, Decimal("0.25"))
    assert not admit(ledger, Purpose.REPLAY, Decimal("0.250000001"))
    refused(ledger, reserved("c", "0.26"), "passes the ceiling of replay")


def test_a_purpose_without_a_ceiling_admits_what_costs_nothing() -> None:
    ledger = ledger_of(reserved("a", "0", purpose=Purpose.LIVE))
    assert admit(ledger, Purpose.LIVE, Decimal(0))
    assert not admit(ledger, Purpose.LIVE, Decimal("0.01"))
    assert ledger.budgets[Purpose.LIVE] == Budget()


def test_an_answer_beyond_its_reservation_is_counted_and_said() -> None:
    ledger = ledger_of(reserved("a", "0.90"), settled("a", "1.20"))
    assert ledger.overrun_usd == Decimal("0.30")
    assert ledger.budgets[Purpose.REPLAY].spent == Decimal("1.20")
    assert not admit(ledger, Purpose.REPLAY, Decimal(0))


@pytest.mark.parametrize("usd", ["NaN", "-1", "Infinity"])
def test_what_is_no_amount_is_refused(usd: str) -> None:
    refused(ledger_of(), reserved("a", usd), "no amount of money")
    refused(ledger_of(reserved("a")), settled("a", usd), "no amount of money")
    ceilings = {Purpose.REPLAY: Decimal(usd)}
    first = msgspec.structs.replace(opened(), ceilings=ceilings)
    refused(Ledger(), first, "a ceiling that is no amount")


def test_a_charge_is_reserved_once_and_settled_once() -> None:
    ledger = ledger_of(reserved("a"), settled("a"))
    refused(ledger, reserved("a", sha256="x"), "charge a is reserved twice")
    refused(ledger, settled("a"), "charge a is settled already")
    refused(ledger, settled("b"), "charge b was never reserved")


def test_a_question_has_one_open_charge_and_the_newest_answers_it() -> None:
    first = reserved("a", sha256="x")
    ledger = ledger_of(first)
    refused(ledger, reserved("b", sha256="x"), "its question is open as charge a")
    question = ("s", "small", "x", 0)
    again = ledger_of(first, settled("a"), reserved("b", sha256="x"))
    found = again.find_charge(question)
    assert found is not None
    assert (found.reserved.charge, found.settled) == ("b", None)
    assert ledger_of(reserved("c", sha256="x", occurrence=1)).find_charge(question) is None


def test_the_report_names_each_purpose_in_plain_decimals() -> None:
    ledger = ledger_of(reserved("a", "0.10"), settled("a", "5.12E-5"), reserved("b", "0.2"))
    assert spend_document(ledger) == {
        "judging": {"ceiling_usd": "1.00", "reserved_usd": "0.00", "spent_usd": "0.00"},
        "replay": {"ceiling_usd": "1.00", "reserved_usd": "0.20", "spent_usd": "0.0000512"},
    }


# --- runs


def test_every_planned_run_is_there_in_the_plans_order() -> None:
    plan = planned(variants=2, tasks=2, attempts=2)
    runs = ledger_of(plan=plan).runs.merged()
    assert [str(run) for run in runs][:3] == ["w@1 task-1 #1", "w@2 task-1 #1", "w@1 task-1 #2"]
    assert len(runs) == plan.n_runs == 8
    assert {state.execution for state in runs.values()} == {0}


def test_a_run_is_started_and_finished_once() -> None:
    ledger = ledger_of(Started(key(), 1), Finished(key(), COMPLETE))
    state = ledger.runs.find(key())
    assert state is not None
    assert (state.execution, state.end, state.is_finished) == (1, COMPLETE, True)
    refused(ledger, Started(key(), 2), "is finished")
    refused(ledger, Finished(key(), COMPLETE), "is finished already")
    refused(ledger, Finished(key(2), COMPLETE), "was never started")


def test_a_run_that_was_killed_or_cancelled_is_started_again_under_the_next_number() -> None:
    killed = ledger_of(Started(key(), 1), Started(key(), 2))
    cancelled = ledger_of(Started(key(), 1), Finished(key(), CANCELLED), Started(key(), 2))
    for ledger in (killed, cancelled):
        state = ledger.runs.find(key())
        assert state is not None
        assert (state.execution, state.end, state.is_finished) == (2, None, False)
    refused(killed, Started(key(), 2), "expected execution 3")


@pytest.mark.parametrize(
    "fact", [Started(RunKey("w@9", "x"), 1), Finished(RunKey("w@9", "x"), COMPLETE)]
)
def test_a_run_that_is_not_planned_is_refused(fact: Fact) -> None:
    refused(ledger_of(), fact, "run w@9 x #1 is not planned")


def test_a_task_is_graded_once_by_each_grader() -> None:
    grade = Graded("task-1", "correct", Raw(b"1"))
    ledger = ledger_of(grade, Graded("task-1", "judge", Raw(b"2")))
    assert list(ledger.grades.merged()) == [("task-1", "correct"), ("task-1", "judge")]
    refused(ledger, grade, "task-1 is graded by correct already")


# --- stops


def test_a_stop_stands_until_what_it_stopped_goes_on() -> None:
    stop, end = Stopped("ceiling", Purpose.REPLAY), Stopped("interrupted")
    judged = Stopped("ceiling", Purpose.JUDGING)
    stopped = ledger_of(stop, judged, end)
    assert stopped.stops == {Purpose.REPLAY: stop, Purpose.JUDGING: judged, None: end}
    assert ledger_of(stop, judged, end, Started(key(), 1)).stops == {Purpose.JUDGING: judged}
    assert ledger_of(stop, judged, reserved("a")).stops == {Purpose.JUDGING: judged}
    assert ledger_of(stop, judged, Graded("t", "g", Raw(b"1"))).stops == {Purpose.REPLAY: stop}


# --- the entries themselves


def test_entries_are_dense_from_zero() -> None:
    first, second, third = entries(opened(), reserved("a"), settled("a"))
    with pytest.raises(RecordError, match="expected entry 1") as caught:
        fold([first, third, second])
    assert caught.value.where == "entry 2 (settled)"


def test_a_ledger_begins_with_what_is_planned() -> None:
    refused(Ledger(), reserved("a"), "a ledger begins with `opened`")
    twice = msgspec.structs.replace(opened(), runs=opened().runs[:1] * 2)
    refused(Ledger(), twice, "is planned twice")


def test_a_trial_goes_on_under_other_ceilings_and_with_nothing_else_changed() -> None:
    more = {Purpose.REPLAY: Decimal(9), Purpose.LIVE: Decimal(2)}
    again = msgspec.structs.replace(opened(), ceilings=more)
    ledger = ledger_of(reserved("a", "0.7"), Stopped("x", Purpose.REPLAY), again)
    assert ledger.budgets == {
        Purpose.REPLAY: Budget(Decimal(9), Decimal("0.7")),
        Purpose.JUDGING: Budget(),
        Purpose.LIVE: Budget(Decimal(2)),
    }
    assert not ledger.stops
    other: Opened = msgspec.structs.replace(again, plan_digest="other")
    refused(ledger, other, "its own plan and runs")


def test_every_entry_comes_back_from_json_as_it_was() -> None:
    facts = (opened(), *whole_trial(b"x"), Stopped("why"), Stopped("why", Purpose.JUDGING))
    for entry in entries(*facts):
        data = msgspec.json.encode(entry)
        assert msgspec.json.encode(msgspec.json.decode(data, type=Entry)) == data
    decoded = [msgspec.json.decode(msgspec.json.encode(e), type=Entry) for e in entries(*facts)]
    assert fold(decoded).budgets == fold(entries(*facts)).budgets
