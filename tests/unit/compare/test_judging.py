"""What survives of a judge's word when the order changes, with case 52 as it was found."""

import json
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from redrive.compare.judging import ShownOrder, measure_bias, plan_orders, reconcile
from redrive.compare.tournament import PairResult

CASE = Path(__file__).parents[2] / "cases/52-judge-position-bias"
RANKINGS = {
    "first": lambda one, other: ((one,), (other,)),
    "second": lambda one, other: ((other,), (one,)),
    "tie": lambda one, other: ((one, other),),
    None: lambda one, other: None,
}


def read_case():
    """The verdicts as judgements of two: task → pair → orders."""
    judged = defaultdict(lambda: defaultdict(list))
    for line in (CASE / "verdicts.jsonl").read_text().splitlines():
        verdict = json.loads(line)
        order = ShownOrder(
            tuple(verdict["shown"]),
            RANKINGS[verdict["verdict"]](*verdict["shown"]),
            reason=verdict.get("raw", ""),
        )
        judged[verdict["task"]]["-".join(verdict["pair"])].append(order)
    return judged


def test_case_52_is_reconciled_as_expected():
    expect = json.loads((CASE / "expected.json").read_text())["expect"]
    found, board, calls = {}, defaultdict(Counter), 0
    for task, pairs in read_case().items():
        for pair, orders in pairs.items():
            calls += len(orders)
            (game,) = reconcile(task, orders)
            winner = {"first": game.first, "second": game.second}.get(game.outcome, game.outcome)
            found[f"{pair} {task}"] = {"outcome": winner}
            if game.outcome == "tie":
                found[f"{pair} {task}"]["position_dependent"] = game.position_dependent
            for side in (game.first, game.second):
                won = "win" if winner == side else "loss"
                word = game.outcome if game.outcome in ("tie", "inconclusive") else won
                board[side][word] += 1
    assert found == expect["verdicts.jsonl"]
    words = ("win", "tie", "loss", "inconclusive")
    assert {side: {w: board[side][w] for w in words} for side in board} == expect["board"]
    assert calls == expect["judge_calls"]


def test_case_52_of_one_task_together_is_the_same():
    for task, pairs in read_case().items():
        apart = [game for orders in pairs.values() for game in reconcile(task, orders)]
        together = reconcile(task, [order for orders in pairs.values() for order in orders])
        assert sorted(apart, key=str) == sorted(together, key=str)


def order(shown, *ranking, attempt=1):
    return ShownOrder(tuple(shown), tuple(map(tuple, ranking)) or None, attempt)


def test_a_win_counts_if_each_order_says_so():
    games = reconcile("t", [order("cab", "a", "bc"), order("bac", "a", "b", "c")])
    assert games == (
        PairResult("t", "a", "b", "first"),
        PairResult("t", "a", "c", "first"),
        PairResult("t", "b", "c", "tie", position_dependent=True),
    )


def test_a_win_in_one_order_and_a_tie_in_the_other_is_a_tie_that_the_order_made():
    (game,) = reconcile("t", [order("ab", "a", "b"), order("ba", "ab")])
    assert (game.outcome, game.position_dependent) == ("tie", True)


def test_a_tie_in_each_order_is_a_tie():
    (game,) = reconcile("t", [order("ab", "ab"), order("ba", "ba")])
    assert (game.outcome, game.position_dependent) == ("tie", False)


def test_a_pair_that_was_shown_one_way_round_only_is_inconclusive():
    (game,) = reconcile("t", [order("ab", "a", "b"), order("ab", "a", "b")])
    assert game.outcome == "inconclusive"


@pytest.mark.parametrize(
    "ranking", [(), ("a",), ("a", "b", "b"), ("a", "x"), ("a", "b", "x"), ("aa", "b")]
)
def test_an_unreadable_order_makes_its_pairs_inconclusive_and_never_lost(ranking):
    unreadable = order("abc", *ranking)
    games = reconcile("t", [unreadable, order("cba", "a", "b", "c"), order("abc", "a", "b", "c")])
    assert [game.outcome for game in games] == ["inconclusive"] * 3
    other = reconcile("t", [order("ab", *ranking), order("cb", "c", "b"), order("bc", "c", "b")])
    assert [game.outcome for game in other if game.first == "b"] == ["second"]


def test_attempts_are_reconciled_apart():
    games = reconcile(
        "t",
        [
            order("ab", "a", "b"),
            order("ba", "a", "b"),
            order("ab", "b", "a", attempt=2),
            order("ba", "b", "a", attempt=2),
        ],
    )
    assert [(game.attempt, game.outcome) for game in games] == [(1, "first"), (2, "second")]


def test_no_orders_make_no_games():
    assert reconcile("t", []) == ()


# --- position bias


def test_a_judge_that_prefers_what_is_shown_first_is_found_out():
    judged = {f"t{n}": [order("ab", "a", "b"), order("ba", "b", "a")] for n in range(8)}
    bias = measure_bias(judged)
    assert (bias.judgements, bias.unreadable) == (16, 0)
    assert (bias.first_shown.k, bias.first_shown.n, bias.first_shown.expected) == (16, 16, 0.5)
    assert (bias.last_shown.k, bias.last_shown.n) == (0, 16)
    assert bias.first_shown.low == pytest.approx(0.794, abs=1e-3)
    assert bias.first_shown.p_value == 2 / 2**16
    assert (bias.earlier_shown.k, bias.earlier_shown.n) == (16, 16)
    assert (bias.pairs, bias.position_dependent) == (8, 8)


def test_a_judge_that_does_not_look_at_places_is_not_blamed():
    orders = [order(shown, "b", "a", "c") for shown in ("abc", "bca", "cab")]
    bias = measure_bias({"t": orders})
    assert (bias.first_shown.k, bias.first_shown.n) == (1, 3)
    assert bias.first_shown.expected == pytest.approx(1 / 3)
    assert bias.first_shown.p_value == bias.last_shown.p_value == 1
    assert (bias.position_dependent, bias.pairs) == (0, 3)


def test_unreadable_judgements_and_ties_at_the_top_say_nothing_of_places():
    bias = measure_bias({"t": [order("ab"), order("ba", "ab")], "u": [order("ab", "a", "b")]})
    assert (bias.judgements, bias.unreadable) == (3, 1)
    assert (bias.first_shown.k, bias.first_shown.n) == (1, 1)
    assert (bias.earlier_shown.k, bias.earlier_shown.n) == (1, 1)


def test_without_judgements_nothing_is_known():
    bias = measure_bias({})
    assert (bias.first_shown.low, bias.first_shown.high, bias.first_shown.p_value) == (0, 1, 1)


# --- orders


@pytest.mark.parametrize("n", range(2, 8))
def test_planned_orders_balance_places_and_show_each_pair_both_ways(n):
    for k in range(2, 3 * n + 1):
        orders = plan_orders(n, k, seed=k)
        assert len(orders) == k
        assert all(sorted(order) == list(range(n)) for order in orders)
        counts = Counter((variant, place) for o in orders for place, variant in enumerate(o))
        every = [counts[variant, place] for variant in range(n) for place in range(n)]
        allowed = 0 if k % n == 0 else 2 if n % 2 and k < n else 1
        assert max(every) - min(every) <= allowed
        for one, other in combinations(range(n), 2):
            assert {o.index(one) < o.index(other) for o in orders} == {True, False}


def test_equal_seeds_plan_equally_and_seeds_say_who_stands_first():
    assert plan_orders(4, 4, 1) == plan_orders(4, 4, 1)
    assert {plan_orders(3, 2, seed)[0][0] for seed in range(20)} == {0, 1, 2}


@pytest.mark.parametrize(("n", "k"), [(1, 2), (2, 1), (0, 0)])
def test_orders_from_which_nothing_can_survive_are_refused(n, k):
    with pytest.raises(ValueError, match="expected at least 2"):
        plan_orders(n, k, 1)


def test_a_judgement_of_one_variant_says_nothing_of_places():
    bias = measure_bias({"t": [ShownOrder(("A",), (("A",),))]})
    assert (bias.judgements, bias.pairs, bias.first_shown.n) == (0, 0, 0)
