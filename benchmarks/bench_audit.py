"""P9: the closure audit against a typed decode of the same events, and its cost per step by length.

Floor: each stored line decoded to an `Event`, and its payload to the struct of its kind. The audit
reads through a reader that decodes the same lines, so it pays for the decode too.

Run: python -m benchmarks.bench_audit [STEPS]
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from redrive.audit.closure import audit
from redrive.record.event import (
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Payload,
    Sampling,
    SessionStarted,
    Source,
    ToolCall,
    ToolResult,
    dump_payload,
    payload_of,
    raw_of,
)
from redrive.record.session import build_index
from redrive.record.trajectory import build_trajectory

ROUNDS = 5
GOAL_FLOOR, GOAL_LENGTH = 1.9, 1.25
_decode_event = msgspec.json.Decoder(Event).decode
_FILLER = "the quick brown fox jumps over the lazy dog; " * 9
VOUCHED = SessionStarted(
    task="bench", basis="vouched", captures={"clock": "captured", "prng": "captured"}
)


class LineReader:
    """Decodes stored lines as they are asked for; keeps nothing."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        lines = self.lines
        return (_decode_event(lines[seq]) for seq in seqs)


def make_lines(n_steps: int) -> list[bytes]:
    """Write n closed steps: request (about 560 bytes), answer, call and result."""
    lines: list[bytes] = []
    parent = None
    for step in range(1, n_steps + 1):
        node, call_id = f"n{step}", f"c{step}"
        context = f'[{{"role": "user", "content": "step {step}: {_FILLER}"}}]'
        sampling = Sampling(temperature=0.0, top_p=1.0, seed=7)
        request = ModelRequest(model="m-1", context=context, sampling=sampling, step=step)
        answer = ModelResponse(text=f"answer {step}", model="m-1", fingerprint="fp", step=step)
        call = ToolCall("get_state", arguments=raw_of({"id": step, "verbose": True}))
        result = ToolResult(result=raw_of(f"state {step}: {_FILLER}"), tool="get_state")
        parts: list[tuple[Kind, Payload, str, str | None, str | None]] = [
            (Kind.MODEL_REQUEST, request, node, parent, None),
            (Kind.MODEL_RESPONSE, answer, node, parent, None),
            (Kind.TOOL_CALL, call, node, parent, call_id),
            (Kind.TOOL_RESULT, result, f"r{step}", node, call_id),
        ]
        parent = f"r{step}"
        for kind, payload, own, above, pair in parts:
            seq = len(lines)
            event = Event(
                id=f"e{seq}",
                session_id="bench:1",
                seq=seq,
                kind=kind,
                node_id=own,
                source=Source("a" * 64, seq * 600, 600),
                payload=dump_payload(payload),
                parent_id=above,
                ts_ns=1_700_000_000_000_000_000 + seq,
                call_id=pair,
            )
            lines.append(msgspec.json.encode(event))
    return lines


def cpu_s(work: Callable[[], object]) -> float:
    """Measure the CPU time of one run, in seconds."""
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


class Audited:
    """One generated session, ready to be audited."""

    def __init__(self, n_steps: int) -> None:
        self.n_steps = n_steps
        self.lines = make_lines(n_steps)
        self.index = build_index("bench:1", lambda: map(_decode_event, self.lines))
        self.trajectory = build_trajectory(self.index)

    def floor(self) -> None:
        """Decode every event and payload, and keep none."""
        for line in self.lines:
            payload_of(_decode_event(line))

    def audit(self) -> None:
        """Audit it, and hold that it is closed."""
        report = audit(
            self.index,
            self.trajectory,
            LineReader(self.lines),
            session_started=VOUCHED,
            renderers={},
        )
        assert report.closed_until == self.n_steps


def main(n_steps: int = 100_000) -> None:
    """Print the ratio to the floor and the cost per step against a short session."""
    long, short = Audited(n_steps), Audited(1_000)
    megabytes = sum(map(len, long.lines)) / 1e6
    ratios, floors, per_step = [], [], []
    for _ in range(ROUNDS):
        floor_s, audit_s = cpu_s(long.floor), cpu_s(long.audit)
        short_s = statistics.median(cpu_s(short.audit) for _ in range(5))
        floors.append(floor_s)
        ratios.append(audit_s / floor_s)
        per_step.append((audit_s / n_steps) / (short_s / 1_000))
    floor_s = statistics.median(floors)
    print(f"P9 floor, typed decode of {len(long.lines)} events: {megabytes / floor_s:.0f} MB/s")
    print(f"P9 audit / typed decode: {statistics.median(ratios):.2f} (goal {GOAL_FLOOR})")
    print(
        f"P9 per step, {n_steps} against 1000:"
        f" {statistics.median(per_step):.2f} (goal {GOAL_LENGTH})"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
