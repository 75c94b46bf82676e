"""Lists stored sessions and the threads that they form.

Knows catalogue rows, which hold what a list shows. Must not know how a list is shown.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import msgspec

from redrive.errors import TamperError, UsageError
from redrive.record.event import Usage
from redrive.record.opening import Opening, find_opening
from redrive.record.summary import count_session
from redrive.reports.times import time_or_none
from redrive.reports.views import DamagedView, SessionList, SessionView, ThreadView
from redrive.stores.port import SessionRow, Store

RECORDING, ENDED_EARLY = "recording", "ended early"


def is_open_ended(row: SessionRow) -> bool:
    """Say whether a session is being recorded, or its recorder ended before it could count it."""
    return not row.summary and not row.sources


def find_recorder_state(store: Store, row: SessionRow) -> str | None:
    """Say where the recorder of a session stands: `recording` or `ended early`, else `None`."""
    if not is_open_ended(row):
        return None
    if store.find_recorder(row.session_id) is not None:
        return RECORDING
    # A recorder gives up its lock after it has counted, so the row tells now if it was closed.
    return ENDED_EARLY if is_open_ended(store.get_row(row.session_id)) else None


def with_counts(store: Store, row: SessionRow) -> SessionRow:
    """Count a session that its recorder did not count, as far as its row tells of it.

    A damaged one stays without counts. Cost: O(1), or one pass over such a session.
    """
    if not is_open_ended(row):
        return row
    try:
        summary = count_session(
            row.session_id,
            lambda: islice(store.events(row.session_id), row.n_events),
            store.reader(row.session_id),
        )
    except TamperError:
        return row
    return msgspec.structs.replace(row, summary=msgspec.to_builtins(summary))


def read_opening(store: Store, row: SessionRow) -> Opening:
    """Give what a session says of itself, as its import found it.

    Raises:
        TamperError: its row is of an older redrive and says nothing, and its events are damaged.
    """
    noted = row.summary.get("opening")
    if noted is not None:
        return msgspec.convert(noted, Opening)
    return find_opening(store.index(row.session_id), store.reader(row.session_id))


def find_task(store: Store, session_id: str) -> str | None:
    """Find what a stored session was for, not redacted.

    Returns:
        One line; `None` where it says nothing, is no longer stored, or is damaged.
    """
    try:
        return read_opening(store, store.get_row(session_id)).task
    except (TamperError, UsageError):
        return None


def list_sessions(store: Store) -> SessionList:
    """List every stored session, oldest first, the threads, and what is damaged.

    A damaged session keeps no other from being listed. Of each the catalogue row and the first
    events are checked; only `verify` checks all. Cost: one segment per session, and one pass over
    each that is being recorded or whose recorder ended early.
    """
    rows, faults = store.list_sound()
    damaged = {fault.session_id: fault.fault for fault in faults}
    damaged |= {row.session_id: fault for row in rows if (fault := _find_damage(store, row))}
    states = [find_recorder_state(store, row) for row in rows]
    rows = [with_counts(store, row) for row in rows]
    openings = [_opening_or_none(store, row) for row in rows]
    threads = _find_threads(rows, openings)
    views = tuple(
        msgspec.structs.replace(
            view_session(row, opening, threads[row.session_id]),
            damage=damaged.get(row.session_id),
            recorder=state,
        )
        for row, opening, state in zip(rows, openings, states, strict=True)
    )
    return SessionList(
        views, _group(threads), tuple(DamagedView(*pair) for pair in sorted(damaged.items()))
    )


def find_thread(store: Store, row: SessionRow) -> ThreadView:
    """Give the thread that a session belongs to, itself included; reads no other's events."""
    rows, _ = store.list_sound()
    threads = _find_threads(rows, [_opening_or_none(store, other) for other in rows])
    return next(thread for thread in _group(threads) if row.session_id in thread.sessions)


def _find_damage(store: Store, row: SessionRow) -> str | None:
    try:
        next(iter(store.events(row.session_id)), None)
    except TamperError as error:
        return error.message
    return None


def _opening_or_none(store: Store, row: SessionRow) -> Opening:
    try:
        return read_opening(store, row)
    except TamperError:
        return Opening()


def _group(threads: Mapping[str, str]) -> tuple[ThreadView, ...]:
    members: dict[str, list[str]] = {}
    for session_id, thread in threads.items():
        members.setdefault(thread, []).append(session_id)
    return tuple(ThreadView(thread, tuple(ids)) for thread, ids in members.items())


def view_row(store: Store, row: SessionRow, thread: str) -> SessionView:
    """Give one stored session as a list shows it; raises as `read_opening` does."""
    counted = with_counts(store, row)
    view = view_session(counted, read_opening(store, counted), thread)
    return msgspec.structs.replace(view, recorder=find_recorder_state(store, row))


def view_session(row: SessionRow, opening: Opening, thread: str) -> SessionView:
    """Give one session as a list shows it."""
    summary = row.summary
    return SessionView(
        session_id=row.session_id,
        format=row.format,
        revision=row.revision,
        head=row.head,
        events=row.n_events,
        thread=thread,
        first=time_or_none(row.first_ts_ns),
        last=time_or_none(row.last_ts_ns),
        task=opening.task,
        agent=opening.agent,
        agent_version=opening.agent_version,
        cwd=opening.cwd,
        git=opening.git,
        parent_session=opening.parent_session,
        model_calls=_count(summary, "model_calls"),
        tool_calls=_count(summary, "tool_calls"),
        tool_results=_count(summary, "tool_results"),
        orphan_calls=_count(summary, "orphan_calls"),
        orphan_results=_count(summary, "orphan_results"),
        branches=_count(summary, "branches"),
        inherited=_count(summary, "inherited"),
        complete=summary.get("complete"),
        broken=summary.get("broken"),
        usage=_usage(summary),
    )


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
        for other in (opening.parent_session, opening.thread):
            if other:
                leader[find(_qualified(other, row.format))] = find(row.base_id)
    oldest: dict[str, str] = {}
    for base_id in bases.values():
        oldest.setdefault(find(base_id), base_id)
    return {session_id: oldest[find(base_id)] for session_id, base_id in bases.items()}


def _qualified(name: str, fmt: str) -> str:
    return name if name.startswith(f"{fmt}:") else f"{fmt}:{name}"
