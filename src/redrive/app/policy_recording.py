"""One session as a replay reads it: its walk, its events, and where they lie once that is asked.

Knows events, lines and plans. Must not know policies. A short session is decoded once and held; of
a longer one the lines are held, and a few segments of it decoded at a time; of one that is longer
still, nothing is. Where its nodes lie is only worked out once something was found in it.

Source: DESIGN.md §3 "Payloads are never all held", §7 "Branches".
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from redrive.errors import TamperError
from redrive.record.event import Event, Kind, payload_of, raw_value
from redrive.record.places import build_places
from redrive.record.session import NO_NODE, EventReader, MemoryReader, SessionIndex, build_index
from redrive.replay.columns import Columns, columns_of
from redrive.replay.folding import FoldPlan, build_plan
from redrive.replay.policy_event import PolicyEvent, freeze, view
from redrive.replay.quick_walk import find_walk
from redrive.replay.walking import Walk, walk_of
from redrive.stores.port import Block, Store

LINE_BYTES = 64 * 1024 * 1024  # of a session whose lines are held
EVENT_BYTES = 4 * 1024 * 1024  # lines of a session whose events are held
_DECODED_BLOCKS = 8
_decode_lines = msgspec.json.Decoder(PolicyEvent).decode_lines


class Recording:
    """A session to replay.

    Args:
        session_id: its id.
        index: gives its index; asked once at most.
        reader: gives its events by seq.
        columns: gives where its events belong; asked once at most, absent where nothing is held.
        held: its events by seq, where they are held.
    """

    def __init__(
        self,
        session_id: str,
        index: Callable[[], SessionIndex],
        reader: EventReader,
        columns: Callable[[], Columns] | None = None,
        held: Sequence[PolicyEvent] | None = None,
    ) -> None:
        self.session_id = session_id
        self.reader = reader
        self._make_index = index
        self._make_columns = columns
        self._held = None if held is None else list(held)
        self._ends: frozenset[int] = frozenset()

    def __len__(self) -> int:
        """Count its events, superseded ones included."""
        return len(self.index) if self._columns is None else len(self._columns.kinds)

    @cached_property
    def index(self) -> SessionIndex:
        """The session's index."""
        return self._make_index()

    @cached_property
    def plan(self) -> FoldPlan:
        """Where everything lies."""
        return build_plan(build_places(self.index))

    @cached_property
    def _columns(self) -> Columns | None:
        return None if self._make_columns is None else self._make_columns()

    def walk(self, *, needs_ends: bool) -> Walk:
        """Find the order in which to judge it, in one pass where its shape is a common one."""
        columns = self._columns
        quick = None if columns is None else find_walk(columns, needs_ends=needs_ends)
        return walk_of(self.plan) if quick is None else quick

    def mark_ends(self, ends: frozenset[int]) -> None:
        """Say which answers end a turn."""
        self._ends = ends
        if self._held is not None:
            for seq in ends:
                self._held[seq] = replace(self._held[seq], ends_turn=True)

    def events(self, seqs: Sequence[int]) -> Iterable[PolicyEvent]:
        """Give events by seq, in the order asked; ends are marked."""
        held = self._held
        if held is None:
            return map(self._shown, self.reader.read_events(seqs))
        if isinstance(seqs, range):
            return held[seqs.start : seqs.stop]
        return [held[seq] for seq in seqs]

    def _shown(self, event: Event) -> PolicyEvent:
        shown = event if isinstance(event, PolicyEvent) else view(event)
        return replace(shown, ends_turn=True) if event.seq in self._ends else shown

    def inferences(self) -> dict[int, dict[str, Any]]:
        """Map a node to what the record infers about it: in it, or in a node right below it."""
        about: dict[int, dict[str, Any]] = {}
        if self._columns is not None and Kind.STATE_INFERRED not in self._columns.kinds:
            return about
        index = self.plan.places.index
        for event in self.reader.read_events(index.seqs_of(Kind.STATE_INFERRED)):
            inferred, node = payload_of(event), index.event_node[event.seq]
            if node == NO_NODE or isinstance(inferred.value, UnsetType):
                continue
            value = freeze(raw_value(inferred.value))
            for place in {node, index.node_parent[node]} - {NO_NODE}:
                about.setdefault(place, {})[inferred.name] = value
        return about


def held_recording(session_id: str, events: Sequence[PolicyEvent]) -> Recording:
    """Replay a session from its events, by seq."""
    return Recording(
        session_id,
        lambda: build_index(session_id, lambda: events),
        MemoryReader(events),
        lambda: columns_of([events]),
        events,
    )


def open_recording(store: Store, session_id: str) -> tuple[Recording, str]:
    """Read a stored session to replay it, and give its head.

    Raises:
        UsageError: there is no such session.
        TamperError: it is damaged.
    """
    head, blocks = store.read_whole(session_id, LINE_BYTES)
    if blocks is None:
        reader = store.reader(session_id)
        return Recording(session_id, lambda: store.index(session_id), reader), head
    size = sum(len(block.lines) for block in blocks)
    if size <= EVENT_BYTES and all(block.is_plain for block in blocks):
        events = list(chain.from_iterable(decode_block(session_id, block) for block in blocks))
        return held_recording(session_id, events), head
    return lined_recording(session_id, blocks, lambda: store.reader(session_id)), head


def lined_recording(
    session_id: str, blocks: Sequence[Block], reader: Callable[[], EventReader]
) -> Recording:
    """Replay a session from its lines; `reader` gives payloads that do not stand in them."""

    def envelopes() -> Iterator[list[PolicyEvent]]:
        return (decode_block(session_id, block) for block in blocks)

    return Recording(
        session_id,
        lambda: build_index(session_id, lambda: chain.from_iterable(envelopes())),
        LineReader(session_id, blocks, reader),
        lambda: columns_of(envelopes()),
    )


def decode_block(session_id: str, block: Block) -> list[PolicyEvent]:
    """Decode the lines of a segment.

    Raises:
        TamperError: they are no events, or not so many.
    """
    try:
        events = _decode_lines(block.lines)
    except msgspec.DecodeError as error:
        raise _damaged(session_id, block, f"a stored line is no event: {error}") from error
    if len(events) != block.n_events:
        raise _damaged(session_id, block, "it has another number of lines")
    return events


def _damaged(session_id: str, block: Block, what: str) -> TamperError:
    return TamperError(
        f"session {session_id}, segment at seq {block.first_seq}: {what}",
        where=f"seq {block.first_seq}",
        hint="`redrive verify` lists all that is damaged",
    )


class LineReader:
    """Gives events by seq from lines that are held; eight segments are decoded at most.

    Args:
        session_id: whose lines these are.
        blocks: all of them, in order.
        reader: gives the reader of events whose payloads do not stand in their lines.
    """

    def __init__(
        self, session_id: str, blocks: Sequence[Block], reader: Callable[[], EventReader]
    ) -> None:
        self._session_id = session_id
        self._blocks = blocks
        self._starts = [block.first_seq for block in blocks]
        self._make_reader = reader
        self._decoded: OrderedDict[int, list[PolicyEvent]] = OrderedDict()

    @cached_property
    def _other(self) -> EventReader:
        return self._make_reader()

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs, in the order asked."""
        if isinstance(seqs, range) and seqs.step == 1:
            yield from self._read_range(seqs.start, seqs.stop)
            return
        for seq in seqs:
            yield from self._read_range(seq, seq + 1)

    def _read_range(self, start: int, stop: int) -> Iterator[Event]:
        while start < stop:
            number = bisect_right(self._starts, start) - 1
            block = self._blocks[number]
            end = min(stop, block.first_seq + block.n_events)
            if block.is_plain:
                first = block.first_seq
                yield from self._decode(number)[start - first : end - first]
            else:
                yield from self._other.read_events(range(start, end))
            start = end

    def _decode(self, number: int) -> list[PolicyEvent]:
        events = self._decoded.get(number)
        if events is None:
            events = self._decoded[number] = decode_block(self._session_id, self._blocks[number])
            if len(self._decoded) > _DECODED_BLOCKS:
                self._decoded.popitem(last=False)
        self._decoded.move_to_end(number)
        return events
