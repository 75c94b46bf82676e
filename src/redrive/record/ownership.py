"""Which decision a node belongs to: the nearest one above it.

Knows the DAG. Must not know paths (trajectory), which ask it, nor payloads.

A sub-agent's node belongs to a decision of its own flow; the main flow passes over the nodes of
others. In a session without links the decision before it, in time order, is the one above.

Source: DESIGN.md §3 "DAG first".
"""

from array import array
from collections.abc import Iterable

from redrive.record.session import IS_DECISION, NO_TS, SessionIndex

_UNKNOWN = -2


def decisions_above(index: SessionIndex) -> "array[int]":
    """Give per node the nearest decision node strictly above it, in its own flow; -1 for none.

    Cost: O(n) time, 8 bytes a node.
    """
    if not index.has_links:
        return _before(index)
    own = _climb_all(index, is_main=False)
    if len(index.actors) == 1:
        return own
    main = _climb_all(index, is_main=True)
    for node, actor in enumerate(index.node_actor):
        if actor == 0:
            own[node] = main[node]
    return own


def linear_order(index: SessionIndex, nodes: Iterable[int]) -> list[int]:
    """Order nodes by (`ts`, order of appearance); one without `ts` goes with the one before it."""
    keyed, newest = [], NO_TS
    for node in nodes:
        newest = index.node_ts[node] if index.node_ts[node] != NO_TS else newest
        keyed.append((newest, node))
    return [node for _, node in sorted(keyed)]


def _before(index: SessionIndex) -> "array[int]":
    above = array("i", [-1]) * len(index.node_ids)
    latest: dict[int, int] = {}
    for node in linear_order(index, range(len(above))):
        actor = index.node_actor[node]
        above[node] = latest.get(actor, -1)
        if index.node_role[node] & IS_DECISION:
            latest[actor] = node
    return above


def _climb_all(index: SessionIndex, *, is_main: bool) -> "array[int]":
    """Climb from every node: to a decision of its own flow, or (`is_main`) to one of `main`."""
    above = array("i", [_UNKNOWN]) * len(index.node_ids)
    actors, roles = index.node_actor, index.node_role
    for node, parent in enumerate(index.node_parent):
        if not 0 <= parent < node:
            _climb(index, node, above, is_main=is_main)
        elif not (is_main or actors[parent] == actors[node]):
            above[node] = -1
        elif roles[parent] & IS_DECISION and not (is_main and actors[parent]):
            above[node] = parent
        else:
            above[node] = above[parent]
    return above


def _climb(index: SessionIndex, node: int, above: "array[int]", *, is_main: bool) -> None:
    """Fill `above` for a node and all that it passes on the way; a cycle ends with -1."""
    trail: dict[int, None] = {}
    while above[node] == _UNKNOWN and node not in trail:
        trail[node] = None
        parent = index.node_parent[node]
        if parent < 0 or not (is_main or index.node_actor[parent] == index.node_actor[node]):
            above[node] = -1
        elif index.node_role[parent] & IS_DECISION and not (is_main and index.node_actor[parent]):
            above[node] = parent
        else:
            node = parent
    found = max(above[node], -1)
    for passed in trail:
        above[passed] = found
