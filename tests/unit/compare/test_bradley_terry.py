"""Known peaks of the likelihood; scipy and choix are asked in tests/property."""

import math

import pytest

from redrive.compare.bradley_terry import Fit, Games, chances, expected_score, fit_games


def test_two_players_are_as_far_apart_as_the_log_of_their_points():
    fit = fit_games(Games(((0, 8.25), (0.25, 0))))
    assert fit.ratings == pytest.approx((math.log(33) / 2, -math.log(33) / 2), abs=1e-12)
    assert fit.tie_parameter == 0


def test_ties_of_two_players_give_davidsons_parameter_in_closed_form():
    # 6.25 wins, 2.25 losses, 4 ties: a tie is 0.5 points for either side.
    fit = fit_games(Games(((0, 8.25), (4.25, 0)), ties=4))
    assert fit.ratings[0] - fit.ratings[1] == pytest.approx(math.log(6.25 / 2.25), abs=1e-10)
    assert fit.tie_parameter == pytest.approx(4 / math.sqrt(6.25 * 2.25), abs=1e-10)


def test_equal_points_are_equal_ratings_bit_for_bit():
    fit = fit_games(Games(((0, 2.5, 4), (2.5, 0, 4), (1, 1, 0)), ties=1))
    assert fit.ratings[0] == fit.ratings[1] > fit.ratings[2]
    assert math.fsum(fit.ratings) == pytest.approx(0, abs=1e-12)


def test_where_it_begins_does_not_matter():
    games = Games(((0, 5.25, 3), (1.25, 0, 2.5), (2, 1.5, 0)), ties=2)
    cold = fit_games(games)
    for start in (Fit((3.0, -1.0, -2.0), 4.0), Fit((0.0, 0.0, 0.0)), cold):
        warm = fit_games(games, start)
        assert warm.ratings == pytest.approx(cold.ratings, abs=1e-9)
        assert warm.tie_parameter == pytest.approx(cold.tie_parameter, rel=1e-9)
    without = fit_games(Games(games.points), cold)
    assert without.tie_parameter == 0


def test_players_that_met_through_others_only_are_rated_along_the_chain():
    fit = fit_games(Games(((0, 3, 0), (1, 0, 3), (0, 1, 0))))
    steps = (fit.ratings[0] - fit.ratings[1], fit.ratings[1] - fit.ratings[2])
    assert steps == pytest.approx((math.log(3), math.log(3)), abs=1e-10)


def test_fifty_players_of_which_the_lower_number_wins_each_game_are_rated_in_order():
    points = [[0.25 + 8 * (i < j) if i != j else 0 for j in range(50)] for i in range(50)]
    ratings = fit_games(Games(points)).ratings
    assert list(ratings) == sorted(ratings, reverse=True)
    assert all(map(math.isfinite, ratings))
    assert ratings == pytest.approx([-r for r in reversed(ratings)], abs=1e-9)


def test_chances_add_up_and_turn_round():
    win, tie, loss = chances(1.5, 0.7)
    assert win + tie + loss == pytest.approx(1)
    assert win / loss == pytest.approx(math.exp(1.5))
    assert chances(-1.5, 0.7) == (loss, tie, win)
    assert expected_score(1.5, 0.7) == win + tie / 2
    assert chances(0, 2) == (0.25, 0.5, 0.25)
