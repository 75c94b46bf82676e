"""Case 49: runs that start at the same moment against one ceiling, in any order of arrival."""

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from redrive.replay.ledger import (
    Entry,
    Fact,
    Ledger,
    Reserved,
    Stopped,
    admit,
    apply,
    spend_document,
)
from redrive.replay.money import add, dump_usd
from redrive.replay.trial_values import Purpose
from tests.trials import ledger_of, planned, reserved, settled

REPLAY = Purpose.REPLAY


class Playbook:
    """Steps a ledger as whoever holds it does, and remembers who was refused."""

    def __init__(self, ceiling: str, spent: str) -> None:
        before = (reserved("before", spent), settled("before", spent))
        self.ledger: Ledger = ledger_of(*before, plan=planned(replay=ceiling))
        self.admitted: list[str] = []
        self.refused: list[str] = []

    def write(self, fact: Fact) -> None:
        """Add an entry."""
        self.ledger = apply(self.ledger, Entry(self.ledger.n_entries, 0, fact))

    def ask(self, run: str, estimate: str) -> None:
        """Reserve, or stop."""
        if admit(self.ledger, REPLAY, Decimal(estimate)):
            self.write(reserved(run, estimate, subject=run))
            self.admitted.append(run)
        else:
            self.write(Stopped(f"{run} does not fit", REPLAY))
            self.refused.append(run)

    def committed(self) -> Decimal:
        """What is spent and held back."""
        budget = self.ledger.budgets[REPLAY]
        return add(budget.spent, budget.reserved)


@pytest.fixture(scope="module")
def case(cases: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = next(cases.glob("49-*"))
    expected = json.loads((folder / "expected.json").read_text())["expect"]["budget.json"]
    return json.loads((folder / "budget.json").read_text()), expected


def orders(budget: dict[str, Any]) -> Iterator[list[dict[str, str]]]:
    for order in permutations(budget["concurrent"]):
        yield list(order)


def test_49_two_of_four_fit_in_whatever_order_they_arrive(
    case: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    budget, expected = case
    n_orders = 0
    for order in orders(budget):
        n_orders += 1
        play = Playbook(budget["ceiling"], budget["spent"])
        committed = [play.committed()]
        for asked in order:
            play.ask(asked["run"], asked["estimate"])
            committed.append(play.committed())
        assert play.admitted == [asked["run"] for asked in order[:2]]
        assert (len(play.admitted), len(play.refused)) == (
            expected["admitted"],
            expected["refused"],
        )
        assert dump_usd(max(committed)) == expected["committed_max"]
        for run in play.admitted:
            play.write(settled(run, budget["then_settle_admitted_at"]))
        spent = spend_document(play.ledger)["replay"]
        assert spent["spent_usd"] == expected["spent_after_settle"]
        assert spent["reserved_usd"] == "0.00"
        play.ask(budget["then_request"]["run"], budget["then_request"]["estimate"])
        assert ("v5" in play.admitted) == expected["v5_admitted"]
        assert len(play.refused) == expected["not_run_listed"], "refused ones are named"
    assert n_orders == 24


def test_49_settling_between_two_arrivals_admits_no_more_than_the_ceiling(
    case: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """Each admitted run may settle at once, or when all have arrived."""
    budget, _ = case
    for order in orders(budget):
        for at_once in range(2 ** len(order)):
            play = Playbook(budget["ceiling"], budget["spent"])
            for place, asked in enumerate(order):
                play.ask(asked["run"], asked["estimate"])
                is_admitted = play.admitted[-1:] == [asked["run"]]
                if is_admitted and at_once & 1 << place:
                    play.write(settled(asked["run"], budget["then_settle_admitted_at"]))
                assert play.committed() <= Decimal(budget["ceiling"])
            assert len(play.admitted) == 2
            assert len(play.refused) == 2


def test_49_the_control_a_check_of_spend_alone_passes_the_ceiling(
    case: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """What the public bug did: four are let through, and the ledger refuses their entries."""
    budget, _ = case
    spent, ceiling = Decimal(budget["spent"]), Decimal(budget["ceiling"])
    naive = [a for a in budget["concurrent"] if spent + Decimal(a["estimate"]) <= ceiling]
    assert len(naive) == 4
    assert spent + sum(Decimal(a["estimate"]) for a in naive) > ceiling


def test_what_is_live_is_not_paid_from_what_is_replayed() -> None:
    ledger = ledger_of()
    assert not admit(ledger, Purpose.LIVE, Decimal("0.01"))
    assert admit(ledger, REPLAY, Decimal("0.01"))
    fact = reserved("a", purpose=Purpose.LIVE)
    assert isinstance(fact, Reserved)
    with pytest.raises(Exception, match="passes the ceiling of live"):
        apply(ledger, Entry(ledger.n_entries, 0, fact))
