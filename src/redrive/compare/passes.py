"""pass@k and pass^k: would one of k attempts succeed, would all of them?

Knows counts of attempts and successes per task. Must not know what a success is.

Source: Chen et al. (2021), arXiv:2107.03374, for pass@k; Yao et al. (2024), arXiv:2406.12045, for
pass^k.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from operator import mul

import msgspec

from redrive.compare.interval import METHOD as EXACT
from redrive.compare.interval import clopper_pearson
from redrive.compare.resampling import draw_counts, percentile_interval

RESAMPLED = "bootstrap over tasks, percentile, two made-up tasks added"
DEFAULT_RESAMPLES = 2000
_DRAW = "passes.tasks"

PassEstimate = Callable[[int, int, int], Fraction | None]
"""`pass_at` or `pass_all`: attempts, successes, k → the estimate for one task."""


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


def average_passes(
    counts: Mapping[str, tuple[int, int]],
    k: int,
    estimate: PassEstimate,
    *,
    seed: int,
    resamples: int = DEFAULT_RESAMPLES,
    level: float = 0.95,
) -> PassRate:
    """Average one of the figures over tasks.

    Args:
        counts: task id → attempts made and successes; attempts of which nobody can tell whether
            they succeeded are no attempts.
        k: attempts that the figure is about.
        estimate: `pass_at` or `pass_all`.
        seed: equal seeds draw equally.
        resamples: how often the tasks are drawn again.
        level: of the interval.

    Returns:
        The mean, each task counting once. Where the estimate of every task is 0 or 1, the interval
        is the exact one of a proportion; otherwise tasks are drawn again, from an urn to which a
        task with 0 and one with 1 are added, so that tasks that all agree do not count as proof.
    """
    estimates = {task: estimate(n, c, k) for task, (n, c) in sorted(counts.items())}
    known = [value for value in estimates.values() if value is not None]
    left_out = tuple(task for task, value in estimates.items() if value is None)
    if not known:
        return PassRate(k, None, None, None, 0, left_out, EXACT)
    total = sum(known, Fraction())
    if set(known) <= {0, 1}:
        low, high = clopper_pearson(int(total), len(known), level)
        method = EXACT
    else:
        urn = [*map(float, known), 0.0, 1.0]
        drawn = draw_counts(str(seed), _DRAW, len(known), len(urn), resamples)
        means = [math.fsum(map(mul, urn, times)) / len(known) for times in drawn]
        low, high = percentile_interval(means, level)
        method = RESAMPLED
    return PassRate(k, float(total / len(known)), low, high, len(known), left_out, method)
