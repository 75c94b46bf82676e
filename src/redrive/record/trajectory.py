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

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import msgspec

from redrive.errors import UsageError, quote
from redrive.record.event import MAIN_ACTOR, Kind
from redrive.record.ownership import decisions_above, linear_order
from redrive.record.session import (
    ATTACHED_KINDS,
    DANGLING,
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    KINDS,
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


class Step(msgspec.Struct, frozen=True, gc=False):
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
    actors, parents, actor = index.node_actor, index.node_parent, index.node_actor[leaf]
    path: list[int] = []
    seen = bytearray(len(parents))
    node = leaf
    while True:
        if seen[node]:
            return path[::-1], PathBreak("cycle", index.node_ids[path[-1]], index.node_ids[node])
        seen[node] = 1
        if actors[node] == actor:
            path.append(node)
        elif actor != 0:
            return path[::-1], None
        parent = parents[node]
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
        raise UsageError(f"{index.session_id} has no actor {quote(actor)}", hint=f"actors: {known}")
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
        raise UsageError(f"{index.session_id} has no node {quote(node_id)}")
    if index.actors[index.node_actor[node]] != actor:
        other = index.actors[index.node_actor[node]]
        raise UsageError(
            f"node {quote(node_id)} belongs to actor {quote(other)}", hint=f"--actor {other}"
        )
    return node


class _PathBuilder:
    """Collects the events of a spine, pulls in side nodes, and cuts the whole into steps."""

    def __init__(self, index: SessionIndex, spine: Sequence[int]) -> None:
        self.index = index
        self.spine = spine
        self.on_spine = frozenset(spine)

    def build(self, actor: str, breaks: PathBreak | None) -> Trajectory:
        """Cut the spine into steps."""
        groups: list[list[int]] = []
        lead: list[list[int]] = [[]]
        place: dict[int, int] = {}
        roles, group_of = self.index.node_role, self.index.node_group
        for node in self.spine:
            group = group_of[node]
            if not roles[node] & IS_DECISION:
                lead[-1].append(node)
            elif group in place:
                groups[place[group]].append(node)
            else:
                place[group] = len(groups)
                groups.append([node])
                lead.append([])
        ids = self.index.node_ids
        names = [ids[nodes[0]] for nodes in groups]
        aside = self._add_members(groups, place)
        side = self._attached_nodes(place)
        aside += [node for nodes in side.values() for node in nodes]
        opening, steps, after = self._cut(names, groups, lead, side)
        return Trajectory(
            session_id=self.index.session_id,
            actor=actor,
            node_path=tuple([ids[n] for n in self._path_order(aside)]),
            steps=tuple(steps),
            opening=opening,
            after=after,
            leaf=ids[self.spine[-1]],
            breaks=breaks,
        )

    def _add_members(self, groups: list[list[int]], place: Mapping[int, int]) -> list[int]:
        """Add the off-path nodes of each decision to it, in order; give them all."""
        added: list[int] = []
        pieces = [n for n, group in enumerate(self.index.node_group) if group != n]
        for node in {*pieces, *(self.index.node_group[n] for n in pieces)} - self.on_spine:
            position = place.get(self.index.node_group[node])
            if position is not None:
                groups[position].append(node)
                added.append(node)
        for nodes in groups:
            nodes.sort()
        return added

    def _attached_nodes(self, place: Mapping[int, int]) -> Mapping[int, Sequence[int]]:
        """Find per decision, by its place, the off-path nodes that hold its results and reads."""
        index = self.index
        found: dict[int, list[int]] = {}
        if not index.has_links or len(self.on_spine) == len(index.node_ids):
            return found
        actor = index.node_actor[self.spine[-1]]
        above = decisions_above(index)
        for node, role in enumerate(index.node_role):
            if _is_side(role) and node not in self.on_spine and index.node_actor[node] == actor:
                owner = place.get(index.node_group[above[node]]) if above[node] >= 0 else None
                if owner is not None:
                    found.setdefault(owner, []).append(node)
        return found

    def _cut(
        self,
        names: Sequence[str],
        groups: Sequence[Sequence[int]],
        lead: Sequence[Sequence[int]],
        side: Mapping[int, Sequence[int]],
    ) -> tuple[tuple[int, ...], list[Step], tuple[int, ...]]:
        """Give what is above the first decision, the steps, and what is below the last one."""
        ids, events = self.index.node_ids, _NodeEvents(self.index)
        parts = events.fill(_empty(), lead[0])
        opening = tuple(sorted(parts[_RESULTS] + parts[_ATTACHED]))
        steps: list[Step] = []
        for place, nodes in enumerate(groups):
            before, above = parts[_REST], parts[_REQUESTS]
            parts = events.fill(_empty(), nodes)
            rest, requests = parts[_REST], parts[_REQUESTS] or above
            parts[_REST], parts[_REQUESTS] = [], []
            events.fill(parts, lead[place + 1])
            name, results, attached = names[place], parts[_RESULTS], parts[_ATTACHED]
            if place in side:
                following, parts[_REST] = parts[_REST], []
                events.fill(parts, side[place])
                parts[_REST] = following  # notes beside results are on no path
            results.sort()
            attached.sort()
            steps.append(
                Step(
                    place + 1,
                    name,
                    (name,) if len(nodes) == 1 else tuple([ids[n] for n in nodes]),
                    requests[-1] if requests else None,
                    tuple(parts[_RESPONSES]),
                    tuple(parts[_CALLS]),
                    tuple(results),
                    tuple(attached),
                    (*before, *rest),
                )
            )
        return opening, steps, tuple(parts[_REST]) if steps else ()

    def _path_order(self, aside: Sequence[int]) -> Sequence[int]:
        """Give the spine in path order, each side node right after the spine node before it."""
        if not aside or not self.index.has_links:
            return self.spine
        place = {node: position for position, node in enumerate(self.spine)}
        decision_place: dict[int, int] = {}
        for node, position in place.items():
            decision_place.setdefault(self.index.node_group[node], position)
        keyed = [
            (self._place_of(node, place, decision_place), node not in place, node)
            for node in (*self.spine, *aside)
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


def _is_side(role: int) -> bool:
    """Say whether a node holds only results or reads (and notes beside them)."""
    return bool(role & IS_ATTACHED) and not role & ~(IS_ATTACHED | IS_NOTE)


_RESPONSES, _CALLS, _RESULTS, _ATTACHED, _REQUESTS, _REST = range(6)
_PART_OF_KIND = (
    dict.fromkeys(Kind, _REST)
    | dict.fromkeys(ATTACHED_KINDS, _ATTACHED)
    | {
        Kind.TOOL_RESULT: _RESULTS,
        Kind.TOOL_CALL: _CALLS,
        Kind.MODEL_RESPONSE: _RESPONSES,
        Kind.MODEL_REQUEST: _REQUESTS,
    }
)
_PART_OF_CODE = tuple(_PART_OF_KIND[kind] for kind in KINDS)


def _empty() -> list[list[int]]:
    return [[], [], [], [], [], []]


class _NodeEvents:
    """The live events of each node, by what they are to a step."""

    def __init__(self, index: SessionIndex) -> None:
        counts = [0] * (len(index.node_ids) + 1)
        for node in index.event_node:
            counts[node + 1] += 1  # those outside the DAG come first
        self._starts = array("i", accumulate(counts))
        self._seqs = sorted(range(len(index)), key=index.event_node.__getitem__)
        self._kinds = index.kinds

    def fill(self, parts: list[list[int]], nodes: Sequence[int]) -> list[list[int]]:
        """Append the events of some nodes, in this order, to the lists of their parts."""
        seqs, starts, kinds = self._seqs, self._starts, self._kinds
        for node in nodes:
            for seq in seqs[starts[node] : starts[node + 1]]:
                parts[_PART_OF_CODE[kinds[seq]]].append(seq)
        return parts
