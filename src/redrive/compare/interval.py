"""The exact interval and test of a proportion, from the standard library alone.

Knows numbers. Must not know what is counted.

Source: Clopper and Pearson (1934), doi:10.1093/biomet/26.4.404; the incomplete beta function by its
continued fraction (DLMF 8.17.22) and Lentz's method.
"""

import math
from fractions import Fraction

METHOD = "clopper-pearson"
_TINY = 1e-300
_SETTLED = 1e-15


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Give the exact two-sided interval of a proportion.

    Args:
        k: successes, 0 to n.
        n: trials; with none nothing is known: (0, 1).
        confidence: above 0 and below 1; each side is left out with half of the rest.

    Raises:
        ValueError: an argument is out of its range.
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no proportion")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence}: expected above 0 and below 1")
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else _quantile(k, n - k + 1, tail)
    high = 1.0 if k == n else 1 - _quantile(n - k, k + 1, tail)
    return low, high


def binomial_test(k: int, n: int, share: Fraction = Fraction(1, 2)) -> float:
    """Give the exact two-sided p-value of k of n: of all counts that are no likelier than k.

    Args:
        k: successes, 0 to n.
        n: trials; with none the p-value is 1.
        share: what is tested, above 0 and below 1.

    Raises:
        ValueError: an argument is out of its range.

    Cost: O(n) steps on integers of O(n) digits; nothing is rounded before the end.
    """
    if not 0 <= k <= n:
        raise ValueError(f"{k} of {n} is no proportion")
    if not 0 < share < 1:
        raise ValueError(f"a share of {share}: expected above 0 and below 1")
    hit, miss = share.numerator, share.denominator - share.numerator
    weights = [miss**n]
    for count in range(n):
        weights.append(weights[-1] * (n - count) * hit // ((count + 1) * miss))
    as_rare = sum(weight for weight in weights if weight <= weights[k])
    return float(Fraction(as_rare, share.denominator**n))


def _quantile(a: int, b: int, share: float) -> float:
    """Find x with I_x(a, b) = share, by bisection to the last bit that matters."""
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if _beta(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return middle


def _beta(x: float, a: int, b: int) -> float:
    """Compute the regularised incomplete beta function I_x(a, b), for 0 < x < 1."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: int, b: int) -> float:
    """Evaluate the continued fraction of I_x(a, b) by Lentz's method; O(√(a + b)) terms."""
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    value = d
    m, change = 0, 0.0
    while abs(change - 1) > _SETTLED:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            change = c * d
            value *= change
    return value


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
