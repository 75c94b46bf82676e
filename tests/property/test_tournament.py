"""Ratings are those of choix and scipy, and do not depend on the order of games or on names."""

import math
import os
from fractions import Fraction
from itertools import combinations

import choix
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import binom, binomtest

from redrive import canonical
from redrive.compare.bradley_terry import Games, chances, fit_games
from redrive.compare.interval import binomial_test
from redrive.compare.tournament import PairResult, rank

IS_FULL = os.environ.get("REDRIVE_SOAK") == "full"
LABELS = "abcdef"


@st.composite
def tournaments(draw, most=5, outcomes=("first", "second", "tie", "inconclusive")):
    """Full blocks: each pair meets once in each task."""
    n = draw(st.integers(2, most))
    n_tasks = draw(st.integers(1, 6))
    words = st.sampled_from(outcomes)
    return LABELS[:n], [
        PairResult(f"t{task}", one, other, draw(words))
        for task in range(n_tasks)
        for one, other in combinations(LABELS[:n], 2)
    ]


def flat(ranking):
    """Everything that is said of variants, without the order in which it is said."""
    return {
        rating.variant: (group.model, group.tie_parameter, rating)
        for group in ranking.groups
        for rating in group.ratings
    }


@settings(max_examples=30)
@given(tournaments(), st.randoms(use_true_random=False))
def test_the_order_of_games_changes_nothing(tournament, dice):
    labels, games = tournament
    before = rank(games, labels, resamples=30, seed=3)
    turned = [
        PairResult(
            game.task_id,
            game.second,
            game.first,
            {"first": "second", "second": "first"}.get(game.outcome, game.outcome),
        )
        if dice.random() < 0.5
        else game
        for game in games
    ]
    dice.shuffle(turned)
    assert rank(turned, labels, resamples=30, seed=3) == before


@settings(max_examples=30)
@given(tournaments(), st.permutations("uvwxyz"))
def test_names_change_nothing_but_names(tournament, names):
    labels, games = tournament
    new = dict(zip(labels, names, strict=False))
    before = flat(rank(games, labels, resamples=30, seed=3))
    renamed = [
        PairResult(game.task_id, new[game.first], new[game.second], game.outcome) for game in games
    ]
    after = flat(rank(renamed, [new[label] for label in labels], resamples=30, seed=3))
    assert after == {
        new[label]: (model, ties, rename(rating, new[label]))
        for label, (model, ties, rating) in before.items()
    }


def rename(rating, variant):
    fields = {name: getattr(rating, name) for name in rating.__struct_fields__}
    return type(rating)(**fields | {"variant": variant})


@settings(max_examples=30)
@given(tournaments(), st.randoms(use_true_random=False))
def test_the_order_of_variants_changes_no_rating(tournament, dice):
    labels, games = tournament
    order = list(labels)
    dice.shuffle(order)
    before = flat(rank(games, labels, resamples=1, seed=3))
    after = flat(rank(games, order, resamples=1, seed=3))
    assert {label: rating.rating for label, (_, _, rating) in after.items()} == {
        label: rating.rating for label, (_, _, rating) in before.items()
    }
    assert {label: ties for label, (_, ties, _) in after.items()} == {
        label: ties for label, (_, ties, _) in before.items()
    }


@settings(max_examples=40)
@given(tournaments(outcomes=("first", "second")))
def test_without_ties_the_ratings_are_those_of_choix(tournament):
    labels, games = tournament
    # A quarter of a win for either side, and each game four times as much: whole numbers.
    data = [
        pair
        for one, other in combinations(range(len(labels)), 2)
        for pair in ((one, other), (other, one))
    ]
    for game in games:
        sides = (labels.index(game.first), labels.index(game.second))
        data += [sides if game.outcome == "first" else sides[::-1]] * 4
    expected = choix.ilsr_pairwise(len(labels), data, tol=1e-12)
    ratings = flat(rank(games, labels, resamples=1, seed=1))
    found = [ratings[label][2].rating for label in labels]
    assert found == pytest.approx(list(expected - expected.mean()), abs=1e-6)
    again = choix.opt_pairwise(len(labels), data, alpha=1e-9, tol=1e-9)
    assert found == pytest.approx(list(again - again.mean()), abs=1e-3)


@st.composite
def points_with_ties(draw):
    n = draw(st.integers(2, 5))
    wins = [[draw(st.integers(0, 5)) if i != j else 0 for j in range(n)] for i in range(n)]
    ties = [[draw(st.integers(0, 4)) if i < j else 0 for j in range(n)] for i in range(n)]
    ties[0][1] += 1
    return np.array(wins, dtype=float), np.array(ties, dtype=float)


@settings(max_examples=40)
@given(points_with_ties())
def test_with_ties_the_ratings_are_the_peak_that_scipy_finds(counts):
    wins, ties = counts
    n = len(wins)
    wins += 0.25 * (1 - np.eye(n))
    points = wins + (ties + ties.T) / 2

    def loss(values):
        ratings, log_ties = np.append(values[:-1], -values[:-1].sum()), values[-1]
        half = (ratings[:, None] - ratings[None, :]) / 2
        whole = np.log(np.exp(half) + np.exp(-half) + np.exp(log_ties))
        return -(wins * (half - whole)).sum() - (ties * (log_ties - whole)).sum()

    fit = fit_games(Games(points.tolist(), float(ties.sum())))
    found = np.array([*fit.ratings[:-1], math.log(fit.tie_parameter)])
    best = minimize(loss, found * 0.5, method="BFGS", options={"gtol": 1e-7})
    assert found == pytest.approx(best.x, abs=2e-4)
    assert loss(found) <= best.fun + 1e-9


@settings(max_examples=60)
@given(tournaments(most=6), st.integers(0, 5))
def test_what_is_said_of_a_variant_holds_together(tournament, seed):
    labels, games = tournament
    ranking = rank(games, labels, resamples=40, seed=seed)
    for group in ranking.groups:
        assert math.fsum(r.rating for r in group.ratings) == pytest.approx(0, abs=1e-9)
        assert math.fsum(r.p_best for r in group.ratings) == pytest.approx(1)
        for rating in group.ratings:
            assert math.isfinite(rating.rating)
            assert 1 <= rating.best_rank <= rating.worst_rank <= len(group.ratings)
            assert 0 <= rating.win_low <= rating.win_high <= 1
            assert 0 < rating.win_probability < 1
    rated = {r.variant for group in ranking.groups for r in group.ratings}
    assert rated | set(ranking.not_ranked) == set(labels)
    assert len(ranking.pairings) + len(ranking.no_data) == math.comb(len(labels), 2)


# --- how often the interval holds


def bounds_by_wins(n_tasks, resamples):
    """The interval of the first of two variants, by how many of its games it won; no ties."""
    found = []
    for wins in range(n_tasks + 1):
        games = [
            PairResult(f"t{task:03}", "a", "b", "first" if task < wins else "second")
            for task in range(n_tasks)
        ]
        found.append(flat(rank(games, "ab", resamples=resamples, seed=5))["a"][2])
    return found


@pytest.mark.parametrize("n_tasks", [5, 8, 20, *((50, 200) if IS_FULL else ())])
def test_the_interval_of_two_variants_covers_the_truth(n_tasks):
    """Each number of wins is weighted with its chance, so nothing is left to luck."""
    bounds = bounds_by_wins(n_tasks, 1000)
    for share in (0.5, 0.7, 0.9, 0.95):
        truth = math.log(share / (1 - share)) / 2
        rating, win = 0.0, 0.0
        for wins, bound in enumerate(bounds):
            chance = binom.pmf(wins, n_tasks, share)
            low = -math.inf if bound.low is None else bound.low
            high = math.inf if bound.high is None else bound.high
            rating += chance * (low <= truth <= high)
            # The half tie keeps what was seen to be won a little below 1.
            win += chance * (bound.win_low - 0.02 <= share <= bound.win_high + 0.02)
        assert rating >= 0.915, share
        assert win >= 0.915, share


def simulate(draws, ratings, n_tasks, tie_parameter):
    for task in range(n_tasks):
        for one, other in combinations(range(len(ratings)), 2):
            win, tie, _ = chances(ratings[one] - ratings[other], tie_parameter)
            draw = next(draws) / 2**64
            outcome = "first" if draw < win else "tie" if draw < win + tie else "second"
            yield PairResult(f"t{task:03}", LABELS[one], LABELS[other], outcome)


@pytest.mark.parametrize("n_tasks", [8, *((20, 50) if IS_FULL else ())])
def test_the_intervals_of_four_variants_cover_the_truth(n_tasks):
    truth, trials = (1.0, 0.4, -0.3, -1.1), 300 if IS_FULL else 40
    draws = canonical.stream("coverage", str(n_tasks))
    held = total = ranks_held = 0
    for trial in range(trials):
        games = list(simulate(draws, truth, n_tasks, 0.6))
        ratings = flat(rank(games, LABELS[:4], resamples=200, seed=trial))
        for place, (label, right) in enumerate(zip(LABELS, truth, strict=False)):
            rating = ratings[label][2]
            low = -math.inf if rating.low is None else rating.low
            high = math.inf if rating.high is None else rating.high
            held += low <= right <= high
            ranks_held += rating.best_rank <= place + 1 <= rating.worst_rank
            total += 1
    # Two standard errors of the simulation itself, in which the four of a trial are no four trials.
    least = 0.93 - 2 * math.sqrt(0.05 * 0.95 / trials)
    assert held / total >= least, (held, total)
    assert ranks_held / total >= least, (ranks_held, total)


@given(st.integers(0, 80), st.integers(0, 80), st.sampled_from([(1, 2), (1, 3), (2, 7)]))
def test_the_p_value_is_that_of_scipy(k, n, share):
    k, n = min(k, n), max(k, n, 1)
    expected = binomtest(k, n, share[0] / share[1]).pvalue
    assert binomial_test(k, n, Fraction(*share)) == pytest.approx(expected, rel=1e-9)
