"""Which matches of a policy would have been held back, by its own earlier fires.

Knows matches and budgets. Must not know how they were found. A replayed policy has no history of
its own, so each would-be fire is fed back as a virtual cooldown event: it starts the cooldown; a
suppressed match does not. Budgets are global across the branches of a session, in (`ts`, `seq`)
order, since the user of all branches is one.

Source: DESIGN.md §7 "Virtual cooldown", "Branches".
"""

from collections.abc import Iterable, Sequence

import msgspec

from redrive.replay.policy import PolicySpec

NO_TS = "no ts"


class Match(msgspec.Struct, frozen=True, gc=False):
    """A place where a policy acts.

    Attributes:
        seq: the event's.
        ts_ns: its time, else the greatest on its path; absent where that has none.
        segment: seq of the user message that began its segment; -1 before any.
        dedup_key: what counts as the same matter; absent is one key of its own.
    """

    seq: int
    ts_ns: int | None
    segment: int
    dedup_key: str | None = None


class Budgeted(msgspec.Struct, frozen=True, gc=False):
    """A match after budgets: the seq of the fire that suppresses it, absent on a fire."""

    seq: int
    suppressed_by: int | None = None


class BudgetResult(msgspec.Struct, frozen=True):
    """Fires and suppressed matches by seq, and those that cannot be judged for want of a time."""

    matches: tuple[Budgeted, ...]
    without_ts: tuple[int, ...] = ()


def apply_budgets(spec: PolicySpec, matches: Iterable[Match]) -> BudgetResult:
    """Tell the fires of one policy in one session from its suppressed matches.

    A match is suppressed if 0 <= ts - fire < cooldown for the last fire of its key, or if its
    segment has had its fires. Cost: O(n log n).
    """
    found = list(matches)
    without: list[int] = []
    if spec.cooldown_ns is not None:
        without = sorted(match.seq for match in found if match.ts_ns is None)
        found = [match for match in found if match.ts_ns is not None]
    ordered = sorted(found, key=lambda match: (match.ts_ns or 0, match.seq))
    last: dict[str | None, Match] = {}
    spent: dict[int, list[int]] = {}
    judged = [Budgeted(match.seq, _judge(spec, match, last, spent)) for match in ordered]
    return BudgetResult(tuple(sorted(judged, key=lambda b: b.seq)), tuple(without))


def _judge(
    spec: PolicySpec,
    match: Match,
    last: dict[str | None, Match],
    spent: dict[int, list[int]],
) -> int | None:
    """Give the fire that holds a match back; note it as a fire where there is none."""
    before = last.get(match.dedup_key)
    if spec.cooldown_ns is not None and before is not None:
        elapsed = (match.ts_ns or 0) - (before.ts_ns or 0)
        if elapsed < spec.cooldown_ns:
            return before.seq
    fires: Sequence[int] = spent.get(match.segment, ())
    if spec.per_segment is not None and len(fires) >= spec.per_segment:
        return fires[-1]
    last[match.dedup_key] = match
    spent.setdefault(match.segment, []).append(match.seq)
    return None
