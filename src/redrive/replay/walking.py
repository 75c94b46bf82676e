"""The order in which a session is judged, as runs of events that follow each other.

Knows plans alone. Must not know payloads, policies or states. A run goes on from the end of an
earlier run: the state before its first event is the one after that run's last event.

Source: DESIGN.md §7 "Branches".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from redrive.record.places import NONE
from redrive.replay.folding import FoldPlan

BASE = -1


class Run(NamedTuple):
    """Events judged one after the other.

    Attributes:
        parent: number of the run that it goes on from; `BASE` for the beginning of a path.
        actor: whose path it is.
        seqs: its events, in order.
    """

    parent: int
    actor: str
    seqs: Sequence[int]


@dataclass(frozen=True, slots=True)
class Walk:
    """How to judge a session.

    Attributes:
        outside: events outside the DAG, in seq order: every path begins with them.
        runs: in order; each comes after the one that it goes on from.
        ends: the last answers of decisions without calls after which the agent stopped.
    """

    outside: Sequence[int]
    runs: Sequence[Run]
    ends: frozenset[int]


def walk_of(plan: FoldPlan) -> Walk:
    """Walk a plan stage by stage. Cost: O(n)."""
    index = plan.places.index
    runs = [
        Run(parent, index.actors[actor], seqs)
        for parent, actor, seqs in zip(plan.parents, plan.actors, plan.stages, strict=True)
    ]
    return Walk(plan.outside, runs, frozenset(plan.ends) - {NONE})
