"""Imports recorded files: finds the format, stores the source verbatim, projects it to events.

Decides which stored session a source belongs to (DESIGN.md §3 "Names"): the same bytes add
nothing, a grown file appends and supersedes, a companion joins, anything else of the same id is a
new revision. One file is one transaction. Must not know any format, nor how a report is shown.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from redrive import plugins
from redrive.app.sources import FileSource, find_files
from redrive.errors import RecordError, RedriveError, UsageError
from redrive.importers.draft import Draft, FileTally, Importer, SourceFile, event_of
from redrive.record.event import (
    Damage,
    Event,
    Kind,
    Note,
    Source,
)
from redrive.record.session import IndexBuilder
from redrive.record.summary import SessionSummary, UsageFold, summarize
from redrive.stores.port import SessionRow, SessionWriter, SourceRow, Store

Progress = Callable[[int, int, str], None]

ADDED, GROWN, UNCHANGED, OLDER, JOINED, REVISED, REPROJECTED = (
    "added",
    "grown",
    "unchanged",
    "older copy",
    "joined",
    "new revision",
    "projected anew",
)


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
    """A file that was not imported, and why; `is_named` if the user named it himself."""

    path: str
    reason: str
    is_named: bool


class ImportReport(msgspec.Struct, frozen=True):
    """Everything one `import` did."""

    files: tuple[FileReport, ...]
    refused: tuple[Refused, ...]

    @property
    def has_damage(self) -> bool:
        """Whether any file was damaged."""
        return any(report.damage or report.lost for report in self.files)


def import_paths(
    store: Store,
    paths: Sequence[str],
    *,
    format_name: str | None = None,
    progress: Progress,
) -> ImportReport:
    """Import files and folders.

    Args:
        store: where sessions go.
        paths: files, or folders that are walked.
        format_name: the importer to use; detected by content if absent.
        progress: told (files done, files in all, path) before each file.

    Raises:
        UsageError: a path does not exist, the format is unknown, or nothing importable was found
            in the folders.
    """
    known = (
        {format_name: plugins.load(plugins.IMPORTERS, format_name)}
        if format_name
        else plugins.load_all(plugins.IMPORTERS)
    )
    found = list(find_files(paths))
    reports: list[FileReport] = []
    refused: list[Refused] = []
    for number, (path, is_named) in enumerate(found):
        progress(number, len(found), str(path))
        try:
            reports.append(_import_file(store, path, known, is_forced=format_name is not None))
        except RecordError as error:
            refused.append(Refused(str(path), error.message, is_named))
    progress(len(found), len(found), "")
    if not reports and not any(entry.is_named for entry in refused):
        raise UsageError(
            f"no session was found in {', '.join(paths)}",
            hint=f"formats: {', '.join(plugins.names(plugins.IMPORTERS))}",
        )
    return ImportReport(tuple(reports), tuple(refused))


def detect(source: SourceFile, known: Mapping[str, Importer]) -> Importer | None:
    """Find the importer that is surest of a file; the first by name among equals."""
    rated = sorted(
        ((importer.sniff(source), name) for name, importer in known.items()),
        key=lambda pair: (-pair[0], pair[1]),
    )
    return known[rated[0][1]] if rated and rated[0][0] > 0 else None


def _import_file(
    store: Store, path: Path, known: Mapping[str, Importer], *, is_forced: bool
) -> FileReport:
    source = FileSource(path)
    importer = next(iter(known.values())) if is_forced else detect(source, known)
    if importer is None:
        raise RecordError(
            f"{path}: no importer knows this content",
            where=str(path),
            hint=f"formats: {', '.join(known)}",
        )
    sizes = store.artefact_sizes()
    _, prefixes = source.hash_prefixes(sizes)
    ancestors = {d for size, d in prefixes.items() if d in sizes[size]}
    with store.transaction():
        return _FileImport(store, source, importer, ancestors).run()


@dataclass(slots=True)
class _Target:
    """One session that a file writes to."""

    writer: SessionWriter | None
    change: str
    session_id: str
    builder: IndexBuilder
    usage: UsageFold = field(default_factory=UsageFold)
    old: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    added: int = 0
    seq: int = 0


class _FileImport:
    """Imports one file inside a transaction."""

    def __init__(
        self, store: Store, source: FileSource, importer: Importer, ancestors: set[str]
    ) -> None:
        self.store = store
        self.source = source
        self.importer = importer
        self.ancestors = ancestors
        self.role = importer.role(source)
        self.tally = FileTally()
        self.targets: dict[str, _Target] = {}
        self.has_facts = False

    def run(self) -> FileReport:
        """Store the source, then its events."""
        stored = self._stored_report()
        if stored is not None:
            return stored
        self._store_source()  # first, since compression and look-up tables are both large
        for draft in self.importer.project(self.source, self.tally):
            self.has_facts = self.has_facts or draft.kind is not Kind.DAMAGE
            target = self.targets.get(draft.session) or self._open(draft.session)
            if target.writer is not None:
                self._take(target, draft)
        if not self.has_facts:
            raise RecordError(self._nothing(), where=self.source.path)
        sessions = tuple(self._close(target) for target in self.targets.values())
        report = self._report(sessions)
        for target in self.targets.values():
            if target.writer is not None:
                self._note_source(target.session_id, report)
        return report

    def _nothing(self) -> str:
        first = self.tally.damage[0].reason if self.tally.damage else "no records"
        return f"{self.source.path}: nothing readable as {self.importer.name}: {first}"

    def _stored_report(self) -> FileReport | None:
        """Give the stored report where these bytes were read by this importer version before."""
        for row in self.store.sources_of(self.source.sha256):
            is_current = (
                row.importer == self.importer.name and row.importer_version >= self.importer.version
            )
            if is_current and row.report:
                report = msgspec.convert(row.report, FileReport)
                unchanged = tuple(
                    _unchanged(self.store.get_session(entry.session_id))
                    for entry in report.sessions
                )
                return msgspec.structs.replace(report, path=self.source.path, sessions=unchanged)
        return None

    def _open(self, native_id: str) -> _Target:
        """Decide which stored session this part of the file belongs to."""
        base_id = f"{self.importer.name}:{native_id}"
        rows = self.store.revisions(base_id)
        target = self._known_target(rows) or self._new_target(base_id, rows)
        self.targets[native_id] = target
        return target

    def _known_target(self, rows: Iterable[SessionRow]) -> _Target | None:
        for row in rows:
            own = [source for source in row.sources if source[0] == self.role]
            if any(digest == self.source.sha256 for _, digest, _ in own):
                return self._reproject(row)
            if any(digest in self.ancestors for _, digest, _ in own):
                return self._extend(row, GROWN)
            if any(self._is_older_than(digest, size) for _, digest, size in own):
                return _Target(None, OLDER, row.session_id, IndexBuilder(row.session_id))
        newest = max(rows, key=lambda row: row.revision, default=None)
        if newest is not None and all(source[0] != self.role for source in newest.sources):
            return self._extend(newest, JOINED)
        return None

    def _new_target(self, base_id: str, rows: Sequence[SessionRow]) -> _Target:
        writer = self.store.create(base_id, self.importer.name, self.importer.version)
        change = REVISED if rows else ADDED
        return _Target(writer, change, writer.session_id, IndexBuilder(writer.session_id))

    def _reproject(self, row: SessionRow) -> _Target:
        """Project the same bytes anew where the importer is newer; else add nothing."""
        if row.importer_version >= self.importer.version or len(row.sources) > 1:
            return _Target(None, UNCHANGED, row.session_id, IndexBuilder(row.session_id))
        writer = self.store.create(
            row.base_id, self.importer.name, self.importer.version, replaces=row.session_id
        )
        return _Target(writer, REPROJECTED, row.session_id, IndexBuilder(row.session_id))

    def _extend(self, row: SessionRow, change: str) -> _Target:
        """Append to a stored session, whose events so far are read once."""
        target = _Target(
            self.store.extend(row.session_id),
            change,
            row.session_id,
            IndexBuilder(row.session_id),
        )
        mine = {digest for role, digest, _ in row.sources if role == self.role} | self.ancestors
        for event in self.store.events(row.session_id):
            target.builder.add(event)
            target.usage.add(event)
            target.seq = event.seq + 1
            if change == GROWN and event.source.artefact in mine:
                target.old[event.id.partition("~r")[0]] = (event.id, _print_of(event))
        return target

    def _is_older_than(self, digest: str, size: int) -> bool:
        """Say whether this file is the beginning of a longer stored one."""
        if size <= self.source.size:
            return False
        with self.store.open_artefact(digest) as stored, self.source.open() as mine:
            while data := mine.read(1024 * 1024):
                if stored.read(len(data)) != data:
                    return False
        return True

    def _take(self, target: _Target, draft: Draft) -> None:
        event = event_of(draft, target.session_id, target.seq, self.source.sha256)
        known = target.old.pop(draft.id, None)
        if known is not None:
            old_id, old_print = known
            if old_print == _print_of(event):
                return
            stem, _, number = old_id.partition("~r")
            again = f"{stem}~r{int(number or 0) + 1}"
            event = msgspec.structs.replace(event, id=again, supersedes=old_id)
        self._append(target, event)

    def _append(self, target: _Target, event: Event) -> None:
        assert target.writer is not None  # noqa: S101 - narrows the type; callers checked it
        target.writer.append(event)
        target.builder.add(event)
        target.usage.add(event)
        target.seq += 1
        target.added += 1

    def _store_source(self) -> None:
        if self.store.has_artefact(self.source.sha256):
            return
        base = max(self._stored_prefixes(), default=None)
        start, extends = base if base is not None else (0, None)
        with self.source.open(start) as file:
            self.store.put_artefact(self.source.sha256, self.source.size, file, extends)

    def _stored_prefixes(self) -> list[tuple[int, str]]:
        sizes = self.store.artefact_sizes()
        return [(size, d) for size, all_ in sizes.items() for d in all_ if d in self.ancestors]

    def _close(self, target: _Target) -> SessionReport:
        if target.writer is None:
            return msgspec.structs.replace(
                _unchanged(self.store.get_session(target.session_id)), change=target.change
            )
        self._supersede_gone(target)
        row = target.writer.close()
        summary = self._summary(target)
        row = self.store.set_summary(target.session_id, summary)
        return SessionReport(row.session_id, target.change, target.added, row.head, summary)

    def _supersede_gone(self, target: _Target) -> None:
        """Retire what the longer file no longer says, such as the damage of a torn last line."""
        for old_id, _ in list(target.old.values()):
            draft = Draft("", f"gone:{old_id}", Kind.NOTE, Note("superseded"), 0, 0)
            gone = event_of(draft, target.session_id, target.seq, self.source.sha256)
            self._append(target, msgspec.structs.replace(gone, supersedes=old_id))

    def _summary(self, target: _Target) -> dict[str, Any]:
        is_final = not target.builder.superseded
        index = target.builder.build() if is_final else self.store.index(target.session_id)
        target.builder = IndexBuilder(target.session_id)  # its look-up tables are large
        reader = self.store.reader(target.session_id)
        counted: SessionSummary = summarize(index, reader, target.usage.total())
        fields: dict[str, Any] = msgspec.to_builtins(counted)
        return fields

    def _report(self, sessions: tuple[SessionReport, ...]) -> FileReport:
        tally = self.tally
        return FileReport(
            path=self.source.path,
            format=self.importer.name,
            importer_version=self.importer.version,
            sha256=self.source.sha256,
            counts={
                "records": tally.records,
                "model_calls": tally.model_calls,
                "tool_calls": tally.tool_calls,
                "tool_results": tally.tool_results,
                "orphan_calls": tally.orphan_calls,
                "orphan_results": tally.orphan_results,
                "branches": tally.branches,
                "extra": tally.extra,
            },
            damage=tuple(tally.damage),
            lost=tuple(tally.lost),
            sessions=sessions,
        )

    def _note_source(self, session_id: str, report: FileReport) -> None:
        self.store.add_source(
            SourceRow(
                session_id=session_id,
                role=self.role,
                sha256=self.source.sha256,
                size=self.source.size,
                importer=self.importer.name,
                importer_version=self.importer.version,
                report=msgspec.to_builtins(msgspec.structs.replace(report, sessions=_ids(report))),
            )
        )


def _ids(report: FileReport) -> tuple[SessionReport, ...]:
    """Keep of the sessions only what names them; their counts lie in the catalogue."""
    return tuple(msgspec.structs.replace(entry, summary={}) for entry in report.sessions)


def _unchanged(row: SessionRow) -> SessionReport:
    return SessionReport(row.session_id, UNCHANGED, 0, row.head, row.summary)


def _print_of(event: Event) -> bytes:
    """Give what makes an event the same fact as another, wherever its bytes lie."""
    same = msgspec.structs.replace(
        event,
        id=event.id.partition("~r")[0],
        session_id="",
        seq=0,
        supersedes=None,
        source=Source("", event.source.offset, event.source.length),
    )
    return sha256(msgspec.json.encode(same)).digest()[:16]


def report_error(report: ImportReport) -> RedriveError | None:
    """Give the error for files that the user named and that could not be imported."""
    named = [entry for entry in report.refused if entry.is_named]
    return RecordError(named[0].reason, where=named[0].path) if named else None
