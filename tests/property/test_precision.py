"""The interval is scipy's, it covers what it promises, and a sample is uniform and reproducible."""

from collections import Counter
from itertools import combinations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, chisquare

from redrive.compare.interval import clopper_pearson
from redrive.compare.precision import (
    Drawn,
    Label,
    draw_sample,
    gwet_ac1,
    judge_precision,
    raw_agreement,
)

WORDS = st.sampled_from(("true", "false", "unsure"))
PAIRS = st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=40)


@st.composite
def proportions(draw):
    n = draw(st.one_of(st.integers(1, 60), st.integers(1, 50_000)))
    return draw(st.integers(0, n)), n


@settings(deadline=None)
@given(proportions(), st.sampled_from((0.5, 0.8, 0.9, 0.95, 0.99, 0.9999)))
def test_the_interval_is_that_of_scipy(proportion, confidence):
    k, n = proportion
    tail = (1 - confidence) / 2
    expected = (
        beta.ppf(tail, k, n - k + 1) if k else 0.0,
        beta.isf(tail, k + 1, n - k) if k < n else 1.0,
    )
    assert clopper_pearson(k, n, confidence) == pytest.approx(expected, rel=1e-9)


@settings(deadline=None)
@given(proportions())
def test_the_interval_holds_its_figure_and_mirrors(proportion):
    k, n = proportion
    low, high = clopper_pearson(k, n)
    assert 0 <= low <= k / n <= high <= 1
    assert clopper_pearson(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-12)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.87, 0.99])
@pytest.mark.parametrize("n", [1, 7, 30])
def test_the_interval_covers_the_truth_at_least_as_often_as_it_says(share, n):
    covered = sum(
        comb(n, k) * share**k * (1 - share) ** (n - k)
        for k in range(n + 1)
        if clopper_pearson(k, n)[0] <= share <= clopper_pearson(k, n)[1]
    )
    assert covered >= 0.95


@given(st.sets(st.text(max_size=8), max_size=30), st.integers(0, 40), st.text(max_size=8))
def test_a_sample_is_a_part_of_the_population_and_reproducible(refs, size, seed):
    drawn = draw_sample(refs, size, seed)
    assert len(drawn) == len(set(drawn)) == min(size, len(refs))
    assert set(drawn) <= refs
    assert drawn == draw_sample(sorted(refs, reverse=True), size, seed)


def test_every_subset_is_drawn_equally_often():
    counts = Counter(frozenset(draw_sample("abcdef", 3, str(seed))) for seed in range(6000))
    subsets = [frozenset(subset) for subset in combinations("abcdef", 3)]
    assert chisquare([counts[subset] for subset in subsets]).pvalue > 0.001


def test_every_fire_is_equally_often_at_every_place_of_the_sample():
    counts = Counter(
        (place, ref)
        for seed in range(4000)
        for place, ref in enumerate(draw_sample("abcde", 5, str(seed)))
    )
    assert len(counts) == 25
    assert chisquare(list(counts.values())).pvalue > 0.001


@given(PAIRS)
def test_agreement_does_not_depend_on_who_is_first_and_is_at_most_one(pairs):
    swapped = [(two, one) for one, two in pairs]
    assert gwet_ac1(pairs) == pytest.approx(gwet_ac1(swapped))
    assert -0.5 - 1e-12 <= gwet_ac1(pairs) <= raw_agreement(pairs) + 1e-12 <= 1 + 1e-12


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from("abc"), WORDS), max_size=40))
def test_every_labelled_fire_is_counted_once_and_a_gate_is_never_kinder(rows):
    said = [Label(f"s#{ref}", rater, word) for ref, rater, word in rows]
    found = judge_precision(said, Drawn("p", "1", "s", 10, 10))
    parts = (found.n_true, found.n_false, found.n_unsure, found.n_disagree)
    assert sum(parts) == found.n_labelled == len({label.event_ref for label in said})
    if found.at_gate is not None and found.low is not None:
        assert found.at_gate.low <= found.low + 1e-12
