"""What a session says of itself at its beginning: who ran where, and what was asked.

Knows the first events. Must not know the source format, nor how a session is listed.
"""

from collections.abc import Iterable

import msgspec

from redrive.record.event import (
    MAIN_ACTOR,
    Event,
    Kind,
    SessionStarted,
    UserMessage,
    payload_of,
)
from redrive.record.session import FLAG_META, EventReader, SessionIndex

# The first message stands at the beginning; a task is looked for no further.
_OPENING_EVENTS = 64
_TASK_CHARS = 200


class Opening(msgspec.Struct, frozen=True):
    """What a list shows of a session beside its counts; `task` is one line of at most 201 chars."""

    task: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    cwd: str | None = None
    git: str | None = None
    parent_session: str | None = None
    thread: str | None = None


def is_asking(event: Event) -> bool:
    """Say whether an event is what somebody asked.

    Instructions of a system, a developer or a harness are messages too, and ask for nothing.
    """
    if event.kind is not Kind.USER_MESSAGE or FLAG_META in event.flags:
        return False
    message: UserMessage = payload_of(event)
    return message.role == "user"


def find_started(index: SessionIndex, reader: EventReader) -> SessionStarted | None:
    """Find what a session says of itself; of several sources, the main flow's word comes first."""
    found: list[tuple[bool, SessionStarted]] = [
        (event.actor != MAIN_ACTOR, payload_of(event))
        for event in reader.read_events(index.seqs_of(Kind.SESSION_STARTED))
    ]
    return min(found, key=lambda pair: pair[0])[1] if found else None


def find_opening(index: SessionIndex, reader: EventReader) -> Opening:
    """Find a session's own facts, and its task: as stated, else the first thing that was asked."""
    started = find_started(index, reader) or SessionStarted()
    task = started.task
    if task is None:
        seqs = (seq for seq in index.seqs_of(Kind.USER_MESSAGE) if seq < _OPENING_EVENTS)
        task = _first_asked(reader.read_events(seqs))
    return Opening(
        task=None if task is None else _first_line(task),
        agent=started.agent,
        agent_version=started.agent_version,
        cwd=started.cwd,
        git=started.git,
        parent_session=started.parent_session,
        thread=started.thread,
    )


def _first_asked(events: Iterable[Event]) -> str | None:
    """Give the first text asked of `main`, else of whom it was asked first."""
    asked: list[tuple[bool, str]] = [
        (event.actor != MAIN_ACTOR, payload_of(event).text) for event in events if is_asking(event)
    ]
    texts = [(is_other, text) for is_other, text in asked if text.strip()]
    return min(texts, key=lambda pair: pair[0])[1] if texts else None


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TASK_CHARS else line[:_TASK_CHARS] + "…"
