"""P9: the closure audit against a typed decode of the same events, and its cost per step by length.

Floor: each stored line decoded to an `Event`, and its payload to the struct of its kind. The audit
reads through a reader that decodes the same lines, so it pays for the decode too. Two shapes: steps
whose events are of about 500 bytes, and a conversation whose context grows by a message per step.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from benchmarks.paired import Figure, compare, cpu_seconds, measure
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

N_STEPS = 100_000
N_SHORT = 1_000
N_GROWING = 1_000
_FILLER = "the quick brown fox jumps over the lazy dog; " * 9
_SAMPLING = Sampling(temperature=0.0, top_p=1.0, seed=7)
_decode_event = msgspec.json.Decoder(Event).decode
VOUCHED = SessionStarted(
    task="bench", basis="vouched", captures={"clock": "captured", "prng": "captured"}
)


class LineReader:
    """Decodes stored lines as they are asked for; keeps nothing."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs, in the order asked."""
        lines = self.lines
        return (_decode_event(lines[seq]) for seq in seqs)


def flat_context(step: int) -> str:
    """Give a context of about 450 bytes that shares nothing with the one before."""
    return f'[{{"role": "user", "content": "step {step}: {_FILLER}"}}]'


def growing_context() -> Callable[[int], str]:
    """Give a context that grows by a message per step."""
    messages: list[str] = []

    def context(step: int) -> str:
        messages.append(f'{{"role": "tool", "content": "state {step}: {_FILLER[:200]}"}}')
        return "[" + ", ".join(messages) + "]"

    return context


def make_lines(n_steps: int, context_of: Callable[[int], str]) -> list[bytes]:
    """Write n closed steps: request, answer, call and result."""
    lines: list[bytes] = []
    parent = None
    for step in range(1, n_steps + 1):
        node, call_id = f"n{step}", f"c{step}"
        request = ModelRequest("m-1", context=context_of(step), sampling=_SAMPLING, step=step)
        answer = ModelResponse(text=f"answer {step}", model="m-1", fingerprint="fp", step=step)
        call = ToolCall("get_state", arguments=raw_of({"id": step, "verbose": True}))
        result = ToolResult(result=raw_of(f"state {step}: {_FILLER}"), tool="get_state")
        for kind, payload, own, above, pair in (
            (Kind.MODEL_REQUEST, request, node, parent, None),
            (Kind.MODEL_RESPONSE, answer, node, parent, None),
            (Kind.TOOL_CALL, call, node, parent, call_id),
            (Kind.TOOL_RESULT, result, f"r{step}", node, call_id),
        ):
            lines.append(_line(len(lines), kind, payload, own, above, pair))
        parent = f"r{step}"
    return lines


def _line(
    seq: int, kind: Kind, payload: Payload, node: str, parent: str | None, call_id: str | None
) -> bytes:
    return msgspec.json.encode(
        Event(
            id=f"e{seq}",
            session_id="bench:1",
            seq=seq,
            kind=kind,
            node_id=node,
            source=Source("a" * 64, seq * 600, 600),
            payload=dump_payload(payload),
            parent_id=parent,
            ts_ns=1_700_000_000_000_000_000 + seq,
            call_id=call_id,
        )
    )


class Recording:
    """One generated session, ready to be audited."""

    def __init__(self, n_steps: int, context_of: Callable[[int], str]) -> None:
        self.n_steps = n_steps
        self.lines = make_lines(n_steps, context_of)
        self.index = build_index("bench:1", lambda: map(_decode_event, self.lines))
        self.trajectory = build_trajectory(self.index)

    def decode(self) -> None:
        """Decode every event and payload, and keep none."""
        for line in self.lines:
            payload_of(_decode_event(line))

    def audit(self) -> None:
        """Audit it, and hold that it is closed."""
        reader = LineReader(self.lines)
        found = audit(self.index, self.trajectory, reader, session_started=VOUCHED, renderers={})
        assert found.closed_until == self.n_steps


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure P9."""
    n_steps = N_STEPS // 10 if is_quick else N_STEPS
    long, short = Recording(n_steps, flat_context), Recording(N_SHORT, flat_context)
    yield measure(
        "P9",
        f"closure audit / typed decode ({n_steps} steps, events of about 500 bytes)",
        long.audit,
        long.decode,
        goal=1.9,
        floor_bytes=sum(map(len, long.lines)),
    )
    yield compare(
        "P9",
        f"closure audit per step, {n_steps} steps / {N_SHORT} steps",
        lambda: cpu_seconds(long.audit) / long.n_steps,
        lambda: cpu_seconds(short.audit, 10) / short.n_steps,
        goal=1.25,
    )
    growing = Recording(N_GROWING, growing_context())
    yield measure(
        "P9",
        f"closure audit / typed decode ({N_GROWING} steps, growing context)",
        growing.audit,
        growing.decode,
        goal=1.9,
        floor_bytes=sum(map(len, growing.lines)),
    )
