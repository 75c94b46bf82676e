"""P5 and P6: how fast recorded tool answers are indexed and served.

Goals: P5 one serving at most 3.0 × (canonicalise its arguments + decode its result), and at most
1.6 × slower per call in a session of 100,000 events than in one of 2,000; P6 building the evidence
at most 3.2 × the full decode of the same events. Floors are run in the same rounds, in CPU time.
"""

import random
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from benchmarks.paired import Figure, measure
from redrive import canonical
from redrive.record.event import (
    Event,
    Kind,
    ModelResponse,
    Source,
    ToolCall,
    ToolResult,
    dump_payload,
    payload_of,
    raw_of,
)
from redrive.record.evidence import ToolEvidenceStore, build_evidence, open_evidence
from redrive.record.pairing import pair_path
from redrive.record.session import MemoryReader, build_index
from redrive.record.signature import argument_digests
from redrive.record.trajectory import Trajectory, build_trajectory

LARGE, SMALL = 100_000, 2_000
EVENTS_PER_DECISION = 3
_RESULT_CHARS = 420


def make_events(n_events: int) -> list[Event]:
    """Make a session of decisions with one call and one result of about 500 bytes each."""
    dice = random.Random(3)
    events: list[Event] = []
    parent: str | None = None
    for number in range(n_events // EVENTS_PER_DECISION):
        shown = number if dice.random() > 0.1 else dice.randrange(number + 1)
        arguments = {
            "path": f"src/module_{shown}.py",
            "limit": shown % 200,
            "flags": {"recursive": True, "depth": 3},
        }
        call = ToolCall(tool=f"tool_{shown % 20}", arguments=raw_of(arguments))
        answer = {"lines": "x y" * (_RESULT_CHARS // 3), "count": shown, "ok": True}
        node, call_id = f"n{number}", f"c{number}"
        parts = (
            (Kind.MODEL_RESPONSE, ModelResponse(), node, parent, None),
            (Kind.TOOL_CALL, call, node, parent, call_id),
            (Kind.TOOL_RESULT, ToolResult(result=raw_of(answer)), f"r{number}", node, call_id),
        )
        for kind, payload, own, above, key in parts:
            events.append(
                Event(
                    id=f"{own}/{kind}",
                    session_id="bench",
                    seq=len(events),
                    kind=kind,
                    node_id=own,
                    source=Source("", 0, 0),
                    payload=dump_payload(payload),
                    parent_id=above,
                    call_id=key,
                )
            )
        parent = f"r{number}"
    return events


_decode_any = msgspec.json.Decoder().decode
_decode_event = msgspec.json.Decoder(Event).decode


class LineReader:
    """Decodes stored lines as they are asked for; keeps nothing."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs."""
        lines = self.lines
        return (_decode_event(lines[seq]) for seq in seqs)


class Session:
    """One session in memory, with its evidence and the calls that a replay makes again."""

    def __init__(self, n_events: int) -> None:
        self.events = make_events(n_events)
        self.lines = [msgspec.json.encode(event) for event in self.events]
        self.reader = MemoryReader(self.events)
        index = build_index("bench", lambda: self.events)
        self.trajectory: Trajectory = build_trajectory(index)
        self.pairing = pair_path(index, self.trajectory, self.reader)
        self.store: ToolEvidenceStore = self.build()
        self.calls: list[tuple[str, Raw]] = []
        self.results: list[Event] = []
        for cell in self.store.cells:
            call: ToolCall = payload_of(self.events[cell.call])
            assert isinstance(call.arguments, Raw)
            assert cell.result is not None
            self.calls.append((call.tool, call.arguments.copy()))
            self.results.append(self.events[cell.result])

    def build(self) -> ToolEvidenceStore:
        """Build the evidence from stored lines, its look-up included."""
        store = build_evidence(self.trajectory, self.pairing, LineReader(self.lines))
        assert store.keys
        return store

    def serve(self) -> None:
        """Serve every call once, in order."""
        store, used = self.store, dict[int, int]()
        for tool, arguments in self.calls:
            digests = argument_digests(arguments, None)
            numbers = store.find_cells(tool, digests.value)
            place = used.get(numbers[0], 0)
            used[numbers[0]] = place + 1
            cell = store.cells[numbers[place]]
            assert cell.result is not None
            open_evidence(cell, next(self.reader.read_events((cell.result,))))

    def serve_floor(self) -> None:
        """Canonicalise every call's arguments and decode every result's value."""
        for (_, arguments), event in zip(self.calls, self.results, strict=True):
            canonical.canonical(canonical.decode_value(bytes(arguments)))
            canonical.decode_value(bytes(event.payload))

    def decode(self) -> None:
        """Decode the stored line of every call and result, untyped."""
        for event, line in zip(self.events, self.lines, strict=True):
            if event.kind is not Kind.MODEL_RESPONSE:
                _decode_any(line)


def measure_serving(large: Session, small: Session) -> tuple[Figure, Figure]:
    """P5: against the floor, and per call against a short session."""
    serving = measure(
        "P5",
        "serve a call / (canonicalise its arguments + decode its result)",
        large.serve,
        large.serve_floor,
        goal=3.0,
        floor_bytes=sum(
            len(bytes(arguments)) + len(bytes(event.payload))
            for (_, arguments), event in zip(large.calls, large.results, strict=True)
        ),
    )
    repeats = len(large.calls) // len(small.calls)

    def serve_small() -> None:
        for _ in range(repeats):
            small.serve()

    name = f"serve a call, in {len(large.events)} events / in {len(small.events)} events"
    scaling = measure("P5", name, large.serve, serve_small, goal=1.6)
    return serving, scaling


def measure_building(large: Session) -> Figure:
    """P6: building the evidence."""
    return measure(
        "P6",
        "build the evidence / untyped decode of the same events",
        large.build,
        large.decode,
        goal=3.2,
        floor_bytes=sum(
            len(line)
            for event, line in zip(large.events, large.lines, strict=True)
            if event.kind is not Kind.MODEL_RESPONSE
        ),
    )


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure P5 and P6."""
    large, small = Session(LARGE // 5 if is_quick else LARGE), Session(SMALL)
    yield from measure_serving(large, small)
    yield measure_building(large)
