"""Trajectories: one path from root to node of one actor, and its steps.

Knows how to walk the DAG of a `SessionIndex`, and what belongs to which step. Must not know
payloads, which result answers which call (`pairing`), nor closure (audit).

Rules (DESIGN.md §3 "DAG first"):

* head = the leaf of the actor with the newest `ts`, then `seq`;
* nodes of one actor that share a response id are one decision;
* a node that holds only results or reads belongs to the nearest decision above it, and to every
  path through that decision;
* a broken chain or a cycle is named, never guessed around.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from redrive.errors import UsageError
from redrive.record.event import MAIN_ACTOR, Kind
from redrive.record.ownership import decisions_above, linear_order
from redrive.record.session import (
    ATTACHED_KINDS,
    DANGLING,
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    NO_NODE,
    SessionIndex,
)


class PathBreak(msgspec.Struct, frozen=True):
    """Where a path stops short of a root.

    `what` is `broken_chain` (`missing` is the parent id that is not recorded) or `cycle`
    (`missing` is the node that was met again); `node_id` is the topmost node that was reached.
    """

    what: str
    node_id: str
    missing: str


class Step(msgspec.Struct, frozen=True):
    """One decision on a path, as seqs into the session.

    Attributes:
        step: 1-based ordinal on the path.
        node_id: the decision's first node.
        node_ids: all its nodes, in order of appearance.
        request: the `model.request` that led to it, if recorded.
        responses: its `model.response` events, in order.
        calls: its `tool.call` events, in call order.
        results: `tool.result` events that belong to it, in seq order.
        attached: permissions, reads and derived values that belong to it, in seq order.
        before: what happened on the path since the step before: user messages, compaction, errors.
    """

    step: int
    node_id: str
    node_ids: tuple[str, ...]
    request: int | None
    responses: tuple[int, ...]
    calls: tuple[int, ...]
    results: tuple[int, ...]
    attached: tuple[int, ...]
    before: tuple[int, ...]

    def seqs(self) -> tuple[int, ...]:
        """List every event of the step, in seq order."""
        request = () if self.request is None else (self.request,)
        return tuple(
            sorted(
                request + self.responses + self.calls + self.results + self.attached + self.before
            )
        )


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One path root → node of one actor.

    Attributes:
        session_id: the session.
        actor: the flow it follows.
        node_path: node ids, root first, the side nodes that belong to its decisions included.
        steps: n decisions, root first.
        opening: results, reads and messages above the first decision, in seq order.
        after: events on the path below the last decision that are not its results, in seq order.
        leaf: the node that the path ends at; absent where the actor has no node.
        breaks: why the path does not reach a root, if it does not.
        is_cut: whether a recorded run went on beyond the last step: a prefix, or a path to a node
            that is not the head and from whose last decision another one followed.
    """

    session_id: str
    actor: str
    node_path: tuple[str, ...]
    steps: tuple[Step, ...]
    opening: tuple[int, ...]
    after: tuple[int, ...]
    leaf: str | None = None
    breaks: PathBreak | None = None
    is_cut: bool = False

    def prefix(self, n_steps: int) -> "Trajectory":
        """Give the path of the first `n_steps` decisions; a prefix is a trajectory too."""
        if n_steps >= len(self.steps):
            return self
        return replace(self, steps=self.steps[:n_steps], after=(), is_cut=True)


def find_head(index: SessionIndex, actor: str = MAIN_ACTOR) -> int | None:
    """Find the actor's head: its leaf with the newest `ts`, then the last in the file."""
    number = index.actor_number(actor)
    nodes = [n for n, a in enumerate(index.node_actor) if a == number]
    if not nodes:
        return None
    if not index.has_links:
        return linear_order(index, nodes)[-1]
    has_child = bytearray(len(index.node_ids))
    for node in nodes:
        parent = index.node_parent[node]
        if parent >= 0 and parent != node:
            has_child[parent] = 1
    leaves = [n for n in nodes if not has_child[n]] or nodes
    return max(leaves, key=lambda n: (index.node_ts[n], n))


def walk_up(index: SessionIndex, leaf: int) -> tuple[list[int], PathBreak | None]:
    """Walk from a node to its root, within the node's actor.

    Returns:
        Node numbers, root first, and why the walk stopped short, if it did. A sub-agent's path ends
        where its parent is another actor's node; the main path passes over such nodes.
    """
    actor = index.node_actor[leaf]
    path: list[int] = []
    seen: set[int] = set()
    node = leaf
    while True:
        if node in seen:
            return path[::-1], PathBreak("cycle", index.node_ids[path[-1]], index.node_ids[node])
        seen.add(node)
        if index.node_actor[node] == actor:
            path.append(node)
        elif actor != 0:
            return path[::-1], None
        parent = index.node_parent[node]
        if parent == DANGLING:
            broken = PathBreak("broken_chain", index.node_ids[node], index.dangling[node])
            return path[::-1], broken
        if parent < 0:
            return path[::-1], None
        node = parent


def build_trajectory(
    index: SessionIndex, *, actor: str = MAIN_ACTOR, path: str | None = None
) -> Trajectory:
    """Build one path of a session.

    Args:
        index: the session's index.
        actor: which flow to follow.
        path: id of the node to end at; the actor's head if absent.

    Raises:
        UsageError: the session has no such node or actor.

    Cost: O(n) in the session.
    """
    if index.actor_number(actor) is None:
        known = ", ".join(index.actors[:20])
        raise UsageError(f"{index.session_id} has no actor {actor!r}", hint=f"actors: {known}")
    leaf = find_head(index, actor) if path is None else _get_node(index, path, actor)
    if leaf is None:
        return Trajectory(index.session_id, actor, (), (), (), ())
    if index.has_links:
        spine, breaks = walk_up(index, leaf)
    else:
        number = index.node_actor[leaf]
        ordered = linear_order(index, (n for n, a in enumerate(index.node_actor) if a == number))
        spine, breaks = ordered[: ordered.index(leaf) + 1], None
    built = _PathBuilder(index, spine).build(actor, breaks)
    is_cut = path is not None and leaf != find_head(index, actor) and _went_on(index, built)
    return replace(built, is_cut=True) if is_cut else built


def _went_on(index: SessionIndex, trajectory: Trajectory) -> bool:
    """Say whether a decision followed the last one of a path, on any path."""
    if not trajectory.steps:
        return False
    last = set(trajectory.steps[-1].node_ids)
    return any(
        role & IS_DECISION
        and above >= 0
        and index.node_ids[above] in last
        and index.node_ids[node] not in last
        for node, (role, above) in enumerate(
            zip(index.node_role, decisions_above(index), strict=True)
        )
    )


def _get_node(index: SessionIndex, node_id: str, actor: str) -> int:
    node = index.find_node(node_id)
    if node is None:
        raise UsageError(f"{index.session_id} has no node {node_id!r}")
    if index.actors[index.node_actor[node]] != actor:
        other = index.actors[index.node_actor[node]]
        raise UsageError(f"node {node_id!r} belongs to actor {other!r}", hint=f"--actor {other}")
    return node


class _PathBuilder:
    """Collects the events of a spine, pulls in side nodes, and cuts the whole into steps."""

    def __init__(self, index: SessionIndex, spine: Sequence[int]) -> None:
        self.index = index
        self.spine = spine
        self.node_seqs = self._seqs_by_node()

    def _seqs_by_node(self) -> dict[int, list[int]]:
        """Map each node that may matter to its live seqs."""
        index = self.index
        actor = index.node_actor[self.spine[-1]] if self.spine else 0
        seqs: dict[int, list[int]] = {}
        for seq, node in enumerate(index.event_node):
            if node != NO_NODE and index.node_actor[node] == actor:
                seqs.setdefault(node, []).append(seq)
        return seqs

    def build(self, actor: str, breaks: PathBreak | None) -> Trajectory:
        """Cut the spine into steps."""
        members = self._side_members()
        on_spine = set(self.spine)
        groups: list[list[int]] = []
        lead: list[list[int]] = [[]]
        place: dict[int, int] = {}
        for node in self.spine:
            group = self.index.node_group[node]
            if not self.index.node_role[node] & IS_DECISION:
                lead[-1].append(node)
            elif group in place:
                groups[place[group]].append(node)
            else:
                place[group] = len(groups)
                groups.append([node])
                lead.append([])
        for group, position in place.items():
            groups[position].extend(n for n in members.get(group, ()) if n not in on_spine)
        side = self._attached_nodes(groups, on_spine)
        return self._assemble(actor, breaks, groups, lead, side)

    def _side_members(self) -> dict[int, list[int]]:
        """Map a decision to its nodes, where it has more than one."""
        members: dict[int, list[int]] = {}
        for node in self.node_seqs:
            group = self.index.node_group[node]
            if group != node:
                members.setdefault(group, [group]).append(node)
        return members

    def _attached_nodes(self, groups: list[list[int]], on_spine: set[int]) -> list[list[int]]:
        """Find per decision the off-path nodes that hold its results and reads."""
        found: list[list[int]] = [[] for _ in groups]
        if not self.index.has_links:
            return found
        place = {self.index.node_group[group[0]]: n for n, group in enumerate(groups)}
        above = decisions_above(self.index)
        for node in self.node_seqs:
            if node not in on_spine and self._is_side(node) and above[node] >= 0:
                owner = place.get(self.index.node_group[above[node]])
                if owner is not None:
                    found[owner].append(node)
        return [sorted(nodes) for nodes in found]

    def _is_side(self, node: int) -> bool:
        """Say whether a node holds only results or reads (and notes beside them)."""
        role = self.index.node_role[node]
        return bool(role & IS_ATTACHED) and not role & ~(IS_ATTACHED | IS_NOTE)

    def _assemble(
        self,
        actor: str,
        breaks: PathBreak | None,
        groups: list[list[int]],
        lead: list[list[int]],
        side: list[list[int]],
    ) -> Trajectory:
        steps: list[Step] = []
        opening = self._split(lead[0])
        before = opening.rest
        request = opening.request
        for position, nodes in enumerate(groups):
            own = self._split(sorted(nodes))
            below = self._split(lead[position + 1])
            aside = self._split(side[position])
            steps.append(
                Step(
                    step=position + 1,
                    node_id=self.index.node_ids[nodes[0]],
                    node_ids=tuple(self.index.node_ids[n] for n in sorted(nodes)),
                    request=own.request if own.request is not None else request,
                    responses=tuple(own.responses),
                    calls=tuple(own.calls),
                    results=tuple(sorted(own.results + below.results + aside.results)),
                    attached=tuple(sorted(own.attached + below.attached + aside.attached)),
                    before=tuple(before + own.rest),
                )
            )
            before, request = below.rest, below.request
        path = sorted({*self.spine, *(n for g in groups for n in g), *(n for g in side for n in g)})
        ordered = path if self.index.has_links else list(self.spine)
        return Trajectory(
            session_id=self.index.session_id,
            actor=actor,
            node_path=tuple(self.index.node_ids[n] for n in self._path_order(ordered)),
            steps=tuple(steps),
            opening=tuple(sorted(opening.results + opening.attached)),
            after=tuple(before) if steps else (),
            leaf=self.index.node_ids[self.spine[-1]],
            breaks=breaks,
        )

    def _path_order(self, nodes: list[int]) -> list[int]:
        """Give the spine in path order, each side node right after the spine node before it."""
        if len(nodes) == len(self.spine):
            return list(self.spine)
        place = {node: position for position, node in enumerate(self.spine)}
        decision_place: dict[int, int] = {}
        for node, position in place.items():
            decision_place.setdefault(self.index.node_group[node], position)
        keyed = [
            (self._place_of(node, place, decision_place), node not in place, node) for node in nodes
        ]
        return [node for *_, node in sorted(keyed)]

    def _place_of(
        self, node: int, place: Mapping[int, int], decision_place: Mapping[int, int]
    ) -> int:
        """Find where on the spine a node belongs: below the spine node above it.

        Where its links end or turn in a circle before they meet the spine, it is where the decision
        is that it, or the last decision above it, shares with the spine.
        """
        seen: set[int] = set()
        shared = 0
        while node >= 0 and node not in seen:
            if node in place:
                return place[node]
            seen.add(node)
            shared = decision_place.get(self.index.node_group[node], shared)
            node = self.index.node_parent[node]
        return shared

    def _split(self, nodes: Iterable[int]) -> "_Parts":
        parts = _Parts([], [], [], [], [])
        for node in nodes:
            for seq in self.node_seqs.get(node, ()):
                parts.add(seq, self.index.kind(seq))
        return parts


@dataclass(slots=True)
class _Parts:
    """The events of some nodes, by what they are to a step."""

    responses: list[int]
    calls: list[int]
    results: list[int]
    attached: list[int]
    rest: list[int]
    request: int | None = None

    def add(self, seq: int, kind: Kind) -> None:
        if kind is Kind.MODEL_REQUEST:
            self.request = seq
        elif kind is Kind.MODEL_RESPONSE:
            self.responses.append(seq)
        elif kind is Kind.TOOL_CALL:
            self.calls.append(seq)
        elif kind is Kind.TOOL_RESULT:
            self.results.append(seq)
        elif kind in ATTACHED_KINDS:
            self.attached.append(seq)
        else:
            self.rest.append(seq)
