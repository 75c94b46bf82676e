"""Rankings of known games: who counts, who is left out, and what the figures say at the edges."""

import math
from itertools import product

import pytest

from redrive.compare.tournament import LeftOut, PairResult, rank


def play(*words, attempt=1):
    """`a>b t1` a wins, `a=b t1` a tie, `a?b t1` inconclusive."""
    signs = {">": "first", "<": "second", "=": "tie", "?": "inconclusive"}
    for word in words:
        game, _, task = word.partition(" ")
        yield PairResult(task, game[0], game[2], signs[game[1]], attempt)


def run(*words, variants="ab", **options):
    return rank(list(play(*words)), list(variants), **({"resamples": 200, "seed": 1} | options))


def by_name(ranking):
    return {rating.variant: rating for group in ranking.groups for rating in group.ratings}


SWEEP = [f"a>b t{n}" for n in range(8)]


def test_a_variant_that_wins_all_its_games_has_a_finite_rating_and_no_upper_bound():
    ranking = run(*SWEEP)
    (group,) = ranking.groups
    best, worst = group.ratings
    assert best.rating == pytest.approx(math.log(8.25 / 0.25) / 2)
    assert worst.rating == pytest.approx(-best.rating)
    assert best.high is None
    assert worst.low is None
    assert 0 < best.low < best.rating
    assert (best.win_low, best.win_high) == (pytest.approx(0.5, abs=0.2), 1.0)
    assert (worst.win_low, worst.win_high) == (0.0, pytest.approx(0.5, abs=0.2))
    assert (best.wins, best.ties, best.losses) == (8, 0, 0)
    assert (worst.wins, worst.ties, worst.losses) == (0, 0, 8)
    assert (group.model, group.tie_parameter) == ("bradley-terry", None)


def test_tasks_that_all_agree_give_no_interval_of_width_zero():
    (best, _) = run(*SWEEP).groups[0].ratings
    assert best.win_high - best.win_low > 0.2
    (one, other) = run(*(f"a=b t{n}" for n in range(8))).groups[0].ratings
    assert one.low < 0 < one.high
    assert (one.rank, one.best_rank, one.worst_rank) == (1, 1, 2)
    assert (other.rank, other.best_rank, other.worst_rank) == (1, 1, 2)


def test_where_everybody_ties_the_tie_parameter_cannot_be_told():
    ranking = run("a=b t1", "a=c t1", "b=c t1", "a=b t2", "a=c t2", "b=c t2", variants="abc")
    (group,) = ranking.groups
    assert (group.model, group.tie_parameter) == ("bradley-terry", None)
    assert {rating.rating for rating in group.ratings} == {0.0}
    assert all(pairing.p_tie is None for pairing in ranking.pairings)


def test_ties_beside_wins_are_davidsons():
    ranking = run("a>b t1", "a=b t2", "a=b t3", "b>a t4", "a>b t5")
    (group,) = ranking.groups
    assert group.model == "davidson"
    assert group.tie_parameter == pytest.approx(2 / math.sqrt(2.25 * 1.25))
    (pairing,) = ranking.pairings
    assert pairing.p_win + pairing.p_tie + pairing.p_loss == pytest.approx(1)
    assert pairing.p_win / pairing.p_loss == pytest.approx(2.25 / 1.25)


def test_an_inconclusive_game_is_no_loss_and_is_counted():
    ranking = run("a>b t1", "a?b t2", "b>a t3")
    assert {rating.rating for rating in by_name(ranking).values()} == {0.0}
    assert (ranking.n_games, ranking.n_inconclusive, ranking.n_tasks) == (2, 1, 3)
    assert by_name(ranking)["a"].inconclusive == by_name(ranking)["b"].inconclusive == 1
    assert ranking.pairings[0].inconclusive == 1
    assert ranking.pairings[0].tasks_won == ranking.pairings[0].tasks_lost == 1


def test_a_tie_that_the_order_made_is_counted():
    games = [PairResult("t", "a", "b", "tie", position_dependent=True), *play("a>b u")]
    assert rank(games, ["a", "b"], resamples=10, seed=1).n_position_dependent == 1


def test_a_block_in_which_a_variant_does_not_play_is_left_out_and_named():
    ranking = run("a>b t1", "a>c t1", "b>c t1", "b>a t2", variants="abc")
    assert ranking.left_out == (LeftOut("t2", 1, ("c",)),)
    assert ranking.n_games == 3
    assert [rating.variant for rating in ranking.groups[0].ratings] == ["a", "b", "c"]


def test_each_attempt_is_a_block_of_its_own():
    second = PairResult("t1", "b", "a", "first", 2)
    games = [*play("a>b t1", "a>c t1", "b>c t1"), second]
    ranking = rank(games, ["a", "b", "c"], resamples=10, seed=1)
    assert ranking.left_out == (LeftOut("t1", 2, ("c",)),)
    assert (ranking.n_tasks, ranking.n_games) == (1, 3)


def test_a_variant_whose_games_are_all_inconclusive_is_not_ranked_and_its_block_stays():
    ranking = run("a>b t1", "a?c t1", "b?c t1", variants="abc")
    assert ranking.not_ranked == ("c",)
    assert ranking.left_out == ()
    assert ranking.no_data == (("a", "c"), ("b", "c"))
    assert [rating.variant for rating in ranking.groups[0].ratings] == ["a", "b"]


def test_variants_that_no_chain_of_games_connects_are_ranked_apart():
    ranking = run(
        "a>b t1", "c<d t1", "a>b t2", "d>e t2", "c?e t1", "a?e t1", "c=d t2", variants="abcde"
    )
    assert ranking.no_data == (*product("ab", "cde"), ("c", "e"))
    assert [[r.variant for r in group.ratings] for group in ranking.groups] == [
        ["d", "c", "e"],
        ["a", "b"],
    ]
    for group in ranking.groups:
        assert math.fsum(r.rating for r in group.ratings) == pytest.approx(0, abs=1e-12)
        assert group.ratings[0].rank == 1
    assert [group.model for group in ranking.groups] == ["davidson", "bradley-terry"]


@pytest.mark.parametrize("variants", ["", "a", "ab"])
def test_without_games_nothing_is_ranked(variants):
    ranking = run(variants=variants)
    assert ranking.groups == ranking.pairings == ranking.left_out == ()
    assert ranking.not_ranked == tuple(variants)
    assert (ranking.n_tasks, ranking.n_games) == (0, 0)


def test_all_inconclusive_is_no_data():
    ranking = run("a?b t1", "a?b t2")
    assert ranking.groups == ()
    assert ranking.not_ranked == ("a", "b")
    assert ranking.no_data == (("a", "b"),)
    assert (ranking.n_tasks, ranking.n_inconclusive) == (2, 2)


def test_one_task_ranks_with_wide_intervals():
    best, worst = run("a>b t1").groups[0].ratings
    assert (best.variant, best.best_rank, best.worst_rank) == ("a", 1, 2)
    assert (worst.best_rank, worst.worst_rank) == (1, 2)
    assert 0.5 < best.p_best < 0.8
    assert best.p_best + worst.p_best == pytest.approx(1)


def test_two_sets_of_which_one_never_loses_to_the_other_bound_no_distance():
    tasks = [
        game
        for n in range(4)
        for game in (
            f"a{'<>'[n % 2]}b t{n}",
            f"c{'<>'[n % 2]}d t{n}",
            f"a>c t{n}",
            f"a>d t{n}",
            f"b>c t{n}",
            f"b>d t{n}",
        )
    ]
    ratings = by_name(run(*tasks, variants="abcd"))
    assert [ratings[name].high is None for name in "abcd"] == [True, True, False, False]
    assert [ratings[name].low is None for name in "abcd"] == [False, False, True, True]
    assert ratings["a"].win_high < 1
    assert ratings["c"].win_low > 0


def test_the_middle_of_a_sweep_is_bound_on_neither_side():
    words = [f"{game} t{n}" for n in range(4) for game in ("a>b", "a>c", "b>c")]
    middle = by_name(run(*words, variants="abc"))["b"]
    assert (middle.low, middle.high, middle.rank) == (None, None, 2)
    assert middle.rating == pytest.approx(0, abs=1e-9)


def test_a_pair_is_told_by_tasks_so_that_attempts_are_no_more_proof():
    games = [
        PairResult("t1", "a", "b", "first", 1),
        PairResult("t1", "a", "b", "first", 2),
        PairResult("t1", "a", "b", "second", 3),
        PairResult("t2", "a", "b", "first", 1),
        PairResult("t2", "a", "b", "second", 2),
        PairResult("t3", "b", "a", "first", 1),
    ]
    (pairing,) = rank(games, ["a", "b"], resamples=10, seed=1).pairings
    assert (pairing.wins, pairing.ties, pairing.losses) == (3, 0, 3)
    assert (pairing.tasks_won, pairing.tasks_even, pairing.tasks_lost) == (1, 1, 1)
    assert pairing.p_value == 1


def test_a_sweep_of_eight_tasks_is_stated_with_its_exact_interval():
    (pairing,) = run(*SWEEP).pairings
    assert (pairing.first, pairing.second) == ("a", "b")
    assert (pairing.low, pairing.high) == (pytest.approx(0.630583, abs=1e-6), 1.0)
    assert pairing.p_value == 2 / 256


def test_a_pair_that_met_in_some_tasks_only_is_rated_with_the_others():
    words = ["a>b t1", "b>c t1", "a>b t2", "b>c t2", "a?c t1", "a?c t2", "c>b t3", "a?b t3"]
    ranking = run(*words, variants="abc")
    assert ranking.no_data == (("a", "c"),)
    assert [rating.variant for rating in ranking.groups[0].ratings] == ["a", "b", "c"]


def test_equal_seeds_give_equal_rankings_and_others_other_intervals():
    words = ["a>b t1", "a>b t2", "b>a t3", "a>b t4", "a=b t5", "a>b t6", "b>a t7"]
    assert run(*words) == run(*words)
    one, other = run(*words), run(*words, seed=2)
    assert by_name(one)["a"].rating == by_name(other)["a"].rating
    assert by_name(one)["a"].p_best != by_name(other)["a"].p_best


@pytest.mark.parametrize(
    ("game", "variants", "message"),
    [
        (PairResult("t", "a", "a", "tie"), ("a", "b"), "against itself"),
        (PairResult("t", "a", "x", "tie"), ("a", "b"), "no such variant: 'x'"),
        (PairResult("t", "a", "b", "tie"), ("a", "b", "a"), "listed twice"),
    ],
)
def test_games_that_cannot_be_are_refused(game, variants, message):
    with pytest.raises(ValueError, match=message):
        rank([game], variants, resamples=1, seed=1)


def test_no_resamples_is_refused():
    with pytest.raises(ValueError, match="0 resamples"):
        rank([], ("a",), resamples=0, seed=1)


def test_fifty_variants_are_ranked():
    variants = [f"v{n:02}" for n in range(50)]
    games = [
        PairResult(
            f"t{task}", variants[i], variants[j], "first" if (i + j + task) % 5 else "second"
        )
        for task in range(2)
        for i in range(50)
        for j in range(i + 1, 50)
    ]
    (group,) = rank(games, variants, resamples=5, seed=1).groups
    assert len(group.ratings) == 50
    assert group.ratings[0].rating > 1
    assert math.fsum(rating.p_best for rating in group.ratings) == pytest.approx(1)
