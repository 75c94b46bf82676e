"""Finds the walk of a session in one pass over its nodes: sub-agents, late results and all.

Knows envelopes alone. Must not know payloads, policies or states. What it finds is exactly what
`folding` plans; where it is not sure of that it finds nothing, and the session is planned in full.
It is not sure of a node that comes before its parent, of one whose events lie apart, of an answer
with two group names, of a piece or result far behind its decision, of events that supersede others,
and, in sessions without links, of nodes that are out of order in time.

Source: DESIGN.md §3 "DAG first", §7 "Branches".
"""

from collections.abc import Iterator, Sequence
from itertools import compress, count, pairwise
from operator import ne

from redrive.record.event import MAIN_ACTOR, Kind
from redrive.record.session import (
    FLAG_META,
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    IS_OTHER,
    IS_USER,
    ROLES,
    SESSION_KINDS,
)
from redrive.replay.columns import Columns
from redrive.replay.walking import BASE, Run, Walk

_NONE = -1
_MAX_CLIMBED = 64  # stages between a late piece and its decision
_BESIDE = IS_ATTACHED | IS_NOTE
_CALL = 32
_BITS = {
    kind: 0 if kind in SESSION_KINDS else role | (_CALL if kind is Kind.TOOL_CALL else 0)
    for kind, role in ROLES.items()
}


def find_branched_walk(columns: Columns, *, needs_ends: bool) -> Walk | None:
    """Find the walk of a session whose nodes come after their parents.

    Args:
        columns: of all its events; none supersedes another.
        needs_ends: whether a policy asks which answers end a turn.

    Returns:
        The walk; `None` for any other shape. Cost: O(n).
    """
    placed = _Placed(columns)
    cutter = _Cutter(placed)
    for start, stop in placed.spans():
        if not cutter.add(start, stop):
            return None
    if cutter.is_out_of_order():
        return None
    return Walk(placed.outside, cutter.runs(), cutter.ends() if needs_ends else frozenset())


class _Placed:
    """What the walk depends on, a list per field.

    Attributes:
        names: node per event; empty outside the DAG.
        parents: parent node per event.
        bits: roles and kinds per event; 0 outside the DAG.
        actors, groups: per event; `None` where all are of `main`, and where there is no group.
        has_links: whether any event names a parent.
        outside: events outside the DAG.
    """

    def __init__(self, columns: Columns) -> None:
        total = len(columns.kinds)
        self.kinds, self.times = columns.kinds, columns.times
        self.names, self.parents = list(columns.names), columns.parents
        self.bits = [_BITS[kind] for kind in columns.kinds]
        self.actors = None if columns.actors.count(MAIN_ACTOR) == total else columns.actors
        self.groups = None if columns.groups.count(None) == total else columns.groups
        self.outside: list[int] = []
        for seq in compress(count(), columns.flags):
            if self.bits[seq] & IS_USER and FLAG_META in columns.flags[seq]:
                self.bits[seq] ^= IS_USER | IS_OTHER
        if 0 in self.bits or "" in self.names:
            for seq, bits in enumerate(self.bits):
                if not bits or not self.names[seq]:
                    self.names[seq] = ""
                    self.outside.append(seq)
        self.has_links = self.parents.count(None) != total

    def spans(self) -> Iterator[tuple[int, int]]:
        """Give the first and the last-but-one seq of each node's events, side by side."""
        total = len(self.names)
        cuts = [0, *compress(range(1, total), map(ne, self.names, self.names[1:])), total]
        return pairwise(cuts) if total else iter(())


class _Cutter:
    """Cuts nodes into stages, as `folding` does; nodes and stages are numbered as they come."""

    def __init__(self, columns: _Placed) -> None:
        self._columns = columns
        self._known = frozenset(columns.names)
        self._numbers: dict[str, int] = {}
        self._stage: list[int] = []
        self._tails: list[int] = []
        self._spoken: list[bool] = []
        self._owners: list[int] = []  # the decision above
        self._decides: list[bool] = []
        self._actors: list[str] = []
        self._main: list[int] = []  # the nearest node of `main`, itself included
        self._of_group: dict[tuple[str, str], int] = {}  # (actor, group) → its first node
        self._first_of: dict[int, int] = {}  # node → first node of its group
        self._of_first: dict[int, int] = {}  # first node of a decision → its stage
        self._latest: dict[str, int] = {}
        self._has_root_link = False
        # per stage
        self._parents: list[int] = []
        self._stage_actors: list[str] = []
        self._bits: list[int] = []
        self._spans: list[list[int]] = []

    def add(self, start: int, stop: int) -> bool:
        """Take the next node; false where its place is not sure."""
        columns = self._columns
        name = columns.names[start]
        if not name:
            return True
        if name in self._numbers:
            return False
        node, bits = len(self._stage), columns.bits[start]
        for seq in range(start + 1, stop):
            bits |= columns.bits[seq]
        actor = MAIN_ACTOR if columns.actors is None else columns.actors[start]
        above = self._above(columns.parents[start], actor)
        if above is None or (
            columns.groups is not None and not self._join(node, start, stop, actor)
        ):
            return False
        self._numbers[name] = self._latest[actor] = node
        self._actors.append(actor)
        return self._place(node, above, bits, range(start, stop))

    def _above(self, parent: str | None, actor: str) -> int | None:
        """Give the node of the same flow that a node goes on from; -1 for none, `None` unsure."""
        if not self._columns.has_links:
            self._main.append(_NONE)
            return self._latest.get(actor, _NONE)
        if parent is None:
            self._main.append(len(self._main) if actor == MAIN_ACTOR else _NONE)
            return _NONE
        self._has_root_link = True
        found = self._numbers.get(parent)
        if found is None and parent in self._known:
            return None  # it comes later
        if found is None:
            self._main.append(len(self._main) if actor == MAIN_ACTOR else _NONE)
            return _NONE
        if actor == MAIN_ACTOR:
            self._main.append(len(self._main))
            return self._main[found]
        self._main.append(self._main[found])
        return found if self._actors[found] == actor else _NONE

    def _join(self, node: int, start: int, stop: int, actor: str) -> bool:
        """Note the group of a node; false where it has several."""
        groups = self._columns.groups or ()
        named = {groups[seq] for seq in range(start, stop)} - {None}
        for group in named:
            first = self._of_group.setdefault((actor, str(group)), node)
            if first != node:
                self._first_of[node] = first
        return len(named) < 2

    def _place(self, node: int, above: int, bits: int, seqs: range) -> bool:
        """Put a node into the stage of its decision, or into one of its own; false if unsure."""
        is_decision = bool(bits & IS_DECISION)
        owner, spoken, tail = _NONE, False, _NONE
        if above != _NONE:
            owner = above if self._decides[above] else self._owners[above]
            spoken = not is_decision and self._spoken[above]
            tail = self._tails[above]
        stage, first = None, _NONE
        if is_decision:
            first = self._first_of.get(node, node)
            stage = self._of_first.get(first)
        elif owner != _NONE and not spoken and bits & IS_ATTACHED and not bits & 31 & ~_BESIDE:
            stage = self._stage[owner]
        if stage is None:
            stage = len(self._parents)
            self._open(tail, bits, seqs)
            tail = stage
        else:
            self._bits[stage] |= bits
            self._spans[stage] += (seqs.start, seqs.stop)
            is_below = self._is_at_or_below(tail, stage)
            if is_below is None:
                return False
            tail = tail if is_below else stage
        if is_decision:
            self._of_first[first] = stage
        self._stage.append(stage)
        self._tails.append(tail)
        self._spoken.append(spoken or bool(bits & IS_USER))
        self._owners.append(owner)
        self._decides.append(is_decision)
        return True

    def _is_at_or_below(self, stage: int, other: int) -> bool | None:
        """Say whether a stage goes on from another, or is it; `None` where that is far to see."""
        for _ in range(_MAX_CLIMBED):
            if stage <= other:
                return stage == other
            stage = self._parents[stage]
        return None

    def _open(self, tail: int, bits: int, seqs: range) -> None:
        self._parents.append(tail)
        self._stage_actors.append(self._actors[-1])
        self._bits.append(bits)
        self._spans.append([seqs.start, seqs.stop])

    def is_out_of_order(self) -> bool:
        """Say whether a session without links has a node that is older than the one before it."""
        columns = self._columns
        if columns.has_links:
            return not self._has_root_link  # only later events of a node name a parent
        newest = None
        for start, stop in columns.spans():
            times = [ts for ts in columns.times[start:stop] if ts is not None]
            if times and columns.names[start]:
                if newest is not None and max(times) < newest:
                    return True
                newest = max(times)
        return False

    def runs(self) -> list[Run]:
        """Join stages that follow each other, where nothing else goes on from the first."""
        forks = {parent for stage, parent in enumerate(self._parents) if parent != stage - 1}
        runs: list[Run] = []
        run_of: dict[int, int] = {}
        parent, actor, seqs = BASE, MAIN_ACTOR, list[int]()
        last = len(self._parents) - 1
        for stage, above in enumerate(self._parents):
            if above != stage - 1 or above in forks or not stage:
                parent = BASE if above == _NONE else run_of[above]
                actor, seqs = self._stage_actors[stage], []
            spans = self._spans[stage]
            for start, stop in zip(spans[::2], spans[1::2], strict=True):
                if seqs and seqs[-1] == start:
                    seqs[-1] = stop
                else:
                    seqs += (start, stop)
            goes_on = stage < last and self._parents[stage + 1] == stage and stage not in forks
            if not goes_on:
                run_of[stage] = len(runs)
                runs.append(Run(parent, actor, _seqs(seqs)))
        return runs

    def ends(self) -> frozenset[int]:
        """List the last answers without calls that no decision followed before a user spoke."""
        kinds = self._columns.kinds
        goes_on = bytearray(len(self._parents))
        ends: list[int] = []
        for stage in range(len(self._parents) - 1, -1, -1):
            bits, parent = self._bits[stage], self._parents[stage]
            is_decision = bits & IS_DECISION
            if is_decision and not bits & _CALL and not goes_on[stage]:
                seqs = reversed(_seqs(self._spans[stage]))
                ends.append(next(seq for seq in seqs if kinds[seq] is Kind.MODEL_RESPONSE))
            if parent != _NONE and (is_decision or (goes_on[stage] and not bits & IS_USER)):
                goes_on[parent] = 1
        return frozenset(ends)


def _seqs(spans: list[int]) -> Sequence[int]:
    if len(spans) == 2:
        return range(*spans)
    return [s for a, b in zip(spans[::2], spans[1::2], strict=True) for s in range(a, b)]
