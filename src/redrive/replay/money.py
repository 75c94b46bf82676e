"""Money as exact decimals: what a call may cost at most, and what it did cost.

Knows prices, tokens and `Decimal`. Must not know ledgers or APIs. No step rounds: an amount that
could not be held exactly raises instead.

Source: DESIGN.md §6 "reserved before (input bytes as token bound + `max_tokens`) and settled after,
in exact decimals".
"""

from decimal import Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow

from redrive.replay.trial_values import Price, Usage

ZERO = Decimal(0)
_EXACT = Context(prec=120, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero])
_PER_MILLION = Decimal("1E-6")
# Far beyond any bill, and near enough that no sum of a trial needs more than 120 digits.
_MAX_ADJUSTED, _MIN_EXPONENT = 15, -40


def add(*amounts: Decimal) -> Decimal:
    """Add amounts exactly."""
    total = ZERO
    for amount in amounts:
        total = _EXACT.add(total, amount)
    return total


def subtract(amount: Decimal, other: Decimal) -> Decimal:
    """Subtract exactly."""
    return _EXACT.subtract(amount, other)


def is_amount(usd: Decimal) -> bool:
    """Say whether this is a sum of money: finite, not negative, of a size that adds up exactly."""
    if not usd.is_finite() or usd < 0:
        return False
    exponent = usd.as_tuple().exponent
    is_fine = isinstance(exponent, int) and exponent >= _MIN_EXPONENT
    return is_fine and usd.adjusted() <= _MAX_ADJUSTED


def dump_usd(usd: Decimal) -> str:
    """Write an amount without an exponent, with two decimals or as many as it has: `0.0000512`."""
    whole, _, decimals = format(usd, "f").partition(".")
    return f"{whole}.{decimals.rstrip('0'):0<2}"


def bound(price: Price, request_bytes: int, max_tokens: int) -> Decimal:
    """Say what a call costs at most: each byte of the request a token, and `max_tokens` answered.

    Input counts at the dearest of the prices of input, since nobody knows beforehand what of it is
    cached.
    """
    dearest = max(price.input_usd, _cached(price), _cache_write(price))
    return _usd(dearest, request_bytes, price.output_usd, max_tokens)


def cost(price: Price, usage: Usage) -> Decimal:
    """Say what a call cost; counts of cached tokens beyond all of the input count as all of it."""
    read = min(usage.cached_input_tokens, usage.input_tokens)
    written = min(usage.cache_write_tokens, usage.input_tokens - read)
    plain = usage.input_tokens - read - written
    return add(
        _usd(price.input_usd, plain, price.output_usd, usage.output_tokens),
        _usd(_cached(price), read, _cache_write(price), written),
    )


def _cached(price: Price) -> Decimal:
    return price.input_usd if price.cached_input_usd is None else price.cached_input_usd


def _cache_write(price: Price) -> Decimal:
    return price.input_usd if price.cache_write_usd is None else price.cache_write_usd


def _usd(price: Decimal, tokens: int, other_price: Decimal, other_tokens: int) -> Decimal:
    total = _EXACT.add(
        _EXACT.multiply(price, Decimal(tokens)), _EXACT.multiply(other_price, Decimal(other_tokens))
    )
    return _EXACT.multiply(total, _PER_MILLION)
