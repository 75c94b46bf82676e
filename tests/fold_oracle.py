"""A naive second opinion on how a session is folded, written from DESIGN.md alone.

For each event it walks from its node to the root of its flow and lists what happened before it. It
knows no index, no places and no plan, and takes as long as it takes: O(n²) and worse.
"""

from collections.abc import Sequence
from functools import cache

from redrive.record.event import Event, Kind
from redrive.record.session import FLAG_META

DECISION = {Kind.MODEL_RESPONSE, Kind.TOOL_CALL}
ATTACHED = {
    Kind.TOOL_RESULT,
    Kind.TOOL_PERMISSION,
    Kind.CLOCK_READ,
    Kind.PRNG_READ,
    Kind.VALUE_DERIVED,
}
NOWHERE = {Kind.SESSION_STARTED, Kind.DAMAGE}
MOMENTS = {
    Kind.SESSION_STARTED,
    Kind.USER_MESSAGE,
    Kind.MODEL_RESPONSE,
    Kind.TOOL_CALL,
    Kind.TOOL_PERMISSION,
    Kind.TOOL_RESULT,
    Kind.STATE_INFERRED,
    Kind.POLICY_ACTION,
}


def is_user(event: Event) -> bool:
    return event.kind is Kind.USER_MESSAGE and FLAG_META not in event.flags


class Oracle:
    """What is known of each live event of a session; nodes go by their ids."""

    def __init__(self, events: Sequence[Event]) -> None:
        dead = {event.supersedes for event in events}
        self.live = [event for event in events if event.id not in dead]
        self.nodes: dict[str, list[Event]] = {}
        self.outside: list[Event] = []
        for event in self.live:
            if event.node_id and event.kind not in NOWHERE:
                self.nodes.setdefault(event.node_id, []).append(event)
            else:
                self.outside.append(event)
        self.appeared = list(self.nodes)
        self.links = {name: found[0].parent_id for name, found in self.nodes.items()}
        self.has_links = any(self.links.values())
        self._cut_rings()
        self.order = self._parents_first()
        self.unit = cache(self._unit)
        self.walk = cache(self._walk)
        self.above = cache(self._above)

    # --- facts of a node

    def actor(self, node: str) -> str:
        return self.nodes[node][0].actor

    def kinds(self, node: str) -> set[Kind]:
        return {event.kind for event in self.nodes[node]}

    def is_decision(self, node: str) -> bool:
        return bool(self.kinds(node) & DECISION)

    def is_attached(self, node: str) -> bool:
        kinds = self.kinds(node)
        return bool(kinds & ATTACHED) and kinds <= ATTACHED | {Kind.NOTE}

    def has_user(self, node: str) -> bool:
        return any(map(is_user, self.nodes[node]))

    def age(self, node: str) -> tuple[float, int]:
        times = [event.ts_ns for event in self.nodes[node] if event.ts_ns is not None]
        return max(times, default=-float("inf")), self.appeared.index(node)

    # --- links

    def _cut_rings(self) -> None:
        """A ring is entered from the head of main, else from the first node that leads in."""
        if not self.has_links:
            return
        head = self.head("main")
        for start in [*([head] if head else []), *self.appeared]:
            met = [start]
            while (parent := self.links[met[-1]]) in self.nodes:
                if parent in met:
                    self.links[met[-1]] = None
                    break
                met.append(parent)

    def head(self, actor: str) -> str | None:
        """Give the leaf with the newest ts, then the last one."""
        mine = [node for node in self.appeared if self.actor(node) == actor]
        parents = {self.links[node] for node in mine if self.links[node] != node}
        leaves = [node for node in mine if node not in parents] or mine
        return max(leaves, key=self.age, default=None)

    def _parents_first(self) -> list[str]:
        if not self.has_links:
            keyed, newest = [], -float("inf")
            for node in self.appeared:
                ts = self.age(node)[0]
                newest = newest if ts == -float("inf") else ts
                keyed.append((newest, self.appeared.index(node), node))
            return [node for *_, node in sorted(keyed)]
        order: list[str] = []
        for node in self.appeared:
            trail = []
            while node in self.nodes and node not in order:
                trail.append(node)
                node = self.links[node] or ""
            order += reversed(trail)
        return order

    def _flow_parent(self, node: str) -> str | None:
        actor = self.actor(node)
        if not self.has_links:
            mine = [other for other in self.order if self.actor(other) == actor]
            place = mine.index(node)
            return mine[place - 1] if place else None
        parent = self.links[node]
        if actor == "main":
            while parent in self.nodes and self.actor(parent) != "main":
                parent = self.links[parent]
        elif parent in self.nodes and self.actor(parent) != actor:
            parent = None
        return parent if parent in self.nodes else None

    def _walk(self, node: str) -> list[str]:
        """List the nodes from the root of a node's flow to it."""
        path = [node]
        while (parent := self._flow_parent(path[-1])) is not None:
            path.append(parent)
        return path[::-1]

    # --- decisions

    def group(self, node: str) -> str:
        named = [event.group for event in self.nodes[node] if event.group is not None]
        return f"group {named[0]}" if named else f"node {node}"

    def owner(self, node: str) -> str | None:
        """Give the nearest decision above a node."""
        return next((n for n in reversed(self.walk(node)[:-1]) if self.is_decision(n)), None)

    def _unit(self, node: str) -> tuple[str, str]:
        """Name what a node is folded with: its decision, or itself alone."""
        if self.is_decision(node):
            return self.actor(node), self.group(node)
        if self.is_attached(node):
            owner = self.owner(node)
            path = self.walk(node)
            if owner and not any(map(self.has_user, path[path.index(owner) + 1 :])):
                return self.actor(owner), self.group(owner)
        return self.actor(node), f"alone {node}"

    def members(self, unit: tuple[str, str]) -> list[Event]:
        """List the events of a unit in the order in which they are folded."""
        nodes = [node for node in self.order if self.unit(node) == unit]
        return [event for node in nodes for event in self.nodes[node]]

    def _above(self, unit: tuple[str, str]) -> list[tuple[str, str]]:
        """List the units before one, root first: those that the walk to its first node meets."""
        first = next(node for node in self.order if self.unit(node) == unit)
        met = dict.fromkeys(self.unit(node) for node in self.walk(first)[:-1])
        return [other for other in met if other != unit]

    # --- what a policy sees

    def history(self, event: Event) -> list[Event]:
        """List the events before one on its own path."""
        if event in self.outside:
            return self.outside[: self.outside.index(event)]
        unit = self.unit(event.node_id)
        before = [e for other in self.above(unit) for e in self.members(other)]
        own = self.members(unit)
        return [*self.outside, *before, *own[: own.index(event)]]

    def ends_turn(self, event: Event) -> bool:
        """Say whether an answer is the last of a decision after which the agent stopped."""
        if event.kind is not Kind.MODEL_RESPONSE:
            return False
        unit = self.unit(event.node_id)
        own = self.members(unit)
        answers = [e for e in own if e.kind is Kind.MODEL_RESPONSE]
        if any(e.kind is Kind.TOOL_CALL for e in own) or event != answers[-1]:
            return False
        for node in filter(self.is_decision, self.order):
            before = self.above(self.unit(node))
            if unit in before:
                between = before[before.index(unit) + 1 :]
                if not any(is_user(e) for other in between for e in self.members(other)):
                    return False
        return True

    def moment(self, event: Event) -> int:
        return sum(e.kind in MOMENTS for e in self.history(event))

    def time(self, event: Event) -> int | None:
        """Give an event's time, else the greatest before it on its path."""
        if event.ts_ns is not None:
            return event.ts_ns
        return max((e.ts_ns for e in self.history(event) if e.ts_ns is not None), default=None)

    def segment(self, event: Event) -> int:
        """Give the seq of the user message before an event; -1 for none."""
        return next((e.seq for e in reversed(self.history(event)) if is_user(e)), -1)

    def leaf(self, event: Event) -> str | None:
        """Give the newest leaf at or below an event's node, in its own flow."""
        if event in self.outside:
            return None
        actor = event.actor
        if not self.has_links:
            return [node for node in self.order if self.actor(node) == actor][-1]
        below = [
            node
            for node in self.nodes
            if self.actor(node) == actor and event.node_id in self._own_walk(node)
        ]
        parents = {self.links[node] for node in below if node != event.node_id}
        return max((node for node in below if node not in parents), key=self.age)

    def _own_walk(self, node: str) -> list[str]:
        path = [node]
        while (parent := self.links[path[-1]]) in self.nodes:
            if self.actor(parent) != self.actor(node):
                break
            path.append(parent)
        return path

    # --- the head path

    def on_head_path(self, event: Event) -> bool:
        if event in self.outside or not self.has_links:
            return True
        return event.node_id in self._live_nodes(event.actor, frozenset())

    def _live_nodes(self, actor: str, asked: frozenset[str]) -> set[str]:
        head = self.head(actor)
        if head is None or not self._hangs_live(actor, head, asked):
            return set()
        spine = set(self.walk(head))
        decisions = {self.group(node) for node in spine if self.is_decision(node)}
        mine = [node for node in self.nodes if self.actor(node) == actor]
        found = {
            node for node in mine if self.is_decision(node) and self.group(node) in decisions
        } | spine
        for node in mine:
            owner = self.owner(node)
            if self.is_attached(node) and owner is not None and self.group(owner) in decisions:
                found.add(node)
        for node in self.order:  # a note is where the node above it is
            above = self.links[node]
            if self.kinds(node) == {Kind.NOTE} and above in found and node in mine:
                found.add(node)
        return found

    def _hangs_live(self, actor: str, head: str, asked: frozenset[str]) -> bool:
        """Say whether what a sub-agent hangs off is live; where these form a ring, it is."""
        hook = self.links[self.walk(head)[0]]
        if actor == "main" or hook not in self.nodes:
            return True
        above = self.actor(hook)
        if above in asked | {actor}:
            return True
        return hook in self._live_nodes(above, asked | {actor})
