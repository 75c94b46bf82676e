"""Fits Bradley and Terry's model of paired comparisons, with Davidson's ties.

Knows games between numbered players. Must not know names, tasks or intervals.

A win of i over j has the odds exp(r_i − r_j) against a loss; the tie parameter t says how common
ties are between equals: P(win) : P(tie) : P(loss) = exp(d/2) : t : exp(−d/2) with d = r_i − r_j.
The points of a player (a win one, a tie one half) and the number of ties are all that the fit looks
at, so the likelihood has one peak. Every sum over players is `math.fsum`, which rounds once and
thus does not depend on their order: renumbering the players renumbers the ratings, bit for bit.

Source: Bradley and Terry (1952), doi:10.2307/2334029; Davidson (1970),
doi:10.1080/01621459.1970.10481082; Newton's method with conjugate gradients (Nocedal and Wright,
Numerical Optimization, 2006, algorithm 7.1).
"""

import math
from collections.abc import Sequence
from operator import mul

import msgspec

_SETTLED = 1e-11
_LONGEST_STEP = 2.0
_MOST_STEPS = 200
_SOLVED = 1e-20


class Games(msgspec.Struct, frozen=True):
    """What was played between n players, n at least 2.

    Attributes:
        points: n rows of n: what the row's player won against the column's, ties counted half; 0 on
            the diagonal, need not be integers. From each player a chain of points leads to each
            other one; a half tie between those who met sees to it.
        ties: how many games were ties as the tie parameter counts them; with 0 it is 0.
    """

    points: Sequence[Sequence[float]]
    ties: float = 0.0


class Fit(msgspec.Struct, frozen=True):
    """The peak of the likelihood.

    Attributes:
        ratings: one per player, on the natural log scale, with mean 0.
        tie_parameter: Davidson's parameter; 0 in the plain model.
    """

    ratings: tuple[float, ...]
    tie_parameter: float = 0.0


class _Tally(msgspec.Struct, frozen=True):
    """What the likelihood looks at: games of each pair, points of each player, ties of all."""

    played: list[list[float]]
    points: list[float]
    ties: float


def fit_games(games: Games, start: Fit | None = None) -> Fit:
    """Find the ratings under which what was played is most likely.

    Args:
        games: see `Games`.
        start: where to begin, such as the fit of similar games.

    Returns:
        Ratings at which no player's expected points are off by more than 1e-11 of the games of the
        pair that met most often.

    Cost: five to ten of Newton's steps, each O(n²) times a few conjugate gradients.
    """
    others = list(zip(*games.points, strict=True))
    played = [
        [mine + theirs for mine, theirs in zip(row, column, strict=True)]
        for row, column in zip(games.points, others, strict=True)
    ]
    tally = _Tally(played, list(map(math.fsum, games.points)), games.ties)
    ratings = list(start.ratings) if start else [0.0] * len(played)
    log_nu = math.log(start.tie_parameter) if start and start.tie_parameter else 0.0
    bound, steps_left = _SETTLED * max(map(max, played)), _MOST_STEPS
    slope, curve = _differentiate(tally, ratings, log_nu)
    while max(map(abs, slope)) > bound and steps_left:
        step = _solve(curve, slope)
        scale = min(1.0, _LONGEST_STEP / max(map(abs, step)))
        ratings = _centre([r + scale * s for r, s in zip(ratings, step, strict=False)])
        if games.ties:
            log_nu += scale * step[-1]
        slope, curve = _differentiate(tally, ratings, log_nu)
        steps_left -= 1
    return Fit(tuple(ratings), math.exp(log_nu) if games.ties else 0.0)


def chances(difference: float, tie_parameter: float) -> tuple[float, float, float]:
    """Give the chances of a win, a tie and a loss at a difference of ratings."""
    up, down = math.exp(difference / 2), math.exp(-difference / 2)
    whole = up + down + tie_parameter
    return up / whole, tie_parameter / whole, down / whole


def expected_score(difference: float, tie_parameter: float) -> float:
    """Give the expected points of one game: the chance of a win, and half that of a tie."""
    win, tie, _ = chances(difference, tie_parameter)
    return win + tie / 2


def _differentiate(
    tally: _Tally, ratings: Sequence[float], log_nu: float
) -> tuple[list[float], list[list[float]]]:
    """Give slope and negative curvature of the log-likelihood, the tie parameter's last."""
    nu = math.exp(log_nu) if tally.ties else 0.0
    slope, curve, mixed, ties_slope, ties_curve = [], [], [], [], []
    for mine, (rating, played) in enumerate(zip(ratings, tally.played, strict=True)):
        scores, row, along = [], [0.0] * len(ratings), []
        for other, count in enumerate(played):
            if not count:
                continue
            up, down = (
                math.exp((rating - ratings[other]) / 2),
                math.exp((ratings[other] - rating) / 2),
            )
            whole = up + down + nu
            tie = nu / whole
            scores.append(count * (up + nu / 2) / whole)
            row[other] = -count * (1 + nu * (up + down) / 4) / (whole * whole)
            along.append(count * tie * (down - up) / (2 * whole))
            ties_slope.append(count * tie / 2)
            ties_curve.append(count * tie * (1 - tie) / 2)
        row[mine] = -math.fsum(row)
        curve.append(row)
        slope.append(tally.points[mine] - math.fsum(scores))
        mixed.append(math.fsum(along))
    # A shift of all ratings changes nothing; this makes it as stiff as the rest, and only it.
    stiff = math.fsum(row[place] for place, row in enumerate(curve)) / len(curve) ** 2
    curve = [[value + stiff for value in row] for row in curve]
    if not tally.ties:
        return slope, curve
    rows = [[*row, cross] for row, cross in zip(curve, mixed, strict=True)]
    rows.append([*mixed, math.fsum(ties_curve)])
    return [*slope, tally.ties - math.fsum(ties_slope)], rows


def _solve(matrix: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[float]:
    """Solve a positive definite system by conjugate gradients, scaled by its diagonal."""
    weights = [1 / row[place] for place, row in enumerate(matrix)]
    found = [0.0] * len(wanted)
    rest = list(wanted)
    direction = list(map(mul, weights, rest))
    size = _dot(rest, direction)
    enough, steps_left = size * _SOLVED, 2 * len(wanted)
    while size > enough and steps_left:
        image = [_dot(row, direction) for row in matrix]
        length = size / _dot(direction, image)
        found = [x + length * d for x, d in zip(found, direction, strict=True)]
        rest = [r - length * a for r, a in zip(rest, image, strict=True)]
        scaled = list(map(mul, weights, rest))
        before, size = size, _dot(rest, scaled)
        direction = [s + size / before * d for s, d in zip(scaled, direction, strict=True)]
        steps_left -= 1
    return found


def _dot(one: Sequence[float], two: Sequence[float]) -> float:
    return math.fsum(map(mul, one, two))


def _centre(ratings: Sequence[float]) -> list[float]:
    middle = math.fsum(ratings) / len(ratings)
    return [rating - middle for rating in ratings]
