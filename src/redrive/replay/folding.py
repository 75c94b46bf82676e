"""In which order a session is folded, and from which state each event goes on.

Knows the index alone. Must not know payloads, policies or reducers.

A session is cut into *stages*. A decision is one stage, with all its pieces and with everything
that only holds its results and reads, wherever in the file that stands: it belongs to every path
through the decision. Any other node is a stage of its own. Each stage goes on from one stage above
it, so the state before an event is the fold of its stage's chain to the root, and of what stands
before it in its own stage: shared beginnings are folded once, whatever was rewound later.

* The main path passes over sub-agents' nodes; a sub-agent's path begins with itself.
* Where a decision's pieces hang in several places, it stands where the first one does.
* Inside a stage, nodes come parents first, else in order of appearance; events by seq.
* What stands behind a user message belongs to no decision above it.
* A session without links is one path per actor, in (`ts`, order of appearance).

Source: DESIGN.md §3 "DAG first", §7 "Branches".
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redrive.record.branches import newest_leaves
from redrive.record.event import Kind
from redrive.record.ownership import decisions_above
from redrive.record.places import NONE, Places, own_parent
from redrive.record.session import (
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    IS_USER,
    KIND_CODE,
    NO_NODE,
    SessionIndex,
)


@dataclass(frozen=True, slots=True)
class FoldPlan:
    """How to fold a session.

    Attributes:
        places: where its nodes lie.
        outside: live events outside the DAG, in seq order: every path begins with them.
        stages: per stage its live events' seqs, in order. Stages come after those they go on from.
        parents: per stage the stage that it goes on from; -1 for the beginning of a path.
        actors: per stage its actor's number.
        ends: per stage the seq of its last answer, where it is a decision without calls after which
            the agent stopped; else -1.
        leaves: per node its newest leaf.
    """

    places: Places
    outside: Sequence[int]
    stages: Sequence[Sequence[int]]
    parents: Sequence[int]
    actors: Sequence[int]
    ends: Sequence[int]
    leaves: Sequence[int]

    def seqs(self) -> Iterator[int]:
        """Yield every live event's seq in the order of the fold."""
        yield from self.outside
        for stage in self.stages:
            yield from stage


def build_plan(places: Places) -> FoldPlan:
    """Plan the fold of a session. Cost: O(n log n) in a stage's events, O(n) over all."""
    index = places.index
    cut = _Cutter(places)
    owners = decisions_above(index)
    for node in places.order:
        cut.add(node, owners[node])
    stages: list[list[int]] = [[] for _ in cut.parents]
    outside: list[int] = []
    ranks = array("i", [0]) * len(index.node_ids)
    for rank, node in enumerate(places.order):
        ranks[node] = rank
    for seq, node in enumerate(index.event_node):
        if index.is_live[seq]:
            (outside if node == NO_NODE else stages[cut.stage_of[node]]).append(seq)
    for stage in stages:
        if len(stage) > 1:
            stage.sort(key=lambda seq: (ranks[index.event_node[seq]], seq))
    ends = _find_ends(index, stages, cut.parents)
    return FoldPlan(places, outside, stages, cut.parents, cut.actors, ends, newest_leaves(places))


class _Cutter:
    """Cuts nodes, parents first, into stages.

    Attributes:
        stage_of: per node its stage.
        parents, actors: per stage the stage that it goes on from, and its actor's number.
    """

    def __init__(self, places: Places) -> None:
        count = len(places.index.node_ids)
        self._index = places.index
        self.stage_of = array("i", [NONE]) * count
        self.parents, self.actors = array("i"), array("i")
        self._tails = array("i", [NONE]) * count  # per node, what a child goes on from
        self._spoken = bytearray(count)  # a user spoke since the decision above
        self._of_group: dict[int, int] = {}
        self._depths, self._jumps = array("i"), array("i")  # per stage, to look far up in few steps
        self._latest: dict[int, int] = {}  # per actor its last node, in sessions without links

    def add(self, node: int, owner: int) -> None:
        """Take the next node; `owner` is the decision above it, -1 for none."""
        index, role = self._index, self._index.node_role[node]
        parent = self._above(node)
        above = NONE if parent == NONE else self._tails[parent]
        is_decision = bool(role & IS_DECISION)
        spoken = not is_decision and (parent != NONE and self._spoken[parent])
        self._spoken[node] = spoken or bool(role & IS_USER)
        group = NONE
        if is_decision:
            group = index.node_group[node]
        elif owner != NONE and not spoken and not role & ~(IS_ATTACHED | IS_NOTE):
            group = index.node_group[owner] if role & IS_ATTACHED else NONE
        stage = self._of_group.get(group, NONE)
        if stage == NONE:
            stage = self._begin(above, index.node_actor[node])
            if group != NONE:
                self._of_group[group] = stage
            self._tails[node] = stage
        else:  # a piece below other nodes leads on from them, one beside the first from its stage
            self._tails[node] = above if self._is_at_or_below(above, stage) else stage
        self.stage_of[node] = stage
        self._latest[index.node_actor[node]] = node

    def _begin(self, above: int, actor: int) -> int:
        """Begin a stage that goes on from another."""
        stage = len(self.parents)
        self.parents.append(above)
        self.actors.append(actor)
        depth, jump = 0, stage
        if above != NONE:
            depth, jump, far = self._depths[above] + 1, above, self._jumps[above]
            if (
                self._depths[above] - self._depths[far]
                == self._depths[far] - (self._depths[self._jumps[far]])
            ):
                jump = self._jumps[far]
        self._depths.append(depth)
        self._jumps.append(jump)
        return stage

    def _is_at_or_below(self, stage: int, other: int) -> bool:
        """Say whether a stage goes on from another, or is it. Cost: O(log n)."""
        depth = self._depths[other]
        while stage != NONE and self._depths[stage] > depth:
            far = self._jumps[stage]
            stage = far if self._depths[far] >= depth else self.parents[stage]
        return stage == other

    def _above(self, node: int) -> int:
        """Give the node of the same flow that a node goes on from; -1 where its path begins."""
        index = self._index
        actor = index.node_actor[node]
        if not index.has_links:
            return self._latest.get(actor, NONE)
        if actor:
            return own_parent(index, node)
        parent = max(index.node_parent[node], NONE)
        while parent != NONE and index.node_actor[parent]:
            parent = max(index.node_parent[parent], NONE)
        return parent


def _find_ends(
    index: SessionIndex, stages: Sequence[Sequence[int]], parents: Sequence[int]
) -> Sequence[int]:
    """Find the decisions without calls that no other decision followed before a user spoke."""
    calls, answers = KIND_CODE[Kind.TOOL_CALL], KIND_CODE[Kind.MODEL_RESPONSE]
    ends = array("i", [NONE]) * len(stages)
    goes_on = bytearray(len(stages))  # a decision stands at or below, before any user message
    for stage in range(len(stages) - 1, -1, -1):
        seqs = stages[stage]
        kinds = {index.kinds[seq] for seq in seqs}
        is_decision = calls in kinds or answers in kinds
        if is_decision and calls not in kinds and not goes_on[stage]:
            ends[stage] = next(seq for seq in reversed(seqs) if index.kinds[seq] == answers)
        if parents[stage] != NONE and (is_decision or goes_on[stage]):
            speaks = any(index.node_role[index.event_node[seq]] & IS_USER for seq in seqs)
            goes_on[parents[stage]] |= is_decision or not speaks
    return ends
