"""What one policy has done so far in one session.

Knows matches, faults and what could not be decided. Must not know how events are judged
(`policy_session`), nor how a report shows them (`policy_outcome`).
"""

from typing import Any

import msgspec

from redrive.compare.policy_report import CannotEvaluate, PolicyFault
from redrive.replay.policy import Action
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import State

MAX_FAULTS = 3


class Found(msgspec.Struct, frozen=True):
    """A match with all that a report says of it."""

    action: Action
    event: PolicyEvent
    state: State
    dedup_key: str | None
    inferences: dict[str, Any]


class Tally:
    """Counts and lists, filled as the events are judged.

    Attributes:
        offered, inherited: events of its kinds that were its own, and copies of a parent's.
        found: its matches, before budgets.
        undecided: events that it did not decide, by reference.
        muted: per event judged while muted, what it said then, and what it says unmuted.
        stopped: why it is judged no further.
        last: its answer on the one event that was asked for.
    """

    def __init__(self) -> None:
        self.offered = self.inherited = self.n_faults = 0
        self.found: list[Found] = []
        self.cannot: list[CannotEvaluate] = []
        self.faults: list[PolicyFault] = []
        self.undecided: list[str] = []
        self.muted: list[tuple[str, str, str]] = []
        self.decisions: dict[str, int] = {}
        self.stopped: str | None = None
        self.last: Action | None = None
