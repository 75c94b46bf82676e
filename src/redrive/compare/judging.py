"""What a judge said of several episodes, shown in several orders, and what survives of it.

Knows orders and rankings of variants. Must not know models, prompts or how an answer was read.

Source: DESIGN.md §6 "a model judge shown several orders". Orders: Williams (1949),
doi:10.1071/CH9490149.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, cycle, islice

import msgspec

from redrive import canonical
from redrive.compare.interval import binomial_test, clopper_pearson
from redrive.compare.resampling import draw_below
from redrive.compare.tournament import PairOutcome, PairResult

_DRAW = "judging.orders"


class ShownOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One judgement: the order shown, and the ranking that came back.

    Attributes:
        shown: variants as they were shown, first one first; unique.
        ranking: the same variants, best first; those of one inner tuple are tied. `None` where the
            judgement could not be read; one that names other variants, or not all, or one twice,
            counts as unreadable too.
        attempt: whose episodes were shown.
        reason: one line, where it could not be read.
        request_sha256: artefact of the request: what a judgement is defended with.
        answer_sha256: artefact of the answer.
    """

    shown: tuple[str, ...]
    ranking: tuple[tuple[str, ...], ...] | None
    attempt: int = 1
    reason: str = ""
    request_sha256: str = ""
    answer_sha256: str = ""

    def places(self) -> dict[str, int] | None:
        """Give each variant's place in the ranking, equal for tied ones; `None` if unreadable."""
        if self.ranking is None:
            return None
        named = [variant for tied in self.ranking for variant in tied]
        if sorted(named) != sorted(self.shown):
            return None
        return {variant: place for place, tied in enumerate(self.ranking) for variant in tied}


class PositionShare(msgspec.Struct, frozen=True):
    """How often a place won: k of n, with the exact interval and the exact two-sided test.

    Attributes:
        expected: share of a judge who does not look at places, where each variant stands in each
            place equally often.
        p_value: of k of n against it. Judgements of one task are not independent, so it says where
            to look and is no proof.
    """

    k: int
    n: int
    expected: float
    low: float
    high: float
    p_value: float


class PositionBias(msgspec.Struct, frozen=True):
    """Whether a judge looks at places: a diagnostic, no correction.

    Attributes:
        judgements: how many there are.
        unreadable: of these, how many could not be read.
        first_shown, last_shown: how often the variant in this place was ranked best, of readable
            judgements with a single best one.
        earlier_shown: how often the earlier one of two was ranked above the other, of all pairs of
            readable judgements that are not tied.
        pairs: pairs of episodes that were judged.
        position_dependent: of these, how many were judged differently in different orders.
    """

    judgements: int
    unreadable: int
    first_shown: PositionShare
    last_shown: PositionShare
    earlier_shown: PositionShare
    pairs: int
    position_dependent: int


# --- what survives


def reconcile(task_id: str, orders: Iterable[ShownOrder]) -> tuple[PairResult, ...]:
    """Reconcile what a judge said of the episodes of one task in several orders.

    A win counts only if each order says so, and both relative orders of the two were shown. Orders
    that contradict each other make a tie that is flagged; an order that could not be read makes its
    pairs inconclusive, never lost, and so does a pair that was shown one way round only.

    Returns:
        One game for each attempt and pair that was shown, `first` the smaller label, sorted.
    """
    seen: dict[tuple[int, str, str], list[tuple[bool, PairOutcome]]] = {}
    for order in orders:
        places = order.places()
        for one, other in combinations(order.shown, 2):
            first, second = sorted((one, other))
            verdict = (first == one, _verdict(places, first, second))
            seen.setdefault((order.attempt, first, second), []).append(verdict)
    return tuple(
        _settle(task_id, attempt, first, second, verdicts)
        for (attempt, first, second), verdicts in sorted(seen.items())
    )


def _verdict(places: dict[str, int] | None, first: str, second: str) -> PairOutcome:
    if places is None:
        return "inconclusive"
    if places[first] == places[second]:
        return "tie"
    return "first" if places[first] < places[second] else "second"


def _settle(
    task_id: str,
    attempt: int,
    first: str,
    second: str,
    verdicts: Sequence[tuple[bool, PairOutcome]],
) -> PairResult:
    said = {verdict for _, verdict in verdicts}
    is_shown_both_ways = len({way for way, _ in verdicts}) == 2
    if "inconclusive" in said or not is_shown_both_ways:
        return PairResult(task_id, first, second, "inconclusive", attempt)
    if len(said) > 1:
        return PairResult(task_id, first, second, "tie", attempt, position_dependent=True)
    return PairResult(task_id, first, second, said.pop(), attempt)


# --- position bias


def measure_bias(judged: Mapping[str, Sequence[ShownOrder]], level: float = 0.95) -> PositionBias:
    """Say how often places won.

    Args:
        judged: task id → judgements; one of a single variant says nothing of places.
        level: of the intervals.
    """
    orders = [order for of_task in judged.values() for order in of_task if order.shown[1:]]
    readable = [(order, places) for order in orders if (places := order.places()) is not None]
    best = [
        (order, order.ranking[0][0])
        for order, _ in readable
        if order.ranking and not order.ranking[0][1:]
    ]
    pairs = [
        places[one] < places[other]
        for order, places in readable
        for one, other in combinations(order.shown, 2)
        if places[one] != places[other]
    ]
    firsts = [order.shown[0] == winner for order, winner in best]
    lasts = [order.shown[-1] == winner for order, winner in best]
    by_chance = [Fraction(1, len(order.shown)) for order, _ in best]
    games = [game for task, of_task in judged.items() for game in reconcile(task, of_task)]
    return PositionBias(
        judgements=len(orders),
        unreadable=len(orders) - len(readable),
        first_shown=_share(firsts, by_chance, level),
        last_shown=_share(lasts, by_chance, level),
        earlier_shown=_share(pairs, [], level),
        pairs=len(games),
        position_dependent=sum(game.position_dependent for game in games),
    )


def _share(hits: Sequence[bool], by_chance: Sequence[Fraction], level: float) -> PositionShare:
    """Test a share against the mean of what each judgement gives by chance, else one half."""
    k, n = sum(hits), len(hits)
    expected = sum(by_chance, Fraction()) / len(by_chance) if by_chance else Fraction(1, 2)
    low, high = clopper_pearson(k, n, level)
    return PositionShare(k, n, float(expected), low, high, binomial_test(k, n, expected))


# --- which orders to show


def plan_orders(n: int, k: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Plan in which orders n variants are shown, so that places and pairs are balanced.

    Each two variants are shown both ways round, for which two orders are enough: one and its
    reverse. How often a variant stands in a place differs by at most 1 between any two of them and
    any two places, except where n is odd and k is below n: by at most 2, as the one in the middle
    stays there when an order is reversed. With k = n, or a multiple of it, it does not differ.

    Args:
        n: at least 2.
        k: at least 2.
        seed: which variant is which; equal seeds plan equally.

    Returns:
        k orders of the numbers 0 to n − 1; from n orders (2 n if n is odd) on they repeat.

    Raises:
        ValueError: an argument is too small; from one order nothing can survive.
    """
    if n < 2 or k < 2:
        raise ValueError(f"{k} orders of {n} variants: expected at least 2 of each")
    draws = canonical.stream(str(seed), _DRAW)
    names, shifts = _shuffle(n, draws), _shuffle(n, draws)
    base = [(place + 1) // 2 if place % 2 else (n - place // 2) % n for place in range(n)]
    rows = [[names[(step + shift) % n] for step in base] for shift in shifts]
    return tuple(map(tuple, islice(cycle(_pair_up(rows, k)), k)))


def _pair_up(rows: Sequence[Sequence[int]], k: int) -> Iterator[Sequence[int]]:
    """Order the rows of a Latin square so that each beginning from two on shows pairs both ways.

    The reverse of each row of an even square is in the square; that of an odd one is not.
    """
    if len(rows) % 2 and k >= len(rows):
        yield from rows
        yield from (row[::-1] for row in rows)
        return
    done: list[Sequence[int]] = []
    for row in rows:
        if row not in done:
            done += [row, row[::-1]]
    yield from done


def _shuffle(n: int, draws: Iterable[int]) -> list[int]:
    pool = list(range(n))
    for place in range(n):
        other = place + draw_below(draws, n - place)
        pool[place], pool[other] = pool[other], pool[place]
    return pool
