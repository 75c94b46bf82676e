"""Whatever is reserved and settled in whatever order, no ceiling is passed and no cent is lost."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from redrive.errors import RecordError
from redrive.replay.ledger import Entry, Fact, Ledger, Started, admit, apply, fold
from redrive.replay.trial_values import Purpose
from tests.trials import entries, key, ledger_of, opened, planned, reserved, settled

PURPOSES = (Purpose.REPLAY, Purpose.JUDGING)
CEILINGS = {Purpose.REPLAY: Decimal("1.00"), Purpose.JUDGING: Decimal("0.30")}
PLAN = planned(replay="1.00", judging="0.30")
AMOUNTS = st.decimals("0", "0.5", places=9, allow_nan=False)
# What is asked for, by whom, and which of the open charges is settled next, at which part of it.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), AMOUNTS, st.sampled_from(PURPOSES)),
        st.tuples(st.just("settle"), st.integers(0, 7), st.fractions(0, 1, max_denominator=8)),
    ),
    max_size=40,
)


def steps_to_facts(steps: list[tuple[Any, ...]]) -> list[Fact]:
    """Play steps as whoever holds a ledger does; give what was written."""
    ledger, written = ledger_of(plan=PLAN), list[Fact]()
    held: dict[str, Decimal] = {}
    for number, (what, *arguments) in enumerate(steps):
        if what == "ask":
            usd, purpose = arguments
            fact: Fact = reserved(f"c{number}", str(usd), purpose=purpose)
            if not admit(ledger, purpose, usd):
                continue
            held[f"c{number}"] = usd
        elif held:
            place, part = arguments
            charge = sorted(held)[place % len(held)]
            usd = held.pop(charge) * part.numerator / part.denominator
            fact = settled(charge, str(usd.quantize(Decimal("1E-12"))))
        else:
            continue
        ledger = apply(ledger, Entry(ledger.n_entries, 0, fact))
        written.append(fact)
    return written


def committed(ledger: Ledger) -> Mapping[Purpose, Decimal]:
    return {p: budget.spent + budget.reserved for p, budget in ledger.budgets.items()}


@given(STEPS)
def test_no_ceiling_is_passed_at_any_moment(steps: list[tuple[Any, ...]]) -> None:
    ledger = ledger_of(plan=PLAN)
    for fact in steps_to_facts(steps):
        ledger = apply(ledger, Entry(ledger.n_entries, 0, fact))
        assert all(usd <= CEILINGS[purpose] for purpose, usd in committed(ledger).items())


@given(STEPS)
def test_the_fold_of_the_entries_is_the_state_that_was_held(steps: list[tuple[Any, ...]]) -> None:
    facts = steps_to_facts(steps)
    written = entries(opened(PLAN), *facts)
    data = [msgspec.json.encode(entry) for entry in written]
    ledger = fold(msgspec.json.decode(line, type=Entry) for line in data)
    assert ledger.budgets == ledger_of(*facts, plan=PLAN).budgets
    assert ledger.charges.merged() == ledger_of(*facts, plan=PLAN).charges.merged()


@given(STEPS)
def test_sums_are_exact(steps: list[tuple[Any, ...]]) -> None:
    """The oracle adds fractions."""
    facts = steps_to_facts(steps)
    ledger = ledger_of(*facts, plan=PLAN)
    for purpose, budget in ledger.budgets.items():
        charges = [c for c in ledger.charges.merged().values() if c.reserved.purpose is purpose]
        spent = sum(Fraction(c.settled.usd) for c in charges if c.settled is not None)
        held = sum(Fraction(c.reserved.usd) for c in charges if c.settled is None)
        assert (Fraction(budget.spent), Fraction(budget.reserved)) == (spent, held)
    by_subject = ledger.subjects.find("s")
    total = sum(b.spent + b.reserved for b in ledger.budgets.values())
    assert total == (0 if by_subject is None else by_subject.spent + by_subject.reserved)


@given(STEPS, st.randoms(use_true_random=False))
def test_the_order_of_settling_changes_no_sum(steps: list[tuple[Any, ...]], dice: Any) -> None:
    facts = steps_to_facts(steps)
    late = [fact for fact in facts if not hasattr(fact, "basis")]
    if sum(getattr(fact, "usd", 0) for fact in late) > min(CEILINGS.values()):
        return  # settling late would pass a ceiling, and is not admitted
    ends = [fact for fact in facts if hasattr(fact, "basis")]
    dice.shuffle(ends)
    assert ledger_of(*late, *ends, plan=PLAN).budgets == ledger_of(*facts, plan=PLAN).budgets


@given(STEPS, st.integers(0, 40))
def test_an_entry_that_cannot_follow_changes_nothing(
    steps: list[tuple[Any, ...]], place: int
) -> None:
    facts = steps_to_facts(steps)
    ledger = ledger_of(*facts, plan=PLAN)
    before = msgspec.structs.astuple(ledger)
    again = [facts[place % len(facts)]] if facts else []
    for wrong in (*again, settled("never"), reserved("more", "1.01"), Started(key(9), 1)):
        try:
            apply(ledger, Entry(ledger.n_entries, 0, wrong))
        except RecordError:
            assert msgspec.structs.astuple(ledger) == before
        else:
            raise AssertionError(wrong)
