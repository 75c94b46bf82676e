"""Trajectories: one path from root to node of one actor, and its steps.

Knows how to walk the DAG of a `SessionIndex`, which decision a result or read belongs to, and how
results answer calls. Must not know payloads beyond equality of two results, nor closure (audit).

Rules (DESIGN.md §3 "DAG first"):

* head = the leaf of the actor with the newest `ts`, then `seq`;
* nodes of one actor that share a response id are one decision;
* a node that holds only results or reads belongs to the nearest decision above it, and to every
  path through that decision;
* a result answers the unanswered call with its id in the nearest decision above that has this id;
* a broken chain or a cycle is named, never guessed around.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from redrive.errors import UsageError
from redrive.record.event import MAIN_ACTOR, Event, Kind
from redrive.record.session import (
    ATTACHED_KINDS,
    DANGLING,
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    IS_USER,
    NO_NODE,
    NO_TS,
    EventReader,
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
        is_cut: whether the recorded run went on beyond the last step (`prefix`).
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


def linear_order(index: SessionIndex, nodes: Iterable[int]) -> list[int]:
    """Order nodes by (`ts`, order of appearance); one without `ts` goes with the one before it."""
    keyed, newest = [], NO_TS
    for node in nodes:
        newest = index.node_ts[node] if index.node_ts[node] != NO_TS else newest
        keyed.append((newest, node))
    return [node for _, node in sorted(keyed)]


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
    return _PathBuilder(index, spine).build(actor, breaks)


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
        if not self.index.has_links:
            return [[] for _ in groups]
        first, sibling = self.index.children()
        found = []
        for group in groups:
            mine: list[int] = []
            stack = list(group)
            seen = set(group)
            while stack:
                child = first[stack.pop()]
                while child != -1:
                    if child not in seen and not self.index.node_role[child] & IS_DECISION:
                        seen.add(child)
                        stack.append(child)
                        if child not in on_spine and self._is_side(child):
                            mine.append(child)
                    child = sibling[child]
            found.append(sorted(mine))
        return found

    def _is_side(self, node: int) -> bool:
        """Say whether a node holds only results, reads or notes."""
        role = self.index.node_role[node]
        return bool(role) and not role & ~(IS_ATTACHED | IS_NOTE) and node in self.node_seqs

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


class Pairing(msgspec.Struct, frozen=True):
    """Which result answers which call.

    Attributes:
        answers: call seq → result seq, for calls with exactly one recorded answer.
        unanswered: seqs of calls without a usable answer, conflicting ones included.
        orphans: seqs of results that answer no call.
        conflicts: call seq → the seqs of its differing results.
        duplicates: seqs of results equal to one that was paired already.
    """

    answers: dict[int, int]
    unanswered: tuple[int, ...]
    orphans: tuple[int, ...]
    conflicts: dict[int, tuple[int, ...]]
    duplicates: tuple[int, ...]


def pair_results(
    index: SessionIndex,
    decisions: Iterable[tuple[Sequence[int], Sequence[int]]],
    reader: EventReader,
    opening: Sequence[int] = (),
) -> Pairing:
    """Pair results with calls along one path.

    Args:
        index: the session's index (for the call ids).
        decisions: per decision, root first: its call seqs and the result seqs that belong to it.
        reader: gives payloads, asked only where one call has several results.
        opening: results above the first decision; they answer nothing.

    Returns:
        The pairing. Calls and results without an id are never paired by position.
    """
    open_calls: dict[str, list[list[int]]] = {}
    given: dict[int, list[int]] = {}
    orphans = list(opening)
    order: list[int] = []
    for calls, results in decisions:
        by_id: dict[str, list[int]] = {}
        for call in calls:
            order.append(call)
            given[call] = []
            if call in index.call_ids:
                by_id.setdefault(index.call_ids[call], []).append(call)
        for call_id, same in by_id.items():
            open_calls.setdefault(call_id, []).append(same)
        for result in results:
            wanted = open_calls.get(index.call_ids.get(result, ""), ())
            if not wanted:
                orphans.append(result)
                continue
            nearest = wanted[-1]
            call = next((c for c in nearest if not given[c]), nearest[0])
            given[call].append(result)
    return _settle(order, given, orphans, reader)


def _settle(
    order: list[int], given: dict[int, list[int]], orphans: list[int], reader: EventReader
) -> Pairing:
    answers, conflicts = {}, {}
    unanswered, duplicates = [], []
    for call in order:
        results = given[call]
        if not results:
            unanswered.append(call)
        elif len(results) == 1 or _all_equal(results, reader):
            answers[call] = results[0]
            duplicates.extend(results[1:])
        else:
            conflicts[call] = tuple(results)
            unanswered.append(call)
    return Pairing(answers, tuple(unanswered), tuple(orphans), conflicts, tuple(duplicates))


def _all_equal(results: Sequence[int], reader: EventReader) -> bool:
    payloads = {bytes(event.payload) for event in reader.read_events(results)}
    return len(payloads) == 1


def pair_path(index: SessionIndex, trajectory: Trajectory, reader: EventReader) -> Pairing:
    """Pair results with calls on a trajectory."""
    opening = [s for s in trajectory.opening if index.kind(s) is Kind.TOOL_RESULT]
    return pair_results(
        index, ((step.calls, step.results) for step in trajectory.steps), reader, opening
    )


def read_step(step: Step, reader: EventReader) -> Iterator[Event]:
    """Yield the events of a step, in seq order, with their payloads."""
    return reader.read_events(step.seqs())


def count_branches(index: SessionIndex, actor: str = MAIN_ACTOR) -> int:
    """Count the branches: 1 + the further real continuations at each fork.

    A child continues if it is a user message, or a decision other than its parent's; a result, a
    second block of the same answer or a note is no branch.
    """
    number = index.actor_number(actor)
    continuations: dict[int, int] = {}
    for node, parent in enumerate(index.node_parent):
        if parent < 0 or parent == node or index.node_actor[node] != number:
            continue
        role = index.node_role[node]
        is_other_decision = (
            bool(role & IS_DECISION) and index.node_group[node] != index.node_group[parent]
        )
        if role & IS_USER or is_other_decision:
            continuations[parent] = continuations.get(parent, 0) + 1
    return 1 + sum(count - 1 for count in continuations.values() if count > 1)
