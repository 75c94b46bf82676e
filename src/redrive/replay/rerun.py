"""Rerun: the agent's own code runs again, and everything from outside is served from the record.

A stepped value machine that is *asked*: the agent's code leads, `step` takes what it asks for and
gives the next state and what it is told::

    AskExchange ──→ Serve | AskLive | Differs
    AskRead     ──→ Serve | Differs
    AskCall     ──→ Serve | Differs
    AskValue    ──→ Recompute | Serve | Differs
    Recomputed  ──→ Serve | Differs
    AskEnd      ──→ Finished | Differs

The rules, per flow:

* requests to models come in recorded order, byte for byte;
* between two requests, reads come in recorded order: another name, or one that is left over when
  the next request is made, is a difference, and no read ever gets another read's value;
* tool calls, derived values and other HTTP are found by key, each recorded answer once: what runs
  side by side may come in any order, and is left over only where it was over by then;
* the first difference ends the rerun: what comes after it would rest on a made-up past.

With a live model requests are not compared, and what was left over before one is passed over.

States are frozen; asking again of an older state gives the same answer.

Knows the record as digests. Must not know payloads, files or sockets.

Source: DESIGN.md §4, §5; issue "The recorder" §5.
"""

from collections.abc import Iterable
from typing import Any, TypeAlias, assert_never

import msgspec

from redrive.record.event import Kind
from redrive.record.signature import argument_digests
from redrive.replay.persistent import Table
from redrive.replay.rerun_bytes import body_digest, value_digest
from redrive.replay.rerun_exchange import (
    DEFAULT_RERUN,
    Ask,
    AskCall,
    AskEnd,
    AskExchange,
    AskLive,
    AskRead,
    AskValue,
    Command,
    Differs,
    Finished,
    Miss,
    Recompute,
    Recomputed,
    RerunOptions,
    Serve,
    What,
)
from redrive.replay.rerun_items import (
    NEVER,
    Ending,
    Item,
    Key,
    Keyed,
    Lack,
    RecordedCall,
    RecordedExchange,
    RecordedFlow,
    RecordedRead,
    RecordedValue,
    RerunRecord,
    function_of,
)

READ_WHAT = {Kind.CLOCK_READ: What.CLOCK, Kind.PRNG_READ: What.PRNG}


class FlowState(msgspec.Struct, frozen=True, gc=False):
    """How far one flow has come.

    Attributes:
        n_exchanges: recorded requests that were passed; also the segment that it is in.
        n_reads: recorded reads that were passed.
        n_asked: requests that the agent made.
        used: per key, how many of its answers were served.
    """

    n_exchanges: int = 0
    n_reads: int = 0
    n_asked: int = 0
    used: Table[Key, int] = Table()


_FRESH = FlowState()


class Served(msgspec.Struct, frozen=True, gc=False):
    """How much was served so far."""

    requests: int = 0
    reads: int = 0
    calls: int = 0
    values: int = 0
    others: int = 0
    live: int = 0


class RerunState(msgspec.Struct, frozen=True, gc=False):
    """Everything a rerun needs to go on; a value.

    Attributes:
        recorded: the session.
        options: how.
        flows: the flows that have begun.
        served: what was served.
        miss: the first difference, once there is one.
    """

    recorded: RerunRecord
    options: RerunOptions = DEFAULT_RERUN
    flows: Table[str, FlowState] = Table()
    served: Served = Served()
    miss: Miss | None = None

    def flow(self, name: str) -> FlowState:
        """Give how far a flow has come."""
        return self.flows.find(name) or _FRESH

    def next_exchange(self, flow: str) -> RecordedExchange | None:
        """Give the request that a flow has to make next; `None` beyond the record."""
        exchanges, place = self.recorded.flow(flow).exchanges, self.flow(flow).n_exchanges
        return exchanges[place] if place < len(exchanges) else None

    def next_read(self, flow: str) -> RecordedRead | None:
        """Give the read that a flow has to make next, in the segment that it is in."""
        state, reads = self.flow(flow), self.recorded.flow(flow).reads
        if state.n_reads == len(reads) or reads[state.n_reads].segment > state.n_exchanges:
            return None
        return reads[state.n_reads]


_Next: TypeAlias = tuple[RerunState, Command]


def start(recorded: RerunRecord, options: RerunOptions = DEFAULT_RERUN) -> RerunState:
    """Begin a rerun; the agent's code asks first."""
    return RerunState(recorded, options)


def step(state: RerunState, ask: Ask) -> _Next:
    """Take what the agent's code asks for.

    Returns:
        The next state, and what it is told. After a difference every ask is told that difference.
    """
    if state.miss is not None:
        return state, Differs(state.miss)
    match ask:
        case AskExchange():
            return _take_request(state, ask) if ask.is_model else _take_other(state, ask)
        case AskRead():
            return _take_read(state, ask)
        case AskCall():
            return _take_call(state, ask)
        case AskValue():
            return _take_value(state, ask)
        case Recomputed():
            return _take_recomputed(state, ask)
        case AskEnd():
            return _take_end(state, ask)
        case _ as never:
            assert_never(never)


def _differ(
    state: RerunState,
    what: What,
    flow: str,
    found: Ask | None,
    expected: Item | None = None,
    **details: Any,
) -> _Next:
    number = expected.step if expected is not None else _step_of(state, flow)
    if what is What.BEYOND:
        number += 1
    miss = Miss(what, flow, number, expected, found, **details)
    return msgspec.structs.replace(state, miss=miss), Differs(miss)


def _step_of(state: RerunState, flow: str) -> int:
    """Give the step that a flow is in."""
    exchanges = state.recorded.flow(flow).exchanges
    passed = min(state.flow(flow).n_exchanges, len(exchanges))
    return exchanges[passed - 1].step if passed else 1


def _serve(state: RerunState, name: str, flow: FlowState, count: str, item: Item) -> _Next:
    return _advance(state, name, flow, count), Serve(item)


def _advance(state: RerunState, name: str, flow: FlowState, count: str) -> RerunState:
    served = msgspec.structs.replace(state.served, **{count: getattr(state.served, count) + 1})
    return msgspec.structs.replace(state, flows=state.flows.set(name, flow), served=served)


# --- requests to models


def _take_request(state: RerunState, ask: AskExchange) -> _Next:
    if state.options.is_live:
        return _take_live_request(state, ask)
    flow = state.flow(ask.flow)
    left = _find_left(state, ask.flow, flow.n_exchanges)
    if left is not None:
        return _differ(state, _what_of(left), ask.flow, ask, left)
    expected = state.next_exchange(ask.flow)
    if expected is None:
        lack = None if state.recorded.is_ended else Lack.STOPPED
        return _differ(state, What.BEYOND, ask.flow, ask, lack=lack)
    if not expected.is_at(ask.method, ask.path):
        return _differ(state, What.REQUEST, ask.flow, ask, expected)
    if expected.body != body_digest(ask.body, ask.added):
        lack = Lack.MASKED if expected.is_masked else None
        return _differ(state, What.PROMPT, ask.flow, ask, expected, lack=lack)
    if expected.lack is not None:
        return _differ(state, What.UNSERVABLE, ask.flow, ask, expected, lack=expected.lack)
    flow = msgspec.structs.replace(flow, n_exchanges=flow.n_exchanges + 1, n_asked=flow.n_asked + 1)
    return _serve(state, ask.flow, flow, "requests", expected)


def _take_live_request(state: RerunState, ask: AskExchange) -> _Next:
    """Let the model answer; the place in the record moves on to its next whole answer."""
    flow, recorded = state.flow(ask.flow), state.recorded.flow(ask.flow)
    place = flow.n_exchanges
    while place < len(recorded.exchanges) and not _is_whole(recorded.exchanges[place]):
        place += 1
    expected = recorded.exchanges[place] if place < len(recorded.exchanges) else None
    n_reads = flow.n_reads
    while n_reads < len(recorded.reads) and recorded.reads[n_reads].segment <= place:
        n_reads += 1
    moved = msgspec.structs.replace(
        flow, n_exchanges=place + 1, n_reads=n_reads, n_asked=flow.n_asked + 1
    )
    return _advance(state, ask.flow, moved, "live"), AskLive(ask.flow, moved.n_asked, expected)


def _is_whole(exchange: RecordedExchange) -> bool:
    return exchange.ending is Ending.COMPLETE and (exchange.status or 0) < 300


def _find_left(state: RerunState, name: str, segment: int) -> Item | None:
    """Find what a flow was to ask for by the end of a segment and did not, the earliest first."""
    flow, recorded = state.flow(name), state.recorded.flow(name)
    read = state.next_read(name) if state.options.can_read else None
    left: list[Item] = [] if read is None else [read]
    left += _unused(flow, recorded.due.get(segment, ()))
    return min(left, key=lambda item: item.seq, default=None)


def _unused(flow: FlowState, items: Iterable[Keyed]) -> list[Keyed]:
    return [item for item in items if item.place >= (flow.used.find(item.key) or 0)]


def _what_of(item: Item) -> What:
    """Name the difference that something was not asked for."""
    match item:
        case RecordedRead():
            return READ_WHAT[item.kind]
        case RecordedCall():
            return What.CALL
        case RecordedValue():
            return What.VALUE
        case RecordedExchange():
            return What.EARLY if item.is_model else What.REQUEST
        case _ as never:
            assert_never(never)


# --- reads


def _take_read(state: RerunState, ask: AskRead) -> _Next:
    flow, expected = state.flow(ask.flow), state.next_read(ask.flow)
    if expected is None:
        return _differ(state, READ_WHAT[ask.kind], ask.flow, ask, is_unrecorded=True)
    if (expected.kind, expected.name) == (ask.kind, ask.name):
        if expected.lack is not None:
            return _differ(state, What.UNSERVABLE, ask.flow, ask, expected, lack=expected.lack)
        flow = msgspec.structs.replace(flow, n_reads=flow.n_reads + 1)
        return _serve(state, ask.flow, flow, "reads", expected)
    if _is_ahead(state, ask):
        return _differ(state, What.ORDER, ask.flow, ask, expected)
    is_known = (ask.kind, function_of(ask.name)) in state.recorded.read_functions
    what = READ_WHAT[ask.kind]
    return _differ(state, what, ask.flow, ask, expected, is_unrecorded=not is_known)


def _is_ahead(state: RerunState, ask: AskRead) -> bool:
    """Say whether a read is recorded later in the same segment."""
    flow = state.flow(ask.flow)
    for read in state.recorded.flow(ask.flow).reads[flow.n_reads :]:
        if read.segment > flow.n_exchanges:
            return False
        if (read.kind, read.name) == (ask.kind, ask.name):
            return True
    return False


# --- what is found by key: tool calls, derived values, other HTTP


def _take_call(state: RerunState, ask: AskCall) -> _Next:
    key = (ask.tool, argument_digests(ask.arguments, None).value)
    for name in _own_first(state, ask.flow):
        call = _find_next(state, name, key)
        if isinstance(call, RecordedCall) and call.opened <= _reach(state, name):
            if call.lack is not None:
                return _differ(state, What.UNSERVABLE, ask.flow, ask, call, lack=call.lack)
            return _serve(state, name, _use(state, name, key), "calls", call)
    expected = _find_waiting(state, ask)
    is_same_tool = expected is not None and expected.tool == ask.tool
    what = What.ARGUMENT if is_same_tool else What.CALL
    return _differ(state, what, ask.flow, ask, expected)


def _own_first(state: RerunState, own: str) -> list[str]:
    """List the flows with the asking one first: a pool's thread runs the calls of another flow."""
    return [own, *(name for name in state.recorded.flows if name != own)]


def _reach(state: RerunState, name: str) -> int:
    """Give the segment up to which a flow's calls may be asked for."""
    recorded = state.recorded.flow(name)
    return len(recorded.exchanges) if state.options.is_live else state.flow(name).n_exchanges


def _find_next(state: RerunState, name: str, key: Key) -> Keyed | None:
    """Find the next answer of a key."""
    items = state.recorded.flow(name).by_key.get(key, ())
    used = state.flow(name).used.find(key) or 0
    return items[used] if used < len(items) else None


def _use(state: RerunState, name: str, key: Key) -> FlowState:
    flow = state.flow(name)
    return msgspec.structs.replace(flow, used=flow.used.set(key, (flow.used.find(key) or 0) + 1))


def _find_waiting(state: RerunState, ask: AskCall) -> RecordedCall | None:
    """Find the recorded call at whose place another one was asked for: of the same tool, if any."""
    waiting = list_waiting(state, ask.flow)
    return min(waiting, key=lambda call: (call.tool != ask.tool, call.seq), default=None)


def list_waiting(state: RerunState, name: str) -> list[RecordedCall]:
    """List the calls that a flow may ask for now and has not asked for, in recorded order."""
    calls = [call for call in state.recorded.flow(name).calls if call.opened <= _reach(state, name)]
    left = _unused(state.flow(name), calls)
    return [call for call in left if isinstance(call, RecordedCall)]


def _take_value(state: RerunState, ask: AskValue) -> _Next:
    key = (ask.name, ask.function)
    value = _find_next(state, ask.flow, key)
    if not isinstance(value, RecordedValue):
        left = _first_value(state, ask.flow)
        return _differ(state, What.VALUE, ask.flow, ask, left, is_unrecorded=left is None)
    if value.lack is not None:
        return _differ(state, What.UNSERVABLE, ask.flow, ask, value, lack=value.lack)
    if value.inputs != value_digest(ask.inputs):
        return _differ(state, What.INPUT, ask.flow, ask, value)
    flow = _use(state, ask.flow, key)
    if not state.options.recompute:
        if value.version != ask.version:  # whether it would give the same is not known
            return _differ(state, What.VALUE, ask.flow, ask, value)
        return _serve(state, ask.flow, flow, "values", value)
    return _advance(state, ask.flow, flow, "values"), Recompute(value)


def _first_value(state: RerunState, name: str) -> RecordedValue | None:
    recorded = state.recorded.flow(name)
    left = _unused(state.flow(name), recorded.values)
    return next((value for value in left if isinstance(value, RecordedValue)), None)


def _take_recomputed(state: RerunState, ask: Recomputed) -> _Next:
    if ask.error is not None or ask.recorded.value != value_digest(ask.value):
        return _differ(state, What.DERIVATION, ask.flow, ask, ask.recorded)
    return state, Serve(ask.recorded)


def _take_other(state: RerunState, ask: AskExchange) -> _Next:
    key = (ask.method, ask.path, body_digest(ask.body, ask.added))
    for name in _own_first(state, ask.flow):
        exchange = _find_next(state, name, key)
        if isinstance(exchange, RecordedExchange):
            if exchange.lack is not None:
                return _differ(state, What.UNSERVABLE, ask.flow, ask, exchange, lack=exchange.lack)
            return _serve(state, name, _use(state, name, key), "others", exchange)
    left = _unused(state.flow(ask.flow), state.recorded.flow(ask.flow).others)
    others = [item for item in left if isinstance(item, RecordedExchange)]
    same = [item for item in others if item.is_at(ask.method, ask.path)]
    return _differ(state, What.REQUEST, ask.flow, ask, same[0] if same else None)


# --- the end


def _take_end(state: RerunState, ask: AskEnd) -> _Next:
    if state.options.is_live:
        return state, Finished()
    for name, recorded in state.recorded.flows.items():
        left = _find_rest(state, name, recorded)
        if left is not None:
            what = What.EARLY if isinstance(left, RecordedExchange) else _what_of(left)
            return _differ(state, what, name, ask, left)
    return state, Finished()


def _find_rest(state: RerunState, name: str, recorded: RecordedFlow) -> Item | None:
    """Find the first thing that a flow did not come to."""
    flow = state.flows.find(name)
    if flow is None and recorded.is_within_call:
        return None
    left = _find_left(state, name, (flow or _FRESH).n_exchanges)
    expected = state.next_exchange(name)
    return left if left is not None else expected


def list_rest(state: RerunState) -> tuple[Item, ...]:
    """List what the record holds and nobody asked for, flow by flow, each in recorded order."""
    rest: list[Item] = []
    for name, recorded in state.recorded.flows.items():
        flow = state.flow(name)
        left: list[Item] = [*recorded.exchanges[flow.n_exchanges :]]
        left += recorded.reads[flow.n_reads :] if state.options.can_read else ()
        left += [item for item in _unused(flow, recorded.keyed()) if item.segment != NEVER]
        rest += sorted(left, key=lambda item: item.seq)
    return tuple(rest)
