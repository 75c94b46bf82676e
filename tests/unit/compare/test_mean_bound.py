"""The bound is Clopper and Pearson's where it should be, and follows its values."""

import pytest

from redrive.compare.interval import clopper_pearson
from redrive.compare.mean_bound import lowest_weight, mean_low


@pytest.mark.parametrize(("k", "n"), [(0, 1), (1, 1), (3, 7), (19, 20), (20, 20), (0, 20)])
def test_values_at_both_ends_give_the_exact_interval_of_a_proportion(k, n):
    low = mean_low([1.0] * k + [0.0] * (n - k), 0.0, 0.025)
    assert low == pytest.approx(clopper_pearson(k, n)[0], abs=1e-11)


def test_equal_values_are_lowered_by_what_may_have_gone_unseen():
    assert mean_low([0.5] * 8, -1.0, 0.05) == 0.5 - 1.5 * lowest_weight(8, 0.05)
    assert lowest_weight(1, 0.05) == pytest.approx(0.95)
    assert mean_low([-1.0] * 3, -1.0, 0.05) == -1.0


def test_two_values_have_a_bound_in_closed_form():
    # Weights of 0, 0.5 and 1, uniform on the triangle: the chance to be below x is 2x² up to 0.5.
    assert mean_low([0.5, 1.0], 0.0, 0.08) == pytest.approx(0.2, abs=1e-11)


def test_a_shift_and_a_stretch_go_through():
    values = [0.1, 0.4, 0.45, 0.9, 0.4]
    low = mean_low(values, 0.0, 0.05)
    moved = mean_low([2 * value - 1 for value in values], -1.0, 0.05)
    assert moved == pytest.approx(2 * low - 1, abs=1e-10)
    assert mean_low(values[::-1], 0.0, 0.05) == low
