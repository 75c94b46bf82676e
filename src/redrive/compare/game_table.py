"""Games between numbered players, task by task: who met whom, and how they did; resampled ratings.

Knows players by number. Must not know their names, nor what a game was.

Source: DESIGN.md §6 "Grading is group-wise"; what is added and why: `compare.tournament`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import mul

import msgspec

from redrive.compare.bradley_terry import Fit, Games, fit_games
from redrive.compare.resampling import draw_counts

_DRAW = "tournament.tasks"
EQUAL = 1e-7
"""Ratings that differ by no more are equal: what the fit may be off by is less."""
_QUARTER = 0.25

Pair = tuple[int, int]
Rows = Sequence[Sequence[float]]


class Tally(msgspec.Struct, frozen=True):
    """Games of one pair, seen by the lower number."""

    wins: int = 0
    ties: int = 0
    losses: int = 0
    inconclusive: int = 0

    @property
    def counted(self) -> int:
        """How many games count."""
        return self.wins + self.ties + self.losses

    def plus(self, other: "Tally") -> "Tally":
        """Add up."""
        return Tally(
            self.wins + other.wins,
            self.ties + other.ties,
            self.losses + other.losses,
            self.inconclusive + other.inconclusive,
        )

    def turned(self) -> "Tally":
        """See it from the other side."""
        return Tally(self.losses, self.ties, self.wins, self.inconclusive)


class GameTable(msgspec.Struct, frozen=True):
    """All games.

    Attributes:
        tasks: one mapping for each task, in the order of their ids: (lower, higher) → games.
        total: the same over all tasks.
        n_players: they are numbered from 0.
    """

    tasks: tuple[Mapping[Pair, Tally], ...]
    total: Mapping[Pair, Tally]
    n_players: int

    def between(self, one: int, other: int) -> Tally:
        """Give the games of two different players, seen by the first."""
        if one > other:
            return self.between(other, one).turned()
        return self.total.get((one, other), Tally())

    def groups(self) -> list[list[int]]:
        """Give the players that a chain of games that count connects, the largest group first."""
        found: list[list[int]] = []
        for player in range(self.n_players):
            if not any(player in group for group in found):
                found.append(sorted(self._reach(player, lambda games: games.counted)))
        return sorted(found, key=lambda group: -len(group))

    def is_bound_above(self, player: int, group: Sequence[int]) -> bool:
        """Tell whether a chain of points leads from each other member to this one.

        If not, there are members, this one among them, that never lost a point to the rest, and
        every larger distance between the two would be as likely or likelier.
        """
        return len(self._reach(player, lambda games: games.losses + games.ties)) == len(group)

    def is_bound_below(self, player: int, group: Sequence[int]) -> bool:
        """Tell whether a chain of points leads from this member to each other one."""
        return len(self._reach(player, lambda games: games.wins + games.ties)) == len(group)

    def _reach(self, start: int, count: Callable[[Tally], int]) -> set[int]:
        reached, edge = {start}, [start]
        while edge:
            player = edge.pop()
            for other in set(range(self.n_players)) - reached:
                if count(self.between(player, other)):
                    reached.add(other)
                    edge.append(other)
        return reached


def tabulate(games: Iterable[tuple[str, int, int, Tally]], n_players: int) -> GameTable:
    """Add up games.

    Args:
        games: task, two different players, and what was played as the first of them sees it.
        n_players: all numbers are below it.
    """
    tasks: dict[str, dict[Pair, Tally]] = {}
    total: dict[Pair, Tally] = {}
    for task, one, other, tally in games:
        pair, seen = ((one, other), tally) if one < other else ((other, one), tally.turned())
        for cells in (tasks.setdefault(task, {}), total):
            cells[pair] = cells.get(pair, Tally()).plus(seen)
    return GameTable(tuple(tasks[task] for task in sorted(tasks)), total, n_players)


# --- one group of connected players


class RatedGroup(msgspec.Struct, frozen=True):
    """A group's ratings, and what they become when the tasks are drawn again.

    Attributes:
        members: players, ascending; everything else is in their order.
        has_tie_parameter: whether ties are Davidson's.
        fit: of the games as played.
        resampled: one for each time the tasks were drawn.
    """

    members: tuple[int, ...]
    has_tie_parameter: bool
    fit: Fit
    resampled: tuple[Fit, ...]


class _Sheet(msgspec.Struct, frozen=True):
    """Points of each member against each other one in some games, and how many were ties."""

    points: Rows
    ties: float = 0.0


def rate_group(table: GameTable, members: Sequence[int], resamples: int, seed: int) -> RatedGroup:
    """Rate two or more connected players.

    Cost: one fit for each different draw; few tasks, or tasks that went alike, draw alike.
    """
    within = [games for pair, games in table.total.items() if set(pair) <= set(members)]
    has_ties = any(games.ties for games in within)
    davidson = has_ties and any(games.wins + games.losses for games in within)
    halves = _half_ties(table, members)
    sheets = [_sheet_of(cells, members, davidson=davidson) for cells in table.tasks]
    fit = fit_games(_add_up([halves, *sheets], [1] * (len(sheets) + 1)))
    urn = [*sheets, *_made_up(table, members, fit)]
    kinds: list[_Sheet] = []
    kind_of = [_index_of(sheet, kinds) for sheet in urn]
    known: dict[tuple[int, ...], Fit] = {}
    resampled = []
    for counts in draw_counts(str(seed), _DRAW, len(sheets), len(urn), resamples):
        drawn = [0] * len(kinds)
        for kind, count in zip(kind_of, counts, strict=True):
            drawn[kind] += count
        if (key := tuple(drawn)) not in known:
            known[key] = fit_games(_add_up([halves, *kinds], [1, *drawn]), fit)
        resampled.append(known[key])
    return RatedGroup(tuple(members), davidson, fit, tuple(resampled))


def _index_of(sheet: _Sheet, kinds: list[_Sheet]) -> int:
    if sheet not in kinds:
        kinds.append(sheet)
    return kinds.index(sheet)


def _half_ties(table: GameTable, members: Sequence[int]) -> _Sheet:
    """Give half a tie between all who met, as the quarter of a win that it is for either side."""
    return _Sheet(
        [[_QUARTER if table.between(i, j).counted else 0.0 for j in members] for i in members]
    )


def _sheet_of(cells: Mapping[Pair, Tally], members: Sequence[int], *, davidson: bool) -> _Sheet:
    task = GameTable((), cells, 0)
    points = [[_points(task.between(i, j)) for j in members] for i in members]
    ties = sum(games.ties for pair, games in cells.items() if set(pair) <= set(members))
    return _Sheet(points, float(ties) if davidson else 0.0)


def _points(games: Tally) -> float:
    return games.wins + games.ties / 2


def _made_up(table: GameTable, members: Sequence[int], fit: Fit) -> Iterator[_Sheet]:
    """Give a task in which all who met go as they are rated, and one in which they do not.

    Each pair plays as many games as it does in a task in which it meets, on average.
    """
    places = range(len(members))
    for sign in (1, -1):
        points = [[0.0] * len(members) for _ in members]
        for i in places:
            for j in places[i + 1 :]:
                ahead = fit.ratings[i] - fit.ratings[j] >= -EQUAL
                winner, loser = (i, j) if ahead == (sign == 1) else (j, i)
                points[winner][loser] = _games_per_task(table, members[i], members[j])
        yield _Sheet(points)


def _games_per_task(table: GameTable, one: int, other: int) -> float:
    met = [games.counted for cells in table.tasks if (games := cells.get((one, other)))]
    return sum(met) / max(1, sum(map(bool, met)))


def _add_up(sheets: Sequence[_Sheet], counts: Sequence[int]) -> Games:
    """Add sheets, each as often as its count says, always in the same order."""
    points = [
        [sum(map(mul, cell, counts)) for cell in zip(*rows, strict=True)]
        for rows in zip(*(sheet.points for sheet in sheets), strict=True)
    ]
    return Games(
        points, sum(sheet.ties * count for sheet, count in zip(sheets, counts, strict=True))
    )
