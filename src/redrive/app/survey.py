"""Surveys a stored session for the reports: its places, its times, and its pairs.

Holds numbers per event, never payloads. Must not know how a report looks.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from redrive.app.opening import OpenedSession, open_row
from redrive.record.event import Event, SessionStarted, payload_of
from redrive.record.pairing import Pairing, pair_path
from redrive.record.places import Places, build_places
from redrive.record.session import NO_TS, EventReader, SessionIndex
from redrive.record.summary import pair_session
from redrive.reports.times import time_or_none
from redrive.stores.port import SessionRow, Store


@dataclass(frozen=True, slots=True)
class Survey:
    """A stored session, ready to be shown.

    Attributes:
        opened: the session.
        places: where its nodes lie.
        times: per event its `ts_ns`, else that of the event before it; `NO_TS` before the first.
    """

    opened: OpenedSession
    places: Places
    times: Sequence[int]

    @property
    def index(self) -> SessionIndex:
        """Its index."""
        return self.opened.index

    @property
    def reader(self) -> EventReader:
        """Its events, by seq."""
        return self.opened.reader

    @property
    def started(self) -> SessionStarted:
        """What it says of itself; nothing where nothing does."""
        return self.opened.started or SessionStarted()

    def read(self, seq: int) -> Event:
        """Read one event."""
        return next(iter(self.reader.read_events((seq,))))

    def payload(self, seq: int) -> Any:
        """Read one event's payload."""
        return payload_of(self.read(seq))

    def chronological(self, seqs: Iterable[int]) -> Sequence[int]:
        """Order events by (`ts`, `seq`); one without `ts` goes with the one before it."""
        times = self.times
        return array("i", sorted(seqs, key=lambda seq: (times[seq], seq)))

    def pair(self) -> Pairing:
        """Pair results with calls, those of a copied history on the live path included."""
        whole = pair_session(self.index, self.reader)
        if not any(self.index.is_inherited):
            return whole
        copied = pair_path(self.index, self.opened.trajectory(), self.reader)
        return Pairing(
            answers=copied.answers | whole.answers,
            unanswered=whole.unanswered,
            orphans=whole.orphans,
            conflicts=copied.conflicts | whole.conflicts,
            duplicates=whole.duplicates,
        )


def survey_session(store: Store, row: SessionRow) -> Survey:
    """Survey a session. Cost: two passes over its events, about 30 bytes an event beside its index.

    Raises:
        TamperError: any stored event does not match its digest.
    """
    opened = open_row(store, row)
    times = array("q")
    latest = NO_TS
    for event in store.events(row.session_id):
        latest = latest if event.ts_ns is None else event.ts_ns
        times.append(latest)
    return Survey(opened, build_places(opened.index), times)


def time_of(event: Event) -> str | None:
    """Write an event's time, where it has one."""
    return time_or_none(event.ts_ns)
