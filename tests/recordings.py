"""Small recorded sessions, written as interchange lines, and replays of them from a script."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from redrive.audit.closure import try_close
from redrive.compare.divergence import MAX_DIFFERENCES, compare_run
from redrive.compare.document import (
    JudgedRun,
    Request,
    ShadowDocument,
    describe_open,
    describe_run,
)
from redrive.compare.verdict import find_outcome, judge_open_run, judge_run
from redrive.importers.interchange import IMPORTER
from redrive.models.script import parse_script
from redrive.record.event import Event, Kind, payload_of
from redrive.record.session import MemoryReader, SessionIndex
from redrive.record.trajectory import Trajectory, build_trajectory
from redrive.replay.exchange import AskModel, ShadowOptions, ShadowRun
from redrive.replay.ports import ModelReply, Override
from redrive.replay.recorded import RecordedRun, read_run
from redrive.replay.run import drive, reply_from
from tests.helpers import events_from, index_of

Line = dict[str, Any]
MODEL = {"requested": "m", "served": "m-1", "fingerprint": "fp"}


def call(name: str, args: Any = None, call_id: str | None = None, **fields: Any) -> Line:
    """A tool call; `args` absent means that none were recorded."""
    line = {"name": name, **fields}
    if args is not None:
        line["args"] = args
    if call_id is not None:
        line["call_id"] = call_id
    return line


def decide(*calls: Line, text: str = "", model: Line | None = None, **fields: Any) -> Line:
    """A decision line without its place."""
    return {
        "type": "decision",
        "model": MODEL if model is None else model,
        "sampling": {"temperature": 0, "seed": 7},
        "context": "[]",
        "output": {"text": text, "tool_calls": list(calls)},
        **fields,
    }


def result(call_id: str, value: Any = None, *, name: str = "t", **fields: Any) -> Line:
    """A result line without its place."""
    line = {"type": "tool_result", "call_id": call_id, "name": name, "status": "ok"}
    return {**line, "result": value, **fields}


def user(text: str) -> Line:
    """A user message."""
    return {"type": "event", "kind": "user", "text": text}


def end(status: str = "success") -> Line:
    """The end of the run."""
    return {"type": "end", "status": status}


class Recording(msgspec.Struct, frozen=True):
    """One recorded session in memory, and what a replay needs of it."""

    events: list[Event]
    index: SessionIndex
    trajectory: Trajectory
    reader: MemoryReader

    def run(self, *, mode: str = "tool_calls", until: int | None = None) -> RecordedRun:
        """Read the path, or its first `until` decisions."""
        if until is None:
            return read_run(self.index, self.trajectory, self.reader, mode=mode)
        cut = self.trajectory.prefix(until)
        return read_run(self.index, cut, self.reader, mode=mode)


def record(*lines: Line, **session: Any) -> Recording:
    """Record lines in a chain, under a session line."""
    chain: list[Line] = [{"type": "session", "id": "s", "task": "t", **session}]
    parent = None
    for number, line in enumerate(lines, start=1):
        place = {"id": f"e{number}", "parent": parent, "ts": f"2026-01-01T00:00:{number:02}Z"}
        chain.append({**place, **line})
        parent = chain[-1]["id"]
    return load("s.jsonl", "\n".join(json.dumps(line) for line in chain).encode())


def load(path: Path | str, data: bytes | None = None) -> Recording:
    """Load an interchange file."""
    events = events_from(IMPORTER, path, data)
    index = index_of(events)
    return Recording(events, index, build_trajectory(index), MemoryReader(events))


def script(lines: Iterable[Line] | Path) -> list[ModelReply]:
    """Parse a script: a file, or its lines."""
    if isinstance(lines, Path):
        return list(parse_script(lines.read_bytes(), lines.name).replies)
    data = "\n".join(json.dumps(line) for line in lines).encode()
    return list(parse_script(data, "script").replies)


def answering(replies: Sequence[ModelReply]) -> Callable[[AskModel], ModelReply]:
    """Answer from a list, in order."""
    left = iter(replies)
    return lambda _: next(left)


def replay(
    recording: Recording,
    replies: Iterable[Line] | Path | list[ModelReply],
    *,
    mode: str = "tool_calls",
    until: int | None = None,
    **options: Any,
) -> ShadowRun:
    """Replay a recording from a script."""
    made = replies if _is_made(replies) else script(replies)
    recorded = recording.run(mode=mode, until=until)
    replier = reply_from(recording.reader, answering(made))
    return drive(recorded, replier, ShadowOptions(**options))


def _is_made(replies: Any) -> bool:
    return isinstance(replies, list) and bool(replies) and isinstance(replies[0], ModelReply)


def shadow(
    recording: Recording,
    replies: Iterable[Line] | Path | list[ModelReply],
    *,
    mode: str = "tool_calls",
    stated: str | None = None,
    overrides: tuple[Override, ...] = (),
    max_differences: int = MAX_DIFFERENCES,
    is_reconstruction: bool = False,
    **options: Any,
) -> ShadowDocument:
    """Audit, replay, compare, judge: the whole document, as the verb makes it."""
    index, trajectory, reader = recording.index, recording.trajectory, recording.reader
    started = next(
        (payload_of(e) for e in recording.events if e.kind is Kind.SESSION_STARTED), None
    )
    report, closed = try_close(index, trajectory, reader, session_started=started, renderers={})
    outcome = find_outcome(index, trajectory, reader, stated)
    asked = Request("script:x", overrides=overrides)
    if closed is None and not is_reconstruction:
        return describe_open(asked, report, outcome)
    recorded = recording.run(mode=mode)
    run = replay(recording, replies, mode=mode, **options)
    compared = compare_run(recorded, run, trajectory, reader, max_differences)
    if closed is None:
        verdict = judge_open_run(recorded, run, compared, outcome, overrides)
        asked = msgspec.structs.replace(asked, mode="reconstruction")
    else:
        verdict = judge_run(closed, recorded, run, compared, outcome, overrides)
    return describe_run(asked, report, outcome, recorded, JudgedRun(run, compared, verdict))
