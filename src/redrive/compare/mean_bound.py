"""A lower bound of the mean of bounded values that holds for few of them, whatever they are.

Knows numbers. Must not know what they measure.

The bound is Gaffke's: to the n values the least possible one is added, the n + 1 are weighted at
random (each weighting as likely as any other), and the bound is the quantile of the weighted mean.
For values at both ends alone it is Clopper and Pearson's. That it holds for every distribution is a
conjecture which no search has broken; how often it held here is in `docs/grading.md`. Nothing is
drawn: the distribution function of the weighted mean is a spline with the values as its knots, and
de Boor's recursion computes it from sums of positive parts only.

Source: Gaffke (2005), "Three test statistics for a nonparametric one-sided hypothesis on the mean
of a nonnegative variable"; Learned-Miller and Thomas (2019), arXiv:1905.06208; Curry and Schoenberg
(1966), doi:10.1007/BF02788653; de Boor, A Practical Guide to Splines (1978), chapter 10.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

_SETTLED = 1e-12


def lowest_weight(n: int, miss: float) -> float:
    """Give the most weight that an outcome which was never seen may have: 1 − miss^(1/n).

    Args:
        n: values seen, at least 1.
        miss: chance that it has more.
    """
    return float(1 - miss ** (1 / n))


def mean_low(values: Sequence[float], least: float, miss: float) -> float:
    """Bound the mean from below.

    Args:
        values: n at least 1, none below `least`.
        least: the least value that is possible.
        miss: chance that the bound is above the mean, above 0 and below 1; at most so, for all that
            is known.

    Cost: O(n²), some forty times: 0.2 s for 200 values.
    """
    low, *rest = knots = sorted((least, *values))
    if rest[0] == rest[-1]:
        return rest[0] - (rest[0] - low) * lowest_weight(len(rest), miss)
    below, above = low, rest[-1]
    while above - below > _SETTLED * (rest[-1] - low):
        middle = (below + above) / 2
        if _share_below(middle, knots) < miss:
            below = middle
        else:
            above = middle
    return below


def _share_below(x: float, knots: Sequence[float]) -> float:
    """Give the chance that the knots, weighted at random, have a mean of at most x.

    Args:
        x: at least the first knot and below the last.
        knots: ascending, n + 1 of them, not all equal.
    """
    n = len(knots) - 1
    places = [knots[0]] * (n + 1) + list(knots) + [knots[-1]] * (n + 1)
    span = bisect_right(places, x) - 1
    values = [float(place > n) for place in range(span - n, span + 1)]
    for degree in range(n, 0, -1):
        starts = places[span - degree + 1 : span + 1]
        ends = places[span + 1 : span + degree + 1]
        values = [
            left + (right - left) * ((x - start) / (end - start))
            for (left, right), start, end in zip(pairwise(values), starts, ends, strict=True)
        ]
    return values[0]
