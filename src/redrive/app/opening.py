"""Opens one stored session for a use case: its index, its reader, and what it says of itself."""

from dataclasses import dataclass
from typing import Any

from redrive import plugins
from redrive.record.decisions import TOOL_CALLS
from redrive.record.event import Kind, SessionEnded, SessionStarted, payload_of
from redrive.record.opening import find_started
from redrive.record.session import EventReader, SessionIndex
from redrive.record.summary import main_actor
from redrive.record.trajectory import Trajectory, build_trajectory
from redrive.stores.port import SessionRow, Store


@dataclass(frozen=True, slots=True)
class OpenedSession:
    """A session ready to be walked.

    Attributes:
        row: its catalogue row.
        index: its DAG.
        reader: its payloads, by seq.
        started: what its first record says of the whole; absent where nothing does.
        outcome: the recorded end: `success`, `failure`, another word, or absent.
    """

    row: SessionRow
    index: SessionIndex
    reader: EventReader
    started: SessionStarted | None
    outcome: str | None

    def trajectory(self, actor: str | None = None, path: str | None = None) -> Trajectory:
        """Build one path; `main` is followed where no actor is named, or the only one there is."""
        chosen = actor if actor is not None else main_actor(self.index)
        return build_trajectory(self.index, actor=chosen, path=path)


def open_session(store: Store, name: str) -> OpenedSession:
    """Open a session by id or unique prefix; raises as `Store.get_session` does."""
    return open_row(store, store.get_session(name))


def open_row(store: Store, row: SessionRow) -> OpenedSession:
    """Open exactly this revision; by name, the id of a first revision means the newest one."""
    index = store.index(row.session_id, row.n_events)  # a recorder may append meanwhile
    reader = store.reader(row.session_id)
    return OpenedSession(
        row, index, reader, find_started(index, reader), _find_outcome(index, reader)
    )


def _find_outcome(index: SessionIndex, reader: EventReader) -> str | None:
    ends: list[SessionEnded] = [
        payload_of(event) for event in reader.read_events(index.seqs_of(Kind.SESSION_ENDED))
    ]
    return ends[-1].status if ends else None


def renderers() -> dict[str, Any]:
    """Give every registered renderer that loads, by NAME@VERSION."""
    return plugins.load_all(plugins.RENDERERS)


def mode_of(session: OpenedSession) -> str:
    """Say how a session's decisions are read, as it declares itself."""
    return TOOL_CALLS if session.started is None else session.started.decisions
