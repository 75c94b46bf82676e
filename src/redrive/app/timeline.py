"""Tells a session event by event, in the order in which it happened, over all actors and paths.

Knows which events matter to a reader. Must not know how a line is shown. Holds a batch of entries
and one payload at a time.
"""

from collections.abc import Callable, Iterator
from typing import Any

from redrive.app.effects import CONFLICTING, NO_RESULT
from redrive.app.survey import Survey, time_of
from redrive.audit.arguments import arguments_text
from redrive.record.event import (
    FLAG_INHERITED,
    ContextReplaced,
    Custom,
    Damage,
    Event,
    Kind,
    ModelError,
    ModelResponse,
    PolicyAction,
    SessionEnded,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    payload_of,
)
from redrive.record.pairing import Pairing
from redrive.record.session import FLAG_META, KINDS, NO_NODE
from redrive.reports.counts import counted
from redrive.reports.views import TimelineEntry

_WHAT_CHARS = 300
# Flows that run at the same time lie far apart in the store: events are read in stored order, a
# batch at a time, and told in order of time.
_BATCH = 1024


def timeline_of(
    session: Survey, pairing: Pairing, *, actor: str | None = None
) -> Iterator[TimelineEntry]:
    """Yield what happened, in (`ts`, `seq`) order.

    Args:
        session: the session.
        pairing: its calls and results; a call tells how it ended, so only a result that answers no
            call has an entry of its own.
        actor: whose events to tell; everybody's if absent.
    """
    index = session.index
    orphans = set(pairing.orphans)
    number = None if actor is None else index.actor_number(actor)
    seqs = (
        seq
        for seq, code in enumerate(index.kinds)
        if index.is_live[seq]
        and (KINDS[code] in _TELLERS or seq in orphans)
        and (number is None or _actor_number(session, seq) == number)
    )
    order = session.chronological(seqs)
    for start in range(0, len(order), _BATCH):
        batch = order[start : start + _BATCH]
        told = {}
        for event in session.reader.read_events(sorted(batch)):
            what = _tell(event)
            if what is not None:
                told[event.seq] = _entry(session, event, what, _status(session, pairing, event))
        yield from (told[seq] for seq in batch if seq in told)


def _actor_number(session: Survey, seq: int) -> int:
    node = session.index.event_node[seq]
    return -1 if node == NO_NODE else session.index.node_actor[node]


def _entry(session: Survey, event: Event, what: str, status: str | None) -> TimelineEntry:
    is_long = len(what) > _WHAT_CHARS
    return TimelineEntry(
        seq=event.seq,
        actor=event.actor,
        kind=event.kind.value,
        what=what[:_WHAT_CHARS] + "…" if is_long else what,
        ts=time_of(event),
        step=session.places.step_of(event.seq),
        node_id=session.places.node_id(event.seq),
        status=status,
        discarded=not session.places.is_live(event.seq),
        inherited=FLAG_INHERITED in event.flags,
    )


def _status(session: Survey, pairing: Pairing, event: Event) -> str | None:
    if event.kind is Kind.TOOL_RESULT:
        return "answers no call"
    if event.kind is not Kind.TOOL_CALL:
        return None
    answer = pairing.answers.get(event.seq)
    if answer is None:
        return CONFLICTING if event.seq in pairing.conflicts else NO_RESULT
    result: ToolResult = session.payload(answer)
    code = result.exit_code
    return result.status if code is None else f"{result.status}, exit {code}"


def _tell(event: Event) -> str | None:
    """Say what an event is in a few words; `None` where it is nothing for a reader."""
    if event.kind is Kind.USER_MESSAGE and FLAG_META in event.flags:
        return None
    payload = payload_of(event)
    return _TELLERS.get(event.kind, _tell_result)(payload)


def _tell_user(message: UserMessage) -> str | None:
    return message.text.strip() or "(no text)"


def _tell_response(response: ModelResponse) -> str | None:
    if response.text.strip():
        return response.text.strip()
    return f"(thinking) {response.reasoning.strip()}" if response.reasoning else None


def _tell_call(call: ToolCall) -> str | None:
    return f"{call.tool} {arguments_text(call) or ''}".strip()


def _tell_result(result: ToolResult) -> str | None:
    return f"result {result.tool or ''}".strip()


def _tell_permission(permission: ToolPermission) -> str | None:
    by = f" by {permission.by}" if permission.by else ""
    reason = f": {permission.reason}" if permission.reason else ""
    return f"{permission.decision}{by}{reason}"


def _tell_error(error: ModelError) -> str | None:
    parts = (
        "" if error.status is None else f"status {error.status}",
        "" if error.attempt is None else f"attempt {error.attempt}",
        "" if error.delay_s is None else f"next in {error.delay_s} s",
        error.message or "",
    )
    return ", ".join(filter(None, parts)) or "(no details)"


def _tell_replaced(replaced: ContextReplaced) -> str | None:
    return f"context replaced ({replaced.trigger})" if replaced.trigger else "context replaced"


def _tell_action(action: PolicyAction) -> str | None:
    return f"{action.policy}: {action.action}"


def _tell_custom(custom: Custom) -> str | None:
    return custom.name


def _tell_damage(damage: Damage) -> str | None:
    return f"line {damage.line}, {counted(damage.bytes, 'byte')}: {damage.reason}"


def _tell_ended(ended: SessionEnded) -> str | None:
    return f"ended: {ended.status}" if ended.status else "ended"


_TELLERS: dict[Kind, Callable[[Any], str | None]] = {
    Kind.USER_MESSAGE: _tell_user,
    Kind.MODEL_RESPONSE: _tell_response,
    Kind.TOOL_CALL: _tell_call,
    Kind.TOOL_PERMISSION: _tell_permission,
    Kind.MODEL_ERROR: _tell_error,
    Kind.CONTEXT_REPLACED: _tell_replaced,
    Kind.POLICY_ACTION: _tell_action,
    Kind.CUSTOM: _tell_custom,
    Kind.DAMAGE: _tell_damage,
    Kind.SESSION_ENDED: _tell_ended,
}
