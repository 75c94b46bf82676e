"""Counts a stored session: what the import report and the session list show.

Knows the index, and the usage of responses. Must not know the source format: a file's own counts,
before joining, are the importer's tally.

Source: DESIGN.md §8 `import`.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

import msgspec

from redrive.record.branches import count_branches
from redrive.record.event import MAIN_ACTOR, Event, Kind, ModelResponse, Usage, payload_of
from redrive.record.opening import Opening, find_opening
from redrive.record.ownership import decisions_above
from redrive.record.pairing import Pairing, pair_results
from redrive.record.places import build_places, find_cycles
from redrive.record.session import (
    IS_DECISION,
    IS_NOTE,
    NO_NODE,
    ROOT,
    EventReader,
    IndexBuilder,
    SessionIndex,
    build_index,
)
from redrive.record.trajectory import Trajectory, build_trajectory

_OPEN_GROUPS = 64
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "total_tokens",
)


class SessionSummary(msgspec.Struct, frozen=True):
    """Counts of one session's own, live events; `inherited` ones are counted beside them.

    Calls that the provider ran itself have no result and are not counted as tool calls. `complete`
    says that nothing is damaged, unanswered, unasked or broken. A result whose call lies before the
    record is external: it is no orphan. `broken` says why a path does not reach its root, that of
    the head first: `broken_chain` or `cycle`. `discarded` lists the nodes of the actor `main` that
    are on no live path, `active_path` those that are, root first. `opening` is what a list shows
    beside the counts.
    """

    events: int
    model_calls: int
    tool_calls: int
    tool_results: int
    orphan_calls: int
    orphan_results: int
    orphan_call_ids: tuple[str, ...]
    orphan_result_ids: tuple[str, ...]
    conflicting_call_ids: tuple[str, ...]
    duplicate_result_ids: tuple[str, ...]
    external_result_ids: tuple[str, ...]
    complete: bool
    branches: int
    leaves: int
    roots: int
    inherited: int
    usage: Usage | None
    actors: tuple[str, ...]
    head_node: str | None
    broken: str | None
    active_path: tuple[str, ...] = ()
    discarded: tuple[str, ...] = ()
    opening: Opening = Opening()


@dataclass(slots=True)
class UsageFold:
    """Sums token counts, each decision once: pieces of one answer repeat and grow their usage.

    Only the last 64 decisions of a session are kept open, so memory is bounded.
    """

    totals: dict[str, int] = field(default_factory=dict)
    cost: Decimal | None = None
    _open: "OrderedDict[str, Usage]" = field(default_factory=OrderedDict)

    def add(self, event: Event) -> None:
        """Take the next event; only own responses count."""
        if event.kind is not Kind.MODEL_RESPONSE or event.flags:
            return
        payload: ModelResponse = payload_of(event)
        if payload.usage is None:
            return
        key = f"{event.actor}|{event.group or event.node_id}"
        known = self._open.pop(key, None)
        self._open[key] = payload.usage if known is None else larger_usage(known, payload.usage)
        if len(self._open) > _OPEN_GROUPS:
            self._close(self._open.popitem(last=False)[1])

    def _close(self, usage: Usage) -> None:
        for name in _COUNTS:
            count = getattr(usage, name)
            if count is not None:
                self.totals[name] = self.totals.get(name, 0) + count
        if usage.cost_usd is not None:
            cost = parse_cost(usage.cost_usd)
            if cost is not None:
                self.cost = cost if self.cost is None else self.cost + cost

    def total(self) -> Usage | None:
        """Give the sums, `None` where no response states any."""
        while self._open:
            self._close(self._open.popitem(last=False)[1])
        if not self.totals and self.cost is None:
            return None
        cost = None if self.cost is None else f"{self.cost:f}"
        return Usage(**self.totals, cost_usd=cost)


def larger_usage(one: Usage, other: Usage) -> Usage:
    """Take the final one of two usages that pieces of one answer state."""
    return other if (other.output_tokens or 0) >= (one.output_tokens or 0) else one


def parse_cost(text: str) -> Decimal | None:
    """Read an exact decimal cost; `None` for anything that is no finite number."""
    try:
        cost = Decimal(text)
    except InvalidOperation:
        return None
    return cost if cost.is_finite() else None


def summarize(index: SessionIndex, reader: EventReader, usage: Usage | None) -> SessionSummary:
    """Count a session.

    Args:
        index: the session's index.
        reader: gives payloads, asked only of the beginning, of calls without a result, and of
            several results of one.
        usage: the summed usage, from `UsageFold`.

    Cost: O(n) in events.
    """
    pairing = pair_session(index, reader)
    path = build_trajectory(index) if 0 in set(index.node_actor) else None
    live = set(path.node_path) if path else set()
    provider_side = _find_provider_side(reader, pairing.unanswered)
    unanswered = [seq for seq in pairing.unanswered if seq not in provider_side]
    external = dict.fromkeys(_find_external(reader, pairing.orphans))
    orphans = [seq for seq in pairing.orphans if seq not in external]
    calls = _own(index, Kind.TOOL_CALL)
    has_damage = bool(index.seqs_of(Kind.DAMAGE))
    broken = _find_break(index, path)
    return SessionSummary(
        events=sum(index.is_live) - sum(index.is_inherited),
        model_calls=_count_decisions(index),
        tool_calls=len(calls) - len(provider_side),
        tool_results=len(_own(index, Kind.TOOL_RESULT)) - len(pairing.duplicates),
        orphan_calls=len(unanswered),
        orphan_results=len(orphans),
        orphan_call_ids=_ids(index, unanswered),
        orphan_result_ids=_ids(index, orphans),
        conflicting_call_ids=_ids(index, pairing.conflicts),
        duplicate_result_ids=_ids(index, pairing.duplicates),
        external_result_ids=_ids(index, external),
        complete=not (has_damage or unanswered or orphans or broken),
        branches=count_branches(build_places(index)),
        leaves=_count_leaves(index),
        roots=sum(parent == ROOT for parent in index.node_parent) if index.has_links else 1,
        inherited=sum(index.is_inherited),
        usage=usage,
        actors=index.actors,
        head_node=path.leaf if path else None,
        broken=broken,
        active_path=path.node_path if path else (),
        discarded=_discarded(index, live),
        opening=find_opening(index, reader),
    )


def count_session(
    session_id: str, events: Callable[[], Iterable[Event]], reader: EventReader
) -> SessionSummary:
    """Count a session from its events.

    Args:
        session_id: whose events these are.
        events: gives the events in seq order, each time it is called; requests may come without
            their texts.
        reader: see `summarize`.

    Cost: O(n); one pass over the events, two where events supersede others.
    """
    builder, usage = IndexBuilder(session_id), UsageFold()
    for event in events():
        builder.add(event)
        usage.add(event)
    index = build_index(session_id, events) if builder.superseded else builder.build()
    return summarize(index, reader, usage.total())


def _find_break(index: SessionIndex, path: Trajectory | None) -> str | None:
    """Say how parent links fail: on the head path, else anywhere."""
    if path is not None and path.breaks is not None:
        return path.breaks.what
    if find_cycles(index):
        return "cycle"
    return "broken_chain" if index.dangling else None


def _find_provider_side(reader: EventReader, unanswered: Iterable[int]) -> set[int]:
    """Find, among calls without a result, those that the provider ran itself: none is due."""
    return {
        event.seq for event in reader.read_events(unanswered) if payload_of(event).is_provider_side
    }


def _find_external(reader: EventReader, orphans: Iterable[int]) -> list[int]:
    """Find the results whose call lies before the record began."""
    return [event.seq for event in reader.read_events(orphans) if payload_of(event).is_external]


def _own(index: SessionIndex, kind: Kind) -> list[int]:
    return [seq for seq in index.seqs_of(kind) if not index.is_inherited[seq]]


def _ids(index: SessionIndex, seqs: Iterable[int]) -> tuple[str, ...]:
    """Name calls or results by id, each once, in order; one without an id is the empty text."""
    return tuple(dict.fromkeys(index.call_ids.get(seq, "") for seq in seqs))


def _count_decisions(index: SessionIndex) -> int:
    nodes = {index.event_node[seq] for seq in _own(index, Kind.MODEL_RESPONSE)} - {NO_NODE}
    return len({index.node_group[node] for node in nodes})


def _count_leaves(index: SessionIndex) -> int:
    if not index.has_links:
        return 1 if index.node_ids else 0
    is_parent = bytearray(len(index.node_ids))
    for parent in index.node_parent:
        if parent >= 0:
            is_parent[parent] = 1
    return len(is_parent) - sum(is_parent)


def _discarded(index: SessionIndex, live: set[str]) -> tuple[str, ...]:
    """List the nodes of `main` that no live path holds, notes apart."""
    return tuple(
        name
        for node, name in enumerate(index.node_ids)
        if index.node_actor[node] == 0 and name not in live and index.node_role[node] & ~IS_NOTE
    )


def pair_session(index: SessionIndex, reader: EventReader) -> Pairing:
    """Pair results with calls over the whole DAG, branches and sub-agents included.

    Each result looks upwards from its node for the nearest decision that made a call with its id.
    """
    above = decisions_above(index)
    calls: dict[int, list[int]] = {}
    results: dict[int, list[int]] = {}
    opening: list[int] = []
    for seq in _own(index, Kind.TOOL_CALL):
        node = index.event_node[seq]
        calls.setdefault(index.node_group[node] if node != NO_NODE else -1, []).append(seq)
    wanted = {g: {index.call_ids.get(s) for s in seqs} for g, seqs in calls.items()}
    asked = set[str | None]().union(*wanted.values()) - {None}
    for seq in _own(index, Kind.TOOL_RESULT):
        # Without this, a result that nothing asked for climbs the whole path.
        is_asked = index.call_ids.get(seq) in asked
        place = _asking_decision(index, above, wanted, seq) if is_asked else None
        if place is None:
            opening.append(seq)
        else:
            results.setdefault(place, []).append(seq)
    merged = _settle_each(index, calls, results, reader)
    return msgspec.structs.replace(merged, orphans=tuple(sorted([*merged.orphans, *opening])))


def _settle_each(
    index: SessionIndex,
    calls: dict[int, list[int]],
    results: dict[int, list[int]],
    reader: EventReader,
) -> Pairing:
    answers: dict[int, int] = {}
    conflicts: dict[int, tuple[int, ...]] = {}
    unanswered: list[int] = []
    orphans: list[int] = []
    duplicates: list[int] = []
    for group, seqs in calls.items():
        part = pair_results(index, [(seqs, results.get(group, ()))], reader)
        answers |= part.answers
        conflicts |= part.conflicts
        unanswered += part.unanswered
        orphans += part.orphans
        duplicates += part.duplicates
    return Pairing(answers, tuple(unanswered), tuple(orphans), conflicts, tuple(duplicates))


def _asking_decision(
    index: SessionIndex,
    above: Sequence[int],
    wanted: dict[int, set[str | None]],
    seq: int,
) -> int | None:
    """Find the nearest decision above a result, which has an id, that made a call with this id."""
    call_id = index.call_ids[seq]
    node = index.event_node[seq]
    seen: set[int] = set()
    decision = node if index.node_role[node] & IS_DECISION else above[node]
    while decision != -1 and decision not in seen:
        seen.add(decision)
        group = index.node_group[decision]
        if call_id in wanted.get(group, ()):
            return group
        decision = above[decision]
    return None


def main_actor(index: SessionIndex) -> str:
    """Give `main`, or the only flow there is (a sub-agent's file imported alone)."""
    used = {index.actors[number] for number in index.node_actor}
    return MAIN_ACTOR if MAIN_ACTOR in used or len(used) != 1 else used.pop()
