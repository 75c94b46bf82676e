"""Draws are even and repeatable; the interval leaves out what it says."""

from collections import Counter
from itertools import islice

import pytest

from redrive import canonical
from redrive.compare.resampling import draw_below, draw_counts, percentile_interval


def test_a_draw_that_would_favour_some_is_drawn_again():
    assert draw_below(iter([2**64 - 1, 2**64 - 1, 5]), 3) == 2


def test_each_number_is_drawn_about_equally_often():
    draws = canonical.stream("seed", "label")
    drawn = Counter(draw_below(draws, 6) for _ in range(6000))
    assert set(drawn) == set(range(6))
    assert all(880 < count < 1120 for count in drawn.values())


def test_an_urn_is_drawn_from_as_often_as_asked_and_equal_seeds_draw_equally():
    drawn = list(draw_counts("7", "label", 5, 3, 40))
    assert len(drawn) == 40
    assert all(len(counts) == 3 and sum(counts) == 5 for counts in drawn)
    assert drawn == list(draw_counts("7", "label", 5, 3, 40))
    assert drawn[:10] == list(islice(draw_counts("7", "label", 5, 3, 40), 10))
    assert drawn != list(draw_counts("8", "label", 5, 3, 40))


@pytest.mark.parametrize(
    ("n", "level", "expected"),
    [(1, 0.95, (0, 0)), (39, 0.95, (0, 38)), (40, 0.95, (1, 38)), (2000, 0.9, (100, 1899))],
)
def test_the_interval_leaves_out_as_many_on_either_side(n, level, expected):
    assert percentile_interval([(7 * i) % n for i in range(n)] if n % 7 else range(n), level) == (
        expected
    )
