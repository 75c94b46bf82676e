"""Resampling with seeded draws, and the percentile interval of what was resampled.

Knows numbers. Must not know what is resampled.

Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
"""

from collections.abc import Iterable, Iterator, Sequence

from redrive import canonical

_ROUNDING = 1e-9  # (1 − 0.9) / 2 × 2000 is a little less than 100


def draw_below(draws: Iterable[int], limit: int) -> int:
    """Draw an integer in [0, limit), each equally likely: what would favour some is drawn again.

    Args:
        draws: integers in [0, 2**64), as `canonical.stream` gives them.
        limit: at least 1.
    """
    fair = 2**64 - 2**64 % limit
    return next(draw for draw in draws if draw < fair) % limit


def draw_counts(seed: str, label: str, size: int, urn: int, times: int) -> Iterator[list[int]]:
    """Draw `size` from an urn with replacement, `times` times.

    Yields:
        How often each of the `urn` things was drawn, in their order.
    """
    draws = canonical.stream(seed, label)
    for _ in range(times):
        counts = [0] * urn
        for _ in range(size):
            counts[draw_below(draws, urn)] += 1
        yield counts


def percentile_interval(values: Sequence[float], level: float) -> tuple[float, float]:
    """Give the values that leave out (1 − level) / 2 of all on either side, rounded to less.

    Args:
        values: at least one, in any order.
        level: above 0 and below 1.
    """
    ordered = sorted(values)
    cut = int((1 - level) / 2 * len(ordered) + _ROUNDING)
    return ordered[cut], ordered[-1 - cut]
