"""What an import did: file by file, and in all.

Knows reports. Must not know stores, formats, or how a report is shown.

Source: DESIGN.md §8 `import`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from redrive import plugins
from redrive.app.sources import Found
from redrive.errors import RecordError, RedriveError, UnreadableError, UsageError
from redrive.record.event import Damage


class SessionReport(msgspec.Struct, frozen=True):
    """What one source did to one session; the summary's fields stand beside these in JSON."""

    session_id: str
    change: str
    events_added: int
    head: str
    summary: dict[str, Any]


class FileReport(msgspec.Struct, frozen=True):
    """One imported file: its own counts as it lies, and the sessions it went to."""

    path: str
    format: str
    importer_version: int
    sha256: str
    counts: dict[str, Any]
    damage: tuple[Damage, ...]
    lost: tuple[str, ...]
    sessions: tuple[SessionReport, ...]


class Refused(msgspec.Struct, frozen=True):
    """A file or folder that was not imported.

    Attributes:
        path: where it lies.
        reason: why, with the path.
        is_named: whether the user named it himself.
        is_unreadable: whether it may hold a session that could not be read; else it holds none.
        hint: what to do about it; empty if there is nothing useful to say.
    """

    path: str
    reason: str
    is_named: bool
    is_unreadable: bool = False
    hint: str = ""


class ImportReport(msgspec.Struct, frozen=True):
    """Everything one `import` did.

    Attributes:
        files: what was imported, in the order of the files.
        refused: what was not, likewise; folders that cannot be listed first.
        unfinished: number of files that an interruption or an error left undone.
        links_not_followed: number of links inside folders.
        folders_left_out: folders that hold no recordings by their name, such as `.git`.
    """

    files: tuple[FileReport, ...]
    refused: tuple[Refused, ...]
    unfinished: int = 0
    links_not_followed: int = 0
    folders_left_out: tuple[str, ...] = ()

    @property
    def has_damage(self) -> bool:
        """Whether any file was damaged, or could not be read."""
        is_damaged = any(report.damage or report.lost for report in self.files)
        return is_damaged or any(entry.is_unreadable for entry in self.refused)


def refused_entry(path: Path, error: RecordError, *, is_named: bool) -> Refused:
    """Give the entry of a file or folder that an importer or the disk refused."""
    is_unreadable = isinstance(error, UnreadableError)
    return Refused(str(path), error.message, is_named, is_unreadable, error.hint)


def report_of(found: Found, entries: Sequence[FileReport | Refused]) -> ImportReport:
    """Sum up what an import did, or what it did before it was stopped.

    Args:
        found: the files.
        entries: what `import_each` gave.
    """
    folders = [
        refused_entry(path, error, is_named=is_named) for path, is_named, error in found.unreadable
    ]
    files = [entry for entry in entries if isinstance(entry, FileReport)]
    refused = [entry for entry in entries if isinstance(entry, Refused)]
    return ImportReport(
        tuple(files),
        (*folders, *refused),
        unfinished=len(found.files) - len(entries),
        links_not_followed=found.links,
        folders_left_out=tuple(str(path) for path in found.folders_left_out),
    )


def check_any(report: ImportReport, paths: Sequence[str]) -> None:
    """Hold that something was found: a session, or a file to tell of.

    Raises:
        UsageError: there are folders without sessions alone.
    """
    if not report.files and not any(e.is_named or e.is_unreadable for e in report.refused):
        raise UsageError(
            f"no session was found in {', '.join(paths)}",
            hint=f"formats: {', '.join(plugins.names(plugins.IMPORTERS))}",
        )


def report_error(report: ImportReport) -> RedriveError | None:
    """Give the error for a file that the user named and that could not be imported.

    Where nothing was imported at all, a file in a folder that cannot be read is such a one.
    """
    entries = [e for e in report.refused if e.is_named or (e.is_unreadable and not report.files)]
    if not entries:
        return None
    return RecordError(entries[0].reason, where=entries[0].path, hint=entries[0].hint)
