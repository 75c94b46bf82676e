"""What several tests share: a file as an importer sees it, and its drafts as events."""

from collections.abc import Iterable
from pathlib import Path

from redrive.importers.draft import Draft, FileTally, Importer, event_of
from redrive.record.event import Event
from redrive.record.session import SessionIndex, build_index
from redrive.testing import MemorySource


def source_of(path: Path | str, data: bytes | None = None) -> MemorySource:
    """Open a file as a source; `data` replaces its bytes."""
    return MemorySource(str(path), Path(path).read_bytes() if data is None else data)


def drafts_from(
    importer: Importer, path: Path | str, data: bytes | None = None
) -> tuple[list[Draft], FileTally]:
    """Project a file; give its drafts and its tally."""
    tally = FileTally()
    return list(importer.project(source_of(path, data), tally)), tally


def events_of(drafts: Iterable[Draft], artefact: str = "") -> list[Event]:
    """Turn drafts of one session into its events, as a store would number them."""
    return [event_of(draft, draft.session, seq, artefact) for seq, draft in enumerate(drafts)]


def events_from(importer: Importer, path: Path | str, data: bytes | None = None) -> list[Event]:
    """Project a file that holds one session, to events."""
    drafts, _ = drafts_from(importer, path, data)
    return events_of(drafts, source_of(path, data).sha256)


def index_of(events: list[Event]) -> SessionIndex:
    """Index the events of one session."""
    return build_index(events[0].session_id if events else "", lambda: events)
