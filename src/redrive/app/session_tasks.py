"""Finds what a recorded session was asked: the input of a task.

Knows a session's first record and the messages of its head path. Must not know its format, nor
anything that came after: a task is run anew, and nothing of the recorded run is pushed through it.

Source: DESIGN.md §6 "Re-running the task input".
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.app.opening import OpenedSession, open_session
from redrive.audit.redaction import find_mark
from redrive.errors import UsageError
from redrive.record.event import FLAG_UNREPRESENTABLE, Event, UserMessage, payload_of
from redrive.record.opening import is_asking
from redrive.record.trajectory import Trajectory
from redrive.stores.port import Store

STATED = "stated task"
FIRST_MESSAGE = "first user message of the head path"
HINT = "name another session, or write the task into a JSONL file"


class SessionTask(msgspec.Struct, frozen=True):
    """What a session was asked.

    Attributes:
        session_id: the revision that was read, as its full id.
        input: the task as text, or the parts of a message that is no plain text.
        origin: `STATED` or `FIRST_MESSAGE`.
        environment: as recorded, a JSON object.
    """

    session_id: str
    input: Any
    origin: str
    environment: Raw | UnsetType = UNSET


def read_session_task(store: Store, name: str) -> SessionTask:
    """Read the task of one stored session.

    Args:
        store: where it lies.
        name: its id, a revision or a unique prefix.

    Raises:
        UsageError: the name means none or several; nothing in it says what was asked, or what was
            asked is redacted or not kept exactly.
    """
    return task_of(open_session(store, name))


def task_of(session: OpenedSession) -> SessionTask:
    """Read the task of an opened session; raises as `read_session_task` does for what it holds."""
    session_id = session.row.session_id
    environment = _environment(session)
    started = session.started
    if started is not None and started.task is not None and started.task.strip():
        masked = any(entry.path.split(".")[0] in ("task", "") for entry in started.redactions)
        _hold_whole(session_id, started.task, is_masked=masked)
        return SessionTask(session_id, started.task, STATED, environment)
    value = _first_message(session)
    return SessionTask(session_id, value, FIRST_MESSAGE, environment)


def _first_message(session: OpenedSession) -> Any:
    """Give the first message of the head path that asks for something."""
    session_id = session.row.session_id
    trajectory = session.trajectory()
    if trajectory.breaks is not None:
        why = f"its beginning is not recorded ({trajectory.breaks.what})"
        raise UsageError(f"{session_id}: what was asked is missing: {why}", hint=HINT)
    event = next(filter(is_asking, session.reader.read_events(_message_seqs(trajectory))), None)
    if event is None:
        message = f"{session_id}: what was asked is missing: no stated task and no user message"
        raise UsageError(message, hint=HINT)
    return _content(session_id, event)


def _content(session_id: str, event: Event) -> Any:
    message: UserMessage = payload_of(event)
    if isinstance(message.content, Raw):
        data = bytes(message.content)
        _hold_whole(session_id, data.decode(), is_masked=bool(message.redactions))
        decoded = canonical.decode(data)
        if not decoded.is_exact or FLAG_UNREPRESENTABLE in event.flags:
            raise UsageError(f"{session_id}: its task holds a number with no exact JSON form")
        return decoded.value
    _hold_whole(session_id, message.text, is_masked=bool(message.redactions))
    if not message.text.strip():
        raise UsageError(f"{session_id}: its first user message is empty", hint=HINT)
    return message.text


def _message_seqs(trajectory: Trajectory) -> Iterable[int]:
    """Give what may hold a message, along the path."""
    before = (seq for step in trajectory.steps for seq in step.before)
    return (*trajectory.opening, *before, *trajectory.after)


def _hold_whole(session_id: str, text: str, *, is_masked: bool) -> None:
    mark = find_mark(text)
    if mark is not None or is_masked:
        shown = "" if mark is None else f": {mark}"
        raise UsageError(f"{session_id}: its task is redacted{shown}", hint=HINT)


def _environment(session: OpenedSession) -> Raw | UnsetType:
    if session.started is None or not isinstance(session.started.environment, Raw):
        return UNSET
    value = canonical.decode_value(bytes(session.started.environment))
    return Raw(canonical.canonical(value)) if isinstance(value, dict) else UNSET
