"""A gate's bound holds as often as it says, and is scipy's where scipy knows one."""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, multinomial

from redrive.compare.gate import Gate, judge_gate, smallest_margin
from redrive.compare.mean_bound import mean_low

IS_FULL = os.environ.get("REDRIVE_SOAK") == "full"
MISS = 0.05
SCORES = st.one_of(st.floats(0, 1), st.sampled_from((0.0, 0.5, 1.0)))


@settings(max_examples=50)
@given(st.integers(1, 40), st.integers(0, 40), st.sampled_from((0.025, 0.05, 0.1)))
def test_scores_of_0_and_1_have_the_exact_bound_of_a_proportion(n, k, miss):
    k = min(k, n)
    expected = beta.ppf(miss, k, n - k + 1) if k else 0.0
    assert mean_low([1.0] * k + [0.0] * (n - k), 0.0, miss) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=15)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=12), st.integers(0, 9))
def test_the_bound_is_the_quantile_of_random_weights(values, seed):
    dice = np.random.default_rng(seed)
    weights = dice.dirichlet(np.ones(len(values) + 1), 20_000)
    share = np.mean(weights @ np.array([-1.0, *values]) <= mean_low(values, -1.0, MISS) + 1e-9)
    assert share == pytest.approx(MISS, abs=0.008)


@settings(max_examples=50)
@given(st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=15))
def test_a_bound_lies_below_its_mean_and_rises_with_its_values(scores):
    result = judge_gate(Gate("a", "b"), ("a", "b"), dict(enumerate(scores)))
    assert -1 <= result.low < result.difference + 1e-12
    assert result.difference - 1e-12 < result.high <= 1
    better = {task: (one, other / 2) for task, (one, other) in enumerate(scores)}
    assert judge_gate(Gate("a", "b"), ("a", "b"), better).low >= result.low - 1e-9


@given(st.integers(1, 400), SCORES, st.floats(0, 1), st.sampled_from((0.9, 0.95, 0.99)))
def test_equal_scores_pass_exactly_from_the_smallest_margin_on(n, score, margin, level):
    scores = {str(task): (score, score) for task in range(n)}
    smallest = smallest_margin(n, level)
    for tried in (margin, smallest, math.nextafter(smallest, 0), math.nextafter(smallest, 1)):
        result = judge_gate(Gate("a", "b", tried), ("a", "b"), scores, level)
        assert (result.status == "passed") == (tried >= smallest)
        assert result.status != "failed"


def paired(one, other, correlation):
    """Chances of a win, a loss and no difference of two binary scores; `None` if there are none."""
    both = one * other + correlation * math.sqrt(one * (1 - one) * other * (1 - other))
    shares = (one - both, other - both, both + 1 - one - other + both)
    return shares if min(*shares, both, 1 - one - other + both) >= 0 else None


@pytest.mark.parametrize("n_tasks", [5, 8, 20, *((50,) if IS_FULL else ())])
def test_the_bound_of_binary_scores_holds_as_often_as_it_says(n_tasks):
    """Each outcome is weighted with its chance, so nothing is left to luck."""
    outcomes = [(won, lost) for won in range(n_tasks + 1) for lost in range(n_tasks + 1 - won)]
    lows = [
        mean_low([1.0] * won + [-1.0] * lost + [0.0] * (n_tasks - won - lost), -1.0, MISS)
        for won, lost in outcomes
    ]
    rates = (0.1, 0.5, 0.9, 0.99)
    grid = [(a, b, c) for a in rates for b in rates for c in (-0.5, 0.0, 0.5, 0.9)]
    for one, other, correlation in grid:
        shares = paired(one, other, correlation)
        if shares is None:
            continue
        held = sum(
            multinomial.pmf((won, lost, n_tasks - won - lost), n_tasks, shares)
            for (won, lost), low in zip(outcomes, lows, strict=True)
            if low <= one - other + 1e-12
        )
        assert held >= 1 - MISS - 0.005, (one, other, correlation)


def graded(dice, n_tasks):
    """Shares of three attempts; how hard a task is differs, alike for both sides."""
    hard = dice.beta(0.3, 0.3, n_tasks)
    return (dice.binomial(3, hard) - dice.binomial(3, hard)) / 3


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (graded, 0.0),
        (lambda dice, n: dice.uniform(-0.3, 0.3, n), 0.0),
        (lambda dice, n: np.where(dice.random(n) < 0.02, -1.0, 0.02), 0.98 * 0.02 - 0.02),
        (lambda dice, n: dice.beta(0.5, 0.1, n) - dice.beta(0.5, 0.1, n), 0.0),
    ],
    ids=["attempts", "uniform", "rare", "judge"],
)
@pytest.mark.parametrize("n_tasks", [5, 8, 20])
def test_the_bound_of_other_scores_holds_as_often_as_it_says(draw, mean, n_tasks):
    trials = 2000 if IS_FULL else 200
    dice = np.random.default_rng(n_tasks)
    held = sum(
        mean_low(draw(dice, n_tasks).tolist(), -1.0, MISS) <= mean + 1e-12 for _ in range(trials)
    )
    # Three standard errors of the simulation itself.
    noise = 3 * math.sqrt(MISS * (1 - MISS) / trials)
    assert held / trials >= 1 - MISS - 0.005 - noise
