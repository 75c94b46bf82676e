"""Writes what stood at an event, and before it on its path, as short texts for a report.

Knows payloads. Must not know policies. Texts are verbatim and not redacted yet, and long ones are
cut far above what a report shows, so that redaction sees whole secrets.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from msgspec import UnsetType

from redrive import canonical
from redrive.audit.arguments import arguments_of, arguments_text
from redrive.audit.deeds import told_of
from redrive.audit.tools import Category, judge_tool
from redrive.record.event import Event, Kind, ToolCall, ToolResult, payload_of, raw_value
from redrive.record.session import FLAG_META, EventReader
from redrive.replay.folding import FoldPlan

N_BEFORE = 5
_CHARS = 4000
_MAX_LOOKED = 40
_SHOWN = frozenset(
    {
        Kind.USER_MESSAGE,
        Kind.MODEL_RESPONSE,
        Kind.TOOL_CALL,
        Kind.TOOL_RESULT,
        Kind.TOOL_PERMISSION,
        Kind.POLICY_ACTION,
        Kind.CUSTOM,
    }
)


def text_of(event: Event) -> str:
    """Write an event as one text: the command, the arguments, what was said."""
    payload = payload_of(event)
    match payload:
        case ToolCall():
            return _call(payload)[:_CHARS]
        case ToolResult():
            return f"{payload.status}: {_value(payload.result)}"[:_CHARS]
        case _:
            pass
    for name in ("text", "data", "decision", "action", "status", "value", "message"):
        value = getattr(payload, name, None)
        if value not in (None, "") and not isinstance(value, UnsetType):
            shown = value if isinstance(value, str) else _value(value)
            return shown[:_CHARS]
    return ""


def _call(call: ToolCall) -> str:
    rule = judge_tool(call.tool, {}).rule
    if rule.category is Category.COMMAND:
        return told_of(call, rule)
    return arguments_text(call) or ""


def _value(value: Any) -> str:
    if isinstance(value, UnsetType):
        return ""
    decoded = raw_value(value) if not isinstance(value, int | float) else value
    return decoded if isinstance(decoded, str) else canonical.encode(decoded).decode()


def label_of(event: Event) -> str:
    """Name an event's kind for a line: `Bash`, `result`, `user`, `answer`, `custom NAME`."""
    match event.kind:
        case Kind.TOOL_CALL:
            return str(payload_of(event).tool)
        case Kind.CUSTOM:
            return str(payload_of(event).name)
        case Kind.MODEL_RESPONSE:
            return "answer"
        case Kind.USER_MESSAGE:
            return "user"
        case _:
            return event.kind.value.rpartition(".")[2]


def lines_before(plan: FoldPlan, stage: int, seq: int, reader: EventReader) -> tuple[str, ...]:
    """Write up to five events before one on its path that say something, oldest first.

    Empty answers and polls of a running command are passed over; at most 40 events are looked at.
    """
    found: list[str] = []
    for number in islice(_back(plan, stage, seq), _MAX_LOOKED):
        for event in reader.read_events((number,)):
            text = text_of(event)
            if text.strip() and not _is_poll(event):
                found.append(f"{label_of(event)}: {text}")
        if len(found) == N_BEFORE:
            break
    return tuple(reversed(found))


def asked_before(plan: FoldPlan, stage: int, seq: int, reader: EventReader) -> str:
    """Give what a person said last before an event, on its path; empty where nobody did."""
    index = plan.places.index
    for number in _back(plan, stage, seq):
        if index.kind(number) is Kind.USER_MESSAGE:
            event = next(iter(reader.read_events((number,))))
            if FLAG_META not in event.flags:
                return text_of(event)
    return ""


def _is_poll(event: Event) -> bool:
    """Say whether a call only asks a running command for more."""
    if event.kind is not Kind.TOOL_CALL:
        return False
    call = payload_of(event)
    reads_if = judge_tool(call.tool, {}).rule.reads_if
    return reads_if is not None and (arguments_of(call).get(reads_if[0]) or "") in reads_if[1]


def _back(plan: FoldPlan, stage: int, seq: int) -> Iterator[int]:
    """Yield the seqs of shown kinds before an event, nearest first."""
    index = plan.places.index
    here: Sequence[int] = plan.stages[stage] if stage >= 0 else ()
    inside = list(here[: here.index(seq)]) if seq in here else []
    while True:
        yield from (s for s in reversed(inside) if index.kind(s) in _SHOWN)
        if stage < 0 or plan.parents[stage] < 0:
            return
        stage = plan.parents[stage]
        inside = list(plan.stages[stage])
