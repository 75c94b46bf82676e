"""Small sessions for policies, and replays of them in this process: no worker, no seal.

A session is written as interchange lines, or event by event where that format has no such thing.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Raw

from redrive.app.policy_judging import LivePolicy, NoNets
from redrive.app.policy_messages import PolicyOutcome
from redrive.app.policy_recording import Recording, held_recording
from redrive.app.policy_session import SessionReplay
from redrive.importers.claude_code import IMPORTER as CLAUDE_CODE
from redrive.importers.interchange import IMPORTER
from redrive.policy import Policy
from redrive.record.event import Event, Kind, Payload, Source, dump_payload
from redrive.record.session import MemoryReader, build_index
from redrive.replay.policy import read_spec
from redrive.replay.policy_event import view
from tests.helpers import events_from

Line = dict[str, Any]
SESSION = "test:s"
NS = 10**9


def make_event(seq: int, kind: Kind, payload: Payload, **fields: Any) -> Event:
    """Make the event `e{seq}` in the node `n{seq}`; `fields` say otherwise."""
    facts: dict[str, Any] = {"id": f"e{seq}", "node_id": f"n{seq}"} | fields
    source = Source("", 0, 0)
    return Event(
        session_id=SESSION,
        seq=seq,
        kind=kind,
        source=source,
        payload=dump_payload(payload),
        **facts,
    )


def line_of(parts: Iterable[tuple[Kind, Payload] | tuple[Kind, Payload, dict[str, Any]]]) -> Any:
    """Make a session that is one path: each event hangs off the one before it."""
    events: list[Event] = []
    for seq, (kind, payload, *rest) in enumerate(parts):
        fields = {"parent_id": f"n{seq - 1}" if seq else None, "ts_ns": seq * NS}
        events.append(make_event(seq, kind, payload, **(fields | (rest[0] if rest else {}))))
    return events


def live(policy: type[Policy] | Callable[[], Policy]) -> LivePolicy:
    """Load a policy as a worker does, without the nets."""
    return LivePolicy(lambda: policy, read_spec(policy()), _place, NoNets())


def _place(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_name}:{trace.tb_lineno}"


def refuse(policy: int, kind: str, name: str, event: object, state: object) -> Raw | str:
    """Answer as strict mode does."""
    return f"strict mode, and no recorded inference {name}"


def planned(session_id: str, events: Sequence[Event]) -> Recording:
    """Give a session that is not held, so that it is planned in full."""
    return Recording(
        session_id, lambda: build_index(session_id, lambda: events), MemoryReader(events)
    )


def held_session(session_id: str, events: Sequence[Event]) -> Recording:
    """Give a session whose events are held: a common shape is judged in one pass."""
    return held_recording(session_id, [view(event) for event in events])


def replay(
    events: Sequence[Event],
    *policies: type[Policy] | Callable[[], Policy],
    ask: Any = refuse,
    is_planned: bool = False,
    **options: Any,
) -> tuple[PolicyOutcome, ...]:
    """Replay events through policies; `is_planned`: not in one pass, whatever their shape."""
    session_id = events[0].session_id if events else SESSION
    session = SessionReplay(
        (planned if is_planned else held_session)(session_id, events),
        [live(policy) for policy in policies],
        ask=ask,
        status=[0],
        dropped=options.pop("dropped", {}),
        recheck_all=options.pop("recheck_all", False),
    )
    return session.run(**options)


def replay_one(events: Sequence[Event], policy: Any, **options: Any) -> PolicyOutcome:
    """Replay events through one policy."""
    (outcome,) = replay(events, policy, **options)
    return outcome


def fired(outcome: PolicyOutcome, *, on_head: bool | None = None) -> list[str]:
    """Name the events of the fires that no budget holds back."""
    return _names(outcome, is_held=False, on_head=on_head)


def held(outcome: PolicyOutcome, *, on_head: bool | None = None) -> list[str]:
    """Name the events of the suppressed matches."""
    return _names(outcome, is_held=True, on_head=on_head)


def _names(outcome: PolicyOutcome, *, is_held: bool, on_head: bool | None) -> list[str]:
    return [
        fire.event_ref.rpartition("#")[2]
        for fire in outcome.fires
        if fire.cooldown_suppressed == is_held and on_head in (None, fire.on_head_path)
    ]


# --- interchange lines


def written(*lines: Line, cwd: str | None = None) -> list[Event]:
    """Project interchange lines: each hangs off the one before it, a minute later, by default."""
    started = {"type": "session", "id": "s", "task": "go"} | ({"cwd": cwd} if cwd else {})
    placed, above = [started], None
    for number, line in enumerate(lines, start=1):
        name = f"l{number}"
        ts = f"2026-03-02T{9 + number // 60:02}:{number % 60:02}:00Z"
        placed.append({"id": name, "parent": above, "ts": ts} | line)
        above = placed[-1]["id"]
    data = "".join(json.dumps(line) + "\n" for line in placed).encode()
    return events_from(IMPORTER, "session.jsonl", data)


def user(text: str = "do it", **fields: Any) -> Line:
    """A user message."""
    return {"type": "event", "kind": "user", "text": text} | fields


def said(text: str = "done", **fields: Any) -> Line:
    """A decision without calls."""
    return {"type": "decision", "output": {"text": text, "tool_calls": []}} | fields


def calls(*made: tuple[str, str, Any], **fields: Any) -> Line:
    """A decision; `made` are (call id, tool, arguments)."""
    listed = [{"call_id": c, "name": tool, "args": args} for c, tool, args in made]
    return {"type": "decision", "output": {"text": "", "tool_calls": listed}} | fields


def answer(call_id: str, value: Any = "ok", **fields: Any) -> Line:
    """A result."""
    return {"type": "tool_result", "call_id": call_id, "status": "ok", "result": value} | fields


def ran(call_id: str, command: str, output: Any = "ok", **fields: Any) -> tuple[Line, Line]:
    """A shell command and its result."""
    return calls((call_id, "Bash", {"command": command})), answer(call_id, output, **fields)


def edited(call_id: str, path: str, **fields: Any) -> tuple[Line, Line]:
    """An edit and its result."""
    return calls((call_id, "Edit", {"file_path": path})), answer(call_id, **fields)


def interchange(path: Path) -> list[Event]:
    """Project a file of interchange lines."""
    return events_from(IMPORTER, path)


def claude(path: Path) -> list[Event]:
    """Project a Claude Code session."""
    return events_from(CLAUDE_CODE, path)
