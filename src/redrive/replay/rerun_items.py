"""What a rerun serves: the recorded inputs of an agent's own code, one value each.

Knows seqs, digests and places. Must not know how they are read from events (`rerun_record`) nor
when one is served (`rerun`); holds no payload, so that a session of any size fits.

A flow is cut into **segments** by its requests: segment n lies between request n and request n + 1,
segment 0 before the first. `step` is what people count: the decision that a request leads to, and
that a call or a read follows.

Source: DESIGN.md §4 "clock and PRNG", §5 "Evidence".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TypeAlias

import msgspec

from redrive.record.event import Kind, Source

NEVER = 2**31
"""The segment of what was never over."""


class Ending(StrEnum):
    """How a recorded exchange ended."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    CUT = "cut"
    FAILED = "failed"
    UNANSWERED = "unanswered"  # the record stops before its end


class Lack(StrEnum):
    """Why something that is in the record cannot be served, or not be compared with."""

    NO_ANSWER = "the record holds no answer"
    NO_RESULT = "the record holds no result"
    NO_VALUE = "the record holds no value"
    NO_INPUTS = "the record holds no ordered inputs"
    TRUNCATED = "the recorder cut it"
    MASKED = "the recorder masked it"
    STOPPED = "the recording stops before this place"
    ALTERED = "the stored bytes are not those that were recorded"


class RecordedExchange(msgspec.Struct, frozen=True, gc=False):
    """One request and how it was answered.

    Attributes:
        seq: of the event that holds the request.
        segment: of a request to a model its 1-based ordinal in the flow; else the segment in which
            it was over.
        step: the decision that it leads to.
        node_id: its node.
        method: such as `POST`.
        path: of the URL, without query.
        body: sha256 of the body's bytes, without the members that the recorder added: 32 bytes.
        is_model: whether a model was asked; else other HTTP that went through a seam.
        place: of other HTTP, how many exchanges of this very key came before it in its flow.
        ending: how it ended.
        status: HTTP status; absent where no answer came.
        headers: of the answer, as recorded.
        answer: where the answer's bytes lie; an empty artefact is an empty body.
        message: what failed, where something did.
        response: seq of the event that holds the answer.
        request_source: where the request's bytes lie, where not in the event itself.
        added: members that the recorder put into the body.
        is_masked: whether the stored request may hold a redaction mark.
        lack: why it cannot be served.
    """

    seq: int
    segment: int
    step: int
    node_id: str
    method: str
    path: str
    body: bytes
    is_model: bool = True
    ending: Ending = Ending.UNANSWERED
    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    answer: Source = Source("", 0, 0)
    message: str = ""
    response: int | None = None
    request_source: str = ""
    added: tuple[str, ...] = ()
    place: int = 0
    is_masked: bool = False
    lack: Lack | None = None

    @property
    def key(self) -> tuple[str, str, bytes]:
        """What other HTTP is found by: it runs beside the line of work."""
        return self.method, self.path, self.body

    def is_at(self, method: str, path: str) -> bool:
        """Say whether it went to this place of a server."""
        return (self.method, self.path) == (method, path)


class RecordedRead(msgspec.Struct, frozen=True, gc=False):
    """One clock or PRNG read; `seq` is where its value lies."""

    seq: int
    segment: int
    step: int
    node_id: str
    kind: Kind
    name: str
    lack: Lack | None = None


class RecordedCall(msgspec.Struct, frozen=True, gc=False):
    """One tool call that ran at a seam.

    Attributes:
        seq: of the call.
        result: seq of its result; absent where none is recorded.
        opened: the segment in which it was asked for.
        segment: the segment in which it ended: by the end of it the agent has asked.
        step: the decision that made it.
        node_id: that decision's node.
        tool: its tool.
        arguments: digest of the canonical arguments that it was run with.
        digest: sha256 of the result's stored payload.
        place: how many calls of this very key came before it in its flow.
        call_id: its id.
        is_harness: whether the harness made it without the model asking.
        lack: why it cannot be served.
    """

    seq: int
    result: int | None
    opened: int
    segment: int
    step: int
    node_id: str
    tool: str
    arguments: bytes
    digest: bytes
    place: int = 0
    call_id: str | None = None
    is_harness: bool = False
    lack: Lack | None = None

    @property
    def key(self) -> tuple[str, bytes]:
        """What it is found by."""
        return self.tool, self.arguments


class RecordedValue(msgspec.Struct, frozen=True, gc=False):
    """One derived value: `inputs` and `value` are digests of canonical JSON."""

    seq: int
    segment: int
    step: int
    node_id: str
    name: str
    function: str
    version: str | None
    inputs: bytes
    value: bytes
    place: int = 0
    lack: Lack | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What it is found by: pure functions may be computed in any order."""
        return self.name, self.function


Keyed: TypeAlias = RecordedCall | RecordedValue | RecordedExchange
Key: TypeAlias = tuple[str, bytes] | tuple[str, str] | tuple[str, str, bytes]
Item: TypeAlias = Keyed | RecordedRead


@dataclass(frozen=True)
class RecordedFlow:
    """One flow of execution; each tuple is in recorded order.

    Attributes:
        name: its actor.
        exchanges: n requests to models, strictly ordered.
        reads: strictly ordered.
        calls: found by key.
        values: found by key.
        others: other HTTP, found by key.
        node_id: its last node, where a difference beyond its end is shown.
        acted_ns: when it first read or derived something, where it did; the flows that a rerun
            begins come in this order, whoever was answered first.
        is_within_call: whether it began and ended while a call of another flow ran: where that
            call is served, the flow never begins.
    """

    name: str
    exchanges: tuple[RecordedExchange, ...] = ()
    reads: tuple[RecordedRead, ...] = ()
    calls: tuple[RecordedCall, ...] = ()
    values: tuple[RecordedValue, ...] = ()
    others: tuple[RecordedExchange, ...] = ()
    node_id: str | None = None
    acted_ns: int | None = None
    is_within_call: bool = False

    @cached_property
    def by_key(self) -> Mapping[Key, Sequence[Keyed]]:
        """Group what is found by key, in recorded order."""
        grouped: dict[Key, list[Keyed]] = {}
        for item in self.keyed():
            grouped.setdefault(item.key, []).append(item)
        return grouped

    @cached_property
    def due(self) -> Mapping[int, Sequence[Keyed]]:
        """Group what is found by key by the segment in which it was over."""
        grouped: dict[int, list[Keyed]] = {}
        for item in sorted(self.keyed(), key=lambda item: item.seq):
            grouped.setdefault(item.segment, []).append(item)
        return grouped

    def keyed(self) -> Iterator[Keyed]:
        """Yield what is found by key, by kind, each kind in recorded order."""
        yield from self.calls
        yield from self.values
        yield from self.others

    def items(self) -> Iterator[Item]:
        """Yield everything of the flow, by kind."""
        yield from self.exchanges
        yield from self.reads
        yield from self.keyed()


@dataclass(frozen=True)
class RerunRecord:
    """One recorded session, ready to be served to the agent's own code.

    Attributes:
        session_id: the session.
        flows: by name, in order of appearance.
        is_ended: whether the recorder saw the run end; else the record stops somewhere.
    """

    session_id: str
    flows: Mapping[str, RecordedFlow]
    is_ended: bool

    def flow(self, name: str) -> RecordedFlow:
        """Give a flow; one that the record does not know is empty."""
        return self.flows.get(name) or RecordedFlow(name)

    @cached_property
    def read_functions(self) -> frozenset[tuple[Kind, str]]:
        """Name every function that was read anywhere, without its arguments."""
        return frozenset(
            (read.kind, function_of(read.name))
            for flow in self.flows.values()
            for read in flow.reads
        )


def function_of(name: str) -> str:
    """Give a read's name without its arguments: `random.uniform(0, 1)` is `random.uniform`."""
    return name.partition("(")[0]
