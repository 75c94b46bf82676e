"""The exact interval at known points, and what is refused; scipy is asked in tests/property."""

from fractions import Fraction

import pytest

from redrive.compare.interval import binomial_test, clopper_pearson


@pytest.mark.parametrize(
    ("k", "n", "expected"),
    [
        (0, 0, (0.0, 1.0)),
        (0, 10, (0.0, 0.308497)),
        (10, 10, (0.691503, 1.0)),
        (8, 10, (0.443905, 0.974789)),
        (1, 1, (0.025, 1.0)),
    ],
)
def test_known_intervals(k, n, expected):
    assert clopper_pearson(k, n) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("k", "n", "confidence"), [(-1, 2, 0.9), (3, 2, 0.9), (1, 2, 0.0), (1, 2, 1.0)]
)
def test_what_is_no_proportion_is_refused(k, n, confidence):
    with pytest.raises(ValueError, match=r"is no proportion|a confidence of"):
        clopper_pearson(k, n, confidence)


@pytest.mark.parametrize(
    ("k", "n", "share", "expected"),
    [
        (0, 0, Fraction(1, 2), 1.0),
        (8, 8, Fraction(1, 2), 2 / 256),
        (4, 8, Fraction(1, 2), 1.0),
        (0, 3, Fraction(1, 3), 15 / 27),
        (3, 3, Fraction(1, 3), 1 / 27),
        (1, 1, Fraction(1, 4), 0.25),
    ],
)
def test_known_p_values(k, n, share, expected):
    assert binomial_test(k, n, share) == pytest.approx(expected, abs=1e-15)


def test_a_p_value_of_many_trials_is_no_overflow():
    assert 0 < binomial_test(1100, 2000) < 1e-4
    assert binomial_test(0, 2000) == 2 * 0.5**1000 * 0.5**1000


@pytest.mark.parametrize(
    ("k", "n", "share"), [(-1, 2, Fraction(1, 2)), (3, 2, Fraction(1, 2)), (1, 2, Fraction(1))]
)
def test_what_cannot_be_tested_is_refused(k, n, share):
    with pytest.raises(ValueError, match=r"is no proportion|a share of"):
        binomial_test(k, n, share)
