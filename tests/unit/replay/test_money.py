"""Amounts are exact decimals, and are written without an exponent."""

from decimal import Decimal, Inexact

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.replay.money import add, bound, cost, dump_usd, is_amount, subtract
from redrive.replay.trial_values import Price, Usage

PRICE = Price(Decimal("0.10"), Decimal("0.40"))
CACHED = Price(Decimal("3.00"), Decimal("15.00"), Decimal("0.30"), Decimal("3.75"))


def test_tenths_add_up() -> None:
    assert add(*[Decimal("0.1")] * 3) == Decimal("0.3")
    assert subtract(Decimal("4.95"), Decimal("4.71")) == Decimal("0.24")


def test_a_bound_counts_each_byte_as_a_token_and_the_dearest_input() -> None:
    assert bound(PRICE, 1000, 256) == Decimal("0.0002024")
    assert bound(CACHED, 1_000_000, 0) == Decimal("3.75")


def test_a_cost_counts_cached_input_at_its_own_prices() -> None:
    assert cost(PRICE, Usage(1000, 256, 900, 50)) == bound(PRICE, 1000, 256)
    assert cost(CACHED, Usage(1000, 10, 600, 300)) == Decimal("0.001755")


def test_cached_tokens_beyond_all_of_the_input_count_as_all_of_it() -> None:
    assert cost(CACHED, Usage(100, 0, 150, 20)) == Decimal("0.00003")
    assert cost(CACHED, Usage(100, 0, 60, 200)) == cost(CACHED, Usage(100, 0, 60, 40))


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**6))
def test_no_answer_within_its_bound_costs_more(
    n_bytes: int, n_max: int, read: int, new: int
) -> None:
    usage = Usage(min(n_bytes, read + new), n_max, min(read, n_bytes), min(new, n_bytes))
    assert cost(CACHED, usage) <= bound(CACHED, n_bytes, n_max)


@pytest.mark.parametrize(
    ("usd", "text"),
    [
        ("0", "0.00"),
        ("5", "5.00"),
        ("4.950", "4.95"),
        ("5.120E-5", "0.0000512"),
        ("1E+2", "100.00"),
        ("0.10", "0.10"),
        ("12.3", "12.30"),
    ],
)
def test_an_amount_is_written_plainly(usd: str, text: str) -> None:
    assert dump_usd(Decimal(usd)) == text


@pytest.mark.parametrize("usd", ["NaN", "Infinity", "-0.01", "1E+16", "1E-41"])
def test_what_is_no_amount_is_told(usd: str) -> None:
    assert not is_amount(Decimal(usd))


@pytest.mark.parametrize("usd", ["0", "0.00", "1E-40", "999999999999999.99"])
def test_what_is_an_amount_is_told(usd: str) -> None:
    assert is_amount(Decimal(usd))


def test_what_cannot_be_held_exactly_raises() -> None:
    with pytest.raises(Inexact):
        add(Decimal("1E+200"), Decimal(1))
