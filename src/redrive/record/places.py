"""Says where in a session each node lies: its step, and whether it is on a live path.

Knows the index alone, and keeps a few numbers per node. Must not know payloads; branches are
in `branches`.

A node is live if the path to its actor's head passes it, or if it holds only results or reads of
such a node; a sub-agent's node also needs the node that the sub-agent hangs off to be live.

Source: DESIGN.md §3 "DAG first".
"""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from redrive.record.ownership import decisions_above, linear_order
from redrive.record.session import (
    IS_ATTACHED,
    IS_DECISION,
    IS_NOTE,
    NO_NODE,
    ROOT,
    SessionIndex,
)
from redrive.record.trajectory import find_head, walk_up

NONE = -1


@dataclass(frozen=True, slots=True)
class Places:
    """Columns over the nodes of an index.

    Attributes:
        index: the index, where links form a ring with the ring cut.
        order: every node, parents before their children.
        steps: 1-based ordinal of the nearest decision at or above the node, in its own actor; 0
            above the first.
        live: 1 where the node is live.
    """

    index: SessionIndex
    order: Sequence[int]
    steps: Sequence[int]
    live: bytes

    def step_of(self, seq: int) -> int | None:
        """Give the step that an event belongs to; `None` above the first and outside the DAG."""
        node = self.index.event_node[seq]
        return None if node == NO_NODE else self.steps[node] or None

    def is_live(self, seq: int) -> bool:
        """Say whether an event lies on a live path; one outside the DAG does."""
        node = self.index.event_node[seq]
        return node == NO_NODE or bool(self.live[node])

    def node_id(self, seq: int) -> str | None:
        """Give the id of an event's node."""
        node = self.index.event_node[seq]
        return None if node == NO_NODE else self.index.node_ids[node]


def build_places(index: SessionIndex) -> Places:
    """Place every node of a session. Cost: O(n) time, about 20 bytes a node."""
    index = _without_cycles(index)
    order = _parents_first(index)
    steps = _count_steps(index, order)
    return Places(index, order, steps, _find_live(index, order))


def find_cycles(index: SessionIndex) -> tuple[int, ...]:
    """Find the rings that parent links form, as the node of each whose link closes it.

    A ring is entered from the head of `main`, as the path to the head enters it, else from the
    first node that leads into it. Cost: O(n).
    """
    head = find_head(index)
    starts = range(len(index.node_ids)) if index.has_links else ()
    number = array("i", [0]) * len(index.node_ids)
    closing = []
    for walk, start in enumerate(chain(() if head is None else (head,), starts), 1):
        node = last = start
        while node >= 0 and not number[node]:
            number[node] = walk
            last, node = node, index.node_parent[node]
        if node >= 0 and number[node] == walk:
            closing.append(last)
    return tuple(closing)


def _without_cycles(index: SessionIndex) -> SessionIndex:
    closing = find_cycles(index)
    if not closing:
        return index
    parents = array("i", index.node_parent)
    for node in closing:
        parents[node] = ROOT
    return replace(index, node_parent=parents)


def _parent(index: SessionIndex, node: int) -> int:
    """Give the node right above another, -1 where there is none or it is not recorded."""
    return max(index.node_parent[node], NONE)


def own_parent(index: SessionIndex, node: int) -> int:
    """Give the node right above another, if it is of the same actor."""
    parent = _parent(index, node)
    is_same = parent != NONE and index.node_actor[parent] == index.node_actor[node]
    return parent if is_same else NONE


def _parents_first(index: SessionIndex) -> Sequence[int]:
    """Order the nodes so that each comes after its parent."""
    count = len(index.node_ids)
    if not index.has_links:
        return array("i", linear_order(index, range(count)))
    order = array("i")
    done = bytearray(count)
    for start in range(count):
        trail = []
        node = start
        while node != NONE and not done[node]:
            done[node] = 1
            trail.append(node)
            node = _parent(index, node)
        order.extend(reversed(trail))
    return order


def _count_steps(index: SessionIndex, order: Sequence[int]) -> Sequence[int]:
    """Number the decisions along the path of each node's actor.

    `main` passes over the nodes of others; a sub-agent's count begins below them.
    """
    count = len(index.node_ids)
    own = array("i", [0]) * count
    main = array("i", [0]) * count
    latest: dict[int, int] = {}
    for node in order:
        actor = index.node_actor[node]
        if index.has_links:
            parent, same = _parent(index, node), own_parent(index, node)
            main[node] = main[parent] if parent != NONE else 0
            above = main[node] if actor == 0 else own[same] if same != NONE else 0
        else:
            above = latest.get(actor, 0)
        own[node] = latest[actor] = _step_here(index, own, node, above)
        if actor == 0:
            main[node] = own[node]
    return own


def _step_here(index: SessionIndex, own: Sequence[int], node: int, above: int) -> int:
    if not index.node_role[node] & IS_DECISION:
        return above
    first = index.node_group[node]
    if first == node or not own[first]:
        return above + 1
    return max(above, own[first])


def _find_live(index: SessionIndex, order: Sequence[int]) -> bytes:
    """Mark the nodes on the path to each actor's head, and the results and reads that hang off.

    Whether a node is live depends on its own actor's nodes, and on the one that this actor's path
    hangs off: so each actor is looked at once, after the one that it hangs off.
    """
    live = bytearray(len(index.node_ids))
    if not index.has_links:
        return bytes(b"\x01" * len(live))
    spines = {n: _spine(index, head) for n, head in enumerate(_heads(index)) if head != NONE}
    hooks = {n: _parent(index, spine[0]) if n else NONE for n, spine in spines.items()}
    owners = decisions_above(index)
    nodes: dict[int, list[int]] = {}
    for node in order:
        nodes.setdefault(index.node_actor[node], []).append(node)
    for number, is_in_ring in _outer_first(index, hooks).items():
        if is_in_ring or hooks[number] == NONE or live[hooks[number]]:
            for node in spines[number]:
                live[node] = 1
            _mark_side(index, nodes[number], owners, live)
    return bytes(live)


def _spine(index: SessionIndex, head: int) -> Sequence[int]:
    """List the nodes of the path to an actor's head, root first."""
    if index.node_actor[head] == 0:
        return walk_up(index, head)[0]
    spine = [head]
    while (parent := own_parent(index, spine[-1])) != NONE:
        spine.append(parent)
    return spine[::-1]


def _outer_first(index: SessionIndex, hooks: Mapping[int, int]) -> Mapping[int, bool]:
    """Order the actors so that each comes after the one that it hangs off.

    Args:
        index: the index.
        hooks: per actor the node that its path hangs off; -1 for none.

    Returns:
        Whether an actor hangs off a ring of actors: these hang off each other, and each is live.
    """
    settled: dict[int, bool] = {}
    for start in hooks:
        trail: dict[int, None] = {}
        number, hook = start, hooks[start]
        while number not in settled and number not in trail:
            trail[number] = None
            hook = hooks[number]
            if hook == NONE:
                break
            number = index.node_actor[hook]
        is_in_ring = settled.get(number, hook != NONE)
        settled.update((passed, is_in_ring) for passed in reversed(trail))
    return settled


def _heads(index: SessionIndex) -> Sequence[int]:
    """Give each actor's head: its leaf with the newest `ts`, then the last in the file."""
    has_child = bytearray(len(index.node_ids))
    for node in range(len(index.node_ids)):
        parent = own_parent(index, node)
        if parent != NONE:
            has_child[parent] = 1
    heads = array("i", [NONE]) * len(index.actors)
    for node, actor in enumerate(index.node_actor):
        best = heads[actor]
        if not has_child[node] and (best == NONE or age_of(index, node) > age_of(index, best)):
            heads[actor] = node
    head = find_head(index)
    heads[0] = NONE if head is None else head
    return heads


def age_of(index: SessionIndex, node: int) -> tuple[int, int]:
    """Order nodes by their newest `ts`, then by order of appearance."""
    return index.node_ts[node], node


def _mark_side(
    index: SessionIndex, nodes: Sequence[int], owners: Sequence[int], live: bytearray
) -> None:
    """Mark the other pieces of an actor's live decisions, and what only holds their results.

    Args:
        index: the index.
        nodes: the actor's nodes, parents before their children.
        owners: per node, the decision that its results and reads belong to.
        live: where to mark.
    """
    for node in nodes:
        if live[node]:
            live[index.node_group[node]] = 1
    for node in nodes:
        role = index.node_role[node]
        if role & IS_DECISION:
            live[node] = live[index.node_group[node]]
        elif not live[node] and not role & ~(IS_ATTACHED | IS_NOTE):
            owner = owners[node] if role & IS_ATTACHED else own_parent(index, node)
            live[node] = live[owner] if owner != NONE else 0


def nearest_marked(places: Places, marked: Sequence[int]) -> Sequence[int]:
    """Give per node the nearest marked node at or above it, of any actor; -1 for none.

    Without links, it is the last one before it of its own actor, else of `main`.
    """
    index = places.index
    nearest = array("i", [NONE]) * len(index.node_ids)
    latest: dict[int, int] = {}
    for node in places.order:
        if index.has_links:
            parent = _parent(index, node)
            above = NONE if parent == NONE else nearest[parent]
        else:
            actor = index.node_actor[node]
            above = latest.get(actor, latest.get(0, NONE))
        nearest[node] = node if marked[node] else above
        latest[index.node_actor[node]] = nearest[node]
    return nearest
