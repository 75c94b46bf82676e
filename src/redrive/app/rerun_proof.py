"""Writes into a session that reruns have proved its basis.

A fact is never edited: the session's first event is superseded by one that says more.
"""

import time

import msgspec

from redrive.app.rerun_serving import RerunCase
from redrive.record.event import Event, Kind, Source, dump_payload
from redrive.stores.port import Store

PROVED = "proved_by_rerun"
_PROVED_CLASSES = ("clock", "prng")


def write_basis(case: RerunCase) -> str:
    """Supersede what the session says of itself: clock and PRNG are captured, on a proved basis.

    Returns:
        The session's new head. A session that says so already is left as it is.

    Raises:
        StoreError: the store cannot be written.
    """
    session, store = case.session, case.store
    started, row = session.started, session.row
    if started.basis == PROVED:
        return str(row.head)
    seq = session.index.seqs_of(Kind.SESSION_STARTED)[0]
    before: Event = next(iter(session.reader.read_events((seq,))))
    captures = started.captures | dict.fromkeys(_PROVED_CLASSES, "captured")
    payload = msgspec.structs.replace(started, basis=PROVED, captures=captures)
    return _append(store, row.session_id, before, msgspec.structs.replace(payload))


def _append(store: Store, session_id: str, before: Event, payload: msgspec.Struct) -> str:
    with store.transaction():
        writer = store.extend(session_id)
        seq = writer.next_seq
        writer.append(
            Event(
                id=f"{PROVED}/{seq}",
                session_id=session_id,
                seq=seq,
                kind=Kind.SESSION_STARTED,
                node_id="",
                source=Source("", 0, 0),
                payload=dump_payload(payload),  # type: ignore[arg-type]
                actor=before.actor,
                ts_ns=time.time_ns(),
                supersedes=before.id,
            )
        )
        return writer.close().head
