"""Gives what happened its place in a session: seq, node, parent, flow; and hands it to a sink.

Knows the layout of a recorded session's nodes. Must not know what happened, nor stores.

Within a flow each node hangs off the one before it.

Source: DESIGN.md §3.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from redrive import canonical
from redrive.capture.flows import Flow
from redrive.record.event import Custom, Event, Kind, Payload, Source, dump_payload, raw_of

HERE = Source("", 0, 0)
"""The source of what the recorder itself is the first to write down."""


class Sink(Protocol):
    """Takes events in the order of the calls; see `redrive.capture.recorder.Recorder`."""

    def put(self, events: Sequence[Event], artefacts: Sequence[bytes] = ()) -> None:
        """Take events and the bytes that they point at; returns at once."""
        ...

    def flush(self) -> None:
        """Wait until everything taken so far is durable."""
        ...


class Fact(NamedTuple):
    """What happened, without its place."""

    kind: Kind
    payload: Payload
    call_id: str | None = None
    group: str | None = None
    flags: tuple[str, ...] = ()


class EventLog:
    """The events of one session, in order. Not locked: the caller holds one lock around each call.

    Args:
        sink: who keeps them.
        session_id: as the store names the session.
        now_ns: the time, UTC nanoseconds.
    """

    def __init__(self, sink: Sink, session_id: str, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self._sink = sink
        self._session_id = session_id
        self._seq = 0
        self._counts: dict[str, int] = {}

    def next(self, prefix: str) -> str:
        """Give a new name, such as `x3`."""
        number = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}{number}"

    def count(self, prefix: str) -> int:
        """Say how many names of a prefix were given."""
        return self._counts.get(prefix, 0)

    def flush(self) -> None:
        """Wait until everything so far is durable."""
        self._sink.flush()

    def open(self, payload: Payload) -> None:
        """Write what is known of the whole session, outside the DAG; again where it grew."""
        number = int(self.next("started")[len("started") :])
        name = "started" if number == 1 else f"started~{number}"
        event = self._event(name, "", None, None, Fact(Kind.SESSION_STARTED, payload))
        if number > 1:
            before = "started" if number == 2 else f"started~{number - 1}"
            event = msgspec.structs.replace(event, supersedes=before)
        self._sink.put((event,))

    def add(
        self,
        flow: Flow,
        node: str,
        fact: Fact,
        *,
        at_ns: int | None = None,
        source: Source = HERE,
        artefacts: Sequence[bytes] = (),
        parent: str | None = None,
    ) -> None:
        """Write one event in a node of its own, which becomes the newest of its flow.

        Args:
            flow: whose event it is.
            node: name of node and event.
            fact: what happened.
            at_ns: when; now if absent.
            source: where its bytes lie.
            artefacts: the bytes that it points at.
            parent: the node it hangs off; the flow's newest if absent.
        """
        above = parent or flow.last_node or flow.parent
        event = self._event(node, node, above, flow, fact, at_ns=at_ns, source=source)
        flow.last_node = node
        self._sink.put((event,), artefacts)

    def add_to(
        self,
        flow: Flow,
        node: str,
        facts: Sequence[Fact],
        *,
        at_ns: int,
        source: Source,
        artefact: bytes,
    ) -> None:
        """Write further events into a node that is there: `NODE/2` and on."""
        events = [
            self._event(f"{node}/{number}", node, None, flow, fact, at_ns=at_ns, source=source)
            for number, fact in enumerate(facts, start=2)
        ]
        self._sink.put(events, (artefact,) if artefact else ())

    def add_custom(
        self,
        flow: Flow,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        flags: tuple[str, ...] = (),
    ) -> None:
        """Write an event of a kind of ours that is no core kind."""
        payload = Custom(name=name, data=raw_of(dict(fields)))
        self.add(flow, self.next("c"), Fact(Kind.CUSTOM, payload, call_id, flags=flags))

    def _event(
        self,
        event_id: str,
        node: str,
        parent: str | None,
        flow: Flow | None,
        fact: Fact,
        *,
        at_ns: int | None = None,
        source: Source = HERE,
    ) -> Event:
        payload = dump_payload(fact.payload)  # may refuse; the seq is then still free
        event = Event(
            id=event_id,
            session_id=self._session_id,
            seq=self._seq,
            kind=fact.kind,
            node_id=node,
            source=source,
            payload=payload,
            parent_id=parent,
            ts_ns=self.now_ns() if at_ns is None else at_ns,
            # A server may send an id that UTF-8 cannot carry; it must not end the recording.
            call_id=None if fact.call_id is None else canonical.safe_text(fact.call_id),
            group=fact.group,
            flags=fact.flags,
            **({} if flow is None else {"actor": flow.name}),
        )
        self._seq += 1
        return event
