"""Branches: the ways that an actor's history took.

Knows the places of nodes. Must not know payloads.

Source: DESIGN.md §3: a fork is a second child with a real continuation.
"""

from array import array
from collections.abc import Iterator, Sequence

import msgspec

from redrive.record.event import MAIN_ACTOR
from redrive.record.places import NONE, Places, age_of, own_parent
from redrive.record.session import IS_DECISION, IS_USER, SessionIndex


class Branch(msgspec.Struct, frozen=True):
    """One way that an actor's history took.

    Attributes:
        actor: whose branch it is.
        leaf: its newest leaf.
        fork: the node where it leaves the path above it; absent for the live path and for a
            further root.
        start: its first node.
        n_steps: decisions from the root to its leaf.
        n_own_steps: those of them below the fork.
        is_live: whether the head lies on it.
    """

    actor: str
    leaf: int
    fork: int | None
    start: int
    n_steps: int
    n_own_steps: int
    is_live: bool


def find_branches(places: Places) -> Iterator[Branch]:
    """Yield the branches of every actor: the live path first, then each path that leaves another.

    A child begins a branch if its subtree goes on: with a user message, or with a decision that is
    no piece of the one above. Of the children of one fork, the live one, else the one with the
    newest leaf, is the path that the others leave.
    """
    best, goes_on = _subtrees(places)
    for (_, fork), children in sorted(_ways(places, goes_on).items()):
        live = next((c for c in children if places.live[c]), None)
        newest = max(children, key=lambda c: age_of(places.index, best[c]))
        kept = newest if live is None else live
        for child in sorted(children, key=lambda c: (c != kept, c)):
            if child != kept or fork == NONE:
                yield _branch(places, fork, child, best[child], is_live=child == live)


def _ways(places: Places, goes_on: bytearray) -> dict[tuple[int, int], list[int]]:
    """Map (actor, fork) to the children that go on, where there are several; roots to -1."""
    index = places.index
    if not index.has_links:
        firsts: dict[int, int] = {}
        for node in places.order:
            firsts.setdefault(index.node_actor[node], node)
        return {(actor, NONE): [node] for actor, node in firsts.items()}
    children = array("i", [0]) * len(index.node_ids)
    for node in places.order:
        parent = own_parent(index, node)
        if parent != NONE and goes_on[node]:
            children[parent] += 1
    ways: dict[tuple[int, int], list[int]] = {}
    for node in range(len(index.node_ids)):
        parent = own_parent(index, node)
        if goes_on[node] and (parent == NONE or children[parent] > 1):
            ways.setdefault((index.node_actor[node], parent), []).append(node)
    return ways


def _branch(places: Places, fork: int, start: int, leaf: int, *, is_live: bool) -> Branch:
    index = places.index
    above = 0 if fork == NONE else places.steps[fork]
    return Branch(
        actor=index.actors[index.node_actor[start]],
        leaf=leaf,
        fork=None if fork == NONE else fork,
        start=start,
        n_steps=places.steps[leaf],
        n_own_steps=places.steps[leaf] - above,
        is_live=is_live,
    )


def newest_leaves(places: Places) -> Sequence[int]:
    """Give per node the newest leaf at or below it, in its own flow. Cost: O(n)."""
    return _subtrees(places)[0]


def _subtrees(places: Places) -> tuple[Sequence[int], bytearray]:
    """Give per node the newest leaf below it, and whether the history goes on at or below it."""
    index = places.index
    count = len(index.node_ids)
    best = array("i", [NONE]) * count
    goes_on = bytearray(count)
    last: dict[int, int] = {index.node_actor[node]: node for node in places.order}
    for node in reversed(places.order):
        if not index.has_links:
            best[node] = last[index.node_actor[node]]
            goes_on[node] = 1
            continue
        best[node] = node if best[node] == NONE else best[node]
        parent = own_parent(index, node)
        goes_on[node] |= _continues(index, node, parent)
        if parent != NONE:
            goes_on[parent] |= goes_on[node]
            if best[parent] == NONE or age_of(index, best[node]) > age_of(index, best[parent]):
                best[parent] = best[node]
    return best, goes_on


def _continues(index: SessionIndex, node: int, parent: int) -> bool:
    role = index.node_role[node]
    is_piece = parent != NONE and index.node_group[node] == index.node_group[parent]
    return bool(role & IS_USER) or bool(role & IS_DECISION and not is_piece)


def count_branches(places: Places, actor: str = MAIN_ACTOR) -> int:
    """Count an actor's branches: 1, and each path that leaves another at a fork.

    A result, a further piece of the same answer or a note begins none, nor does a further root.
    """
    found = find_branches(places)
    return 1 + sum(branch.actor == actor and branch.fork is not None for branch in found)
