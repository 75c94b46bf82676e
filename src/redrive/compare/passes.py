"""pass@k and pass^k: would one of k attempts succeed, would all of them?

Knows counts of attempts and successes per task. Must not know what a success is.

Source: Chen et al. (2021), arXiv:2107.03374, for pass@k; Yao et al. (2024), arXiv:2406.12045, for
pass^k.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from redrive.compare.interval import clopper_pearson
from redrive.compare.resampling import draw_counts, percentile_interval

DEFAULT_RESAMPLES = 2000
_DRAW = "passes.tasks"


class PassRate(msgspec.Struct, frozen=True):
    """One of the two figures, averaged over tasks.

    Attributes:
        k: attempts that it is about.
        value: the unbiased estimate; `None` where no task has k attempts: it is undefined, not 0.
        low, high: its interval over tasks; `None` with it.
        n_tasks: tasks with at least k attempts, which the mean is of.
        left_out: the other ones, sorted.
        method: of the interval.
    """

    k: int
    value: float | None
    low: float | None
    high: float | None
    n_tasks: int
    left_out: tuple[str, ...]
    method: str


def pass_at(n: int, c: int, k: int) -> Fraction | None:
    """Estimate without bias the chance that at least one of k attempts succeeds.

    Args:
        n: attempts made.
        c: of these, successes.
        k: at least 1; above n nothing can be said: `None`.

    Raises:
        ValueError: a count is out of its range.
    """
    _refuse(n, c, k)
    return None if k > n else 1 - Fraction(math.comb(n - c, k), math.comb(n, k))


def pass_all(n: int, c: int, k: int) -> Fraction | None:
    """Estimate without bias the chance that all of k attempts succeed; see `pass_at`."""
    _refuse(n, c, k)
    return None if k > n else Fraction(math.comb(c, k), math.comb(n, k))


def _refuse(n: int, c: int, k: int) -> None:
    if k < 1 or not 0 <= c <= n:
        raise ValueError(f"{c} successes of {n} attempts, {k} at a time")
