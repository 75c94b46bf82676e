"""The index of a session: its DAG of nodes, in columns, without payloads.

Knows how events form nodes, actors, forks and leaves. Must not hold payloads: a session of 150 MB
is indexed in about 200 bytes an event. Paths through the DAG are in `trajectory`.

File order is not history: a node hangs off its parent, a fork is a second child with a real
continuation, and a session without any parent link is one path in (`ts`, `seq`) order.

Source: DESIGN.md §3 "DAG first".
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from redrive.record.event import FLAG_INHERITED, MAIN_ACTOR, Event, Kind

NO_NODE = -1
ROOT = -1
DANGLING = -2
NO_TS = -(2**63)

KINDS = tuple(Kind)
KIND_CODE = {kind: code for code, kind in enumerate(KINDS)}

DECISION_KINDS = frozenset({Kind.MODEL_RESPONSE, Kind.TOOL_CALL})
ATTACHED_KINDS = frozenset(
    {Kind.TOOL_RESULT, Kind.TOOL_PERMISSION, Kind.CLOCK_READ, Kind.PRNG_READ, Kind.VALUE_DERIVED}
)
SESSION_KINDS = frozenset({Kind.SESSION_STARTED, Kind.DAMAGE})
FLAG_META = "meta"

IS_DECISION, IS_ATTACHED, IS_USER, IS_OTHER, IS_NOTE = 1, 2, 4, 8, 16


ROLES = (
    dict.fromkeys(Kind, IS_OTHER)
    | dict.fromkeys(DECISION_KINDS, IS_DECISION)
    | dict.fromkeys(ATTACHED_KINDS, IS_ATTACHED)
    | {Kind.USER_MESSAGE: IS_USER, Kind.NOTE: IS_NOTE}
)


def _role_of(event: Event) -> int:
    role = ROLES[event.kind]
    return IS_OTHER if role == IS_USER and FLAG_META in event.flags else role


class EventReader(Protocol):
    """Gives stored events by `seq`; a port, so that payloads are never all held."""

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs, in the order asked."""
        ...


class MemoryReader:
    """Serves events that are held in a list."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs, in the order asked."""
        return map(self._events.__getitem__, seqs)


@dataclass(frozen=True, slots=True)
class SessionIndex:
    """Columns over the events (by `seq`) and the nodes (by number, in order of appearance).

    Attributes:
        session_id: whose index this is.
        kinds: one kind code per event.
        event_node: node number per event; `NO_NODE` outside the DAG.
        is_live: 1 per event that counts, 0 where a later event supersedes it.
        is_inherited: 1 per event copied from a parent session.
        call_ids: seq → call id, of calls, results and permissions that have one.
        node_ids: the source's id per node.
        node_parent: parent's number; `ROOT`, or `DANGLING` where the parent is not recorded.
        dangling: node number → the parent id that is not recorded.
        node_actor: index into `actors` per node.
        node_group: number of the first node of the same decision; itself where it stands alone.
        node_role: bits `IS_*` of the kinds it holds.
        node_ts: newest `ts_ns` of the node; `NO_TS` where the source has none.
        actors: flows of execution; `main` is number 0, whether it has nodes or not.
        has_links: whether any node names a parent.
    """

    session_id: str
    kinds: bytes
    event_node: Sequence[int]
    is_live: bytes
    is_inherited: bytes
    call_ids: Mapping[int, str]
    node_ids: Sequence[str]
    node_parent: Sequence[int]
    dangling: Mapping[int, str]
    node_actor: Sequence[int]
    node_group: Sequence[int]
    node_role: bytes
    node_ts: Sequence[int]
    actors: tuple[str, ...]
    has_links: bool

    def __len__(self) -> int:
        """Count the events, superseded ones included."""
        return len(self.kinds)

    def kind(self, seq: int) -> Kind:
        """Give an event's kind."""
        return KINDS[self.kinds[seq]]

    def seqs_of(self, *kinds: Kind) -> list[int]:
        """List the live events of these kinds, in seq order."""
        codes = {KIND_CODE[kind] for kind in kinds}
        return [s for s, code in enumerate(self.kinds) if code in codes and self.is_live[s]]

    def find_node(self, node_id: str) -> int | None:
        """Find a node's number by its id. Cost: O(n)."""
        try:
            return self.node_ids.index(node_id)
        except ValueError:
            return None

    def actor_number(self, actor: str) -> int | None:
        """Give an actor's number, or `None` where no event has it."""
        return self.actors.index(actor) if actor in self.actors else None


@dataclass(slots=True)
class IndexBuilder:
    """Folds events, in seq order, to a `SessionIndex`.

    `dead` names events that a later one supersedes; `build_index` finds them first.
    """

    session_id: str
    dead: frozenset[str] = frozenset()
    superseded: set[str] = field(default_factory=set)
    _kinds: bytearray = field(default_factory=bytearray)
    _live: bytearray = field(default_factory=bytearray)
    _inherited: bytearray = field(default_factory=bytearray)
    _event_node: "array[int]" = field(default_factory=lambda: array("i"))
    _call_ids: dict[int, str] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _parent_names: dict[int, str] = field(default_factory=dict)
    _parents: "array[int]" = field(default_factory=lambda: array("i"))
    _actors: dict[str, int] = field(default_factory=lambda: {MAIN_ACTOR: 0})
    _node_actor: "array[int]" = field(default_factory=lambda: array("i"))
    _groups: dict[int, dict[str, int]] = field(default_factory=dict)
    _node_group: "array[int]" = field(default_factory=lambda: array("i"))
    _roles: bytearray = field(default_factory=bytearray)
    _ts: "array[int]" = field(default_factory=lambda: array("q"))
    _has_links: bool = False
    _names: dict[str, str] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Take the next event."""
        kind, flags, node_id = event.kind, event.flags, event.node_id
        is_live = not self.dead or event.id not in self.dead
        self._kinds.append(KIND_CODE[kind])
        self._live.append(is_live)
        self._inherited.append(FLAG_INHERITED in flags)
        if event.supersedes is not None:
            self.superseded.add(event.supersedes)
        if not is_live or not node_id or kind in SESSION_KINDS:
            self._event_node.append(NO_NODE)
            return
        number = self._numbers.get(node_id)
        if number is None:
            number = self._add_node(event)
        self._event_node.append(number)
        self._roles[number] |= _role_of(event) if flags else ROLES[kind]
        if event.ts_ns is not None and event.ts_ns > self._ts[number]:
            self._ts[number] = event.ts_ns
        if event.call_id is not None:
            name = event.call_id
            self._call_ids[len(self._kinds) - 1] = self._names.setdefault(name, name)
        if event.group is not None:
            self._join(number, event.group)

    def _join(self, node: int, group: str) -> None:
        """Make a node a piece of the decision that the first node of this group began."""
        if self._node_group[node] == node:
            of_actor = self._groups.setdefault(self._node_actor[node], {})
            self._node_group[node] = of_actor.setdefault(group, node)

    def _add_node(self, event: Event) -> int:
        number, parent, name = len(self._parents), ROOT, event.parent_id
        self._numbers[event.node_id] = number
        if name is not None:
            self._has_links = True
            parent = self._numbers.get(name, DANGLING)
            if parent == DANGLING:  # a child may come before its parent
                self._parent_names[number] = name
        self._parents.append(parent)
        self._node_actor.append(self._actors.setdefault(event.actor, len(self._actors)))
        self._node_group.append(number)
        self._roles.append(0)
        self._ts.append(NO_TS)
        return number

    def build(self) -> SessionIndex:
        """Give the index; parents that came after their children are linked now."""
        dangling = {}
        for number, name in self._parent_names.items():
            parent = self._numbers.get(name)
            if parent is None:
                dangling[number] = name
            else:
                self._parents[number] = parent
        return SessionIndex(
            session_id=self.session_id,
            kinds=bytes(self._kinds),
            event_node=self._event_node,
            is_live=bytes(self._live),
            is_inherited=bytes(self._inherited),
            call_ids=self._call_ids,
            node_ids=list(self._numbers),
            node_parent=self._parents,
            dangling=dangling,
            node_actor=self._node_actor,
            node_group=self._node_group,
            node_role=bytes(self._roles),
            node_ts=self._ts,
            actors=tuple(self._actors),
            has_links=self._has_links,
        )


def build_index(session_id: str, events: Callable[[], Iterable[Event]]) -> SessionIndex:
    """Index a session.

    Args:
        session_id: whose events these are.
        events: gives the events in seq order, each time it is called; it is called a second time
            only where events supersede others.

    Returns:
        The index. Cost: O(n) time, about 200 bytes an event.
    """
    builder = IndexBuilder(session_id)
    for event in events():
        builder.add(event)
    if builder.superseded:
        builder = IndexBuilder(session_id, frozenset(builder.superseded))
        for event in events():
            builder.add(event)
    return builder.build()
