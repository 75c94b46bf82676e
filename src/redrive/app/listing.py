"""Lists stored sessions and the threads that they form.

Knows catalogue rows and each session's first events. Must not know how a list is shown.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from redrive.record.event import (
    Kind,
    SessionStarted,
    Usage,
    UserMessage,
    payload_of,
)
from redrive.record.session import FLAG_META
from redrive.reports.times import time_or_none
from redrive.reports.views import SessionList, SessionView, ThreadView
from redrive.stores.port import SessionRow, Store

_TASK_CHARS = 200
# The session's own facts and its first message stand at its beginning; a list reads no further.
_OPENING_EVENTS = 64


class Opening(msgspec.Struct, frozen=True):
    """What a session's first events say of it."""

    started: SessionStarted
    task: str | None


def read_opening(store: Store, row: SessionRow) -> Opening:
    """Read a session's own facts, and its task: as stated, else its first user message."""
    started, said = None, None
    for event in store.events(row.session_id):
        if event.seq >= _OPENING_EVENTS or (started is not None and said is not None):
            break
        if event.kind is Kind.SESSION_STARTED and started is None:
            started = payload_of(event)
        elif event.kind is Kind.USER_MESSAGE and FLAG_META not in event.flags and said is None:
            message: UserMessage = payload_of(event)
            said = message.text if message.text.strip() else None
    facts = started if started is not None else SessionStarted()
    return Opening(facts, facts.task if facts.task is not None else said)


def list_sessions(store: Store) -> SessionList:
    """List every stored session, oldest first, and the threads. Cost: one segment per session."""
    rows = list(store.sessions())
    openings = [read_opening(store, row) for row in rows]
    threads = _find_threads(rows, openings)
    views = tuple(
        view_session(row, opening, threads[row.session_id])
        for row, opening in zip(rows, openings, strict=True)
    )
    members: dict[str, list[str]] = {}
    for view in views:
        members.setdefault(view.thread, []).append(view.session_id)
    return SessionList(views, tuple(ThreadView(t, tuple(ids)) for t, ids in members.items()))


def find_thread(store: Store, row: SessionRow) -> ThreadView:
    """Give the thread that a session belongs to, itself included."""
    listed = list_sessions(store)
    return next(thread for thread in listed.threads if row.session_id in thread.sessions)


def view_session(row: SessionRow, opening: Opening, thread: str) -> SessionView:
    """Give one session as a list shows it."""
    started, summary = opening.started, row.summary
    return SessionView(
        session_id=row.session_id,
        format=row.format,
        revision=row.revision,
        head=row.head,
        events=row.n_events,
        thread=thread,
        first=time_or_none(row.first_ts_ns),
        last=time_or_none(row.last_ts_ns),
        task=None if opening.task is None else _first_line(opening.task),
        agent=started.agent,
        agent_version=started.agent_version,
        cwd=started.cwd,
        git=started.git,
        parent_session=started.parent_session,
        model_calls=_count(summary, "model_calls"),
        tool_calls=_count(summary, "tool_calls"),
        tool_results=_count(summary, "tool_results"),
        orphan_calls=_count(summary, "orphan_calls"),
        orphan_results=_count(summary, "orphan_results"),
        branches=_count(summary, "branches"),
        inherited=_count(summary, "inherited"),
        complete=summary.get("complete"),
        usage=_usage(summary),
    )


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _TASK_CHARS else line[:_TASK_CHARS] + "…"


def _count(summary: dict[str, Any], name: str) -> int | None:
    value = summary.get(name)
    return value if isinstance(value, int) else None


def _usage(summary: dict[str, Any]) -> Usage | None:
    usage = summary.get("usage")
    return None if usage is None else msgspec.convert(usage, Usage)


def _find_threads(rows: Iterable[SessionRow], openings: Iterable[Opening]) -> dict[str, str]:
    """Map each session to the id of its thread: that of its oldest member, without revision.

    Sessions of one format are joined by the format's own ids: a session with its parent, and with
    all that name the same thread. A parent that is not stored joins its children all the same.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        leader.setdefault(name, name)
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    bases: dict[str, str] = {}
    for row, opening in zip(rows, openings, strict=True):
        bases[row.session_id] = row.base_id
        for other in (opening.started.parent_session, opening.started.thread):
            if other:
                leader[find(_qualified(other, row.format))] = find(row.base_id)
    oldest: dict[str, str] = {}
    for base_id in bases.values():
        oldest.setdefault(find(base_id), base_id)
    return {session_id: oldest[find(base_id)] for session_id, base_id in bases.items()}


def _qualified(name: str, fmt: str) -> str:
    return name if name.startswith(f"{fmt}:") else f"{fmt}:{name}"
