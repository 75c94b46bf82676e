"""Imports recorded files: finds the format, stores the source verbatim, projects it to events.

Decides which stored session a source belongs to (DESIGN.md §3 "Names"): the same bytes add
nothing, a grown file appends and supersedes, a companion joins, anything else of the same id is a
new revision. One file is one transaction. Must not know any format, nor how a report is shown.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from redrive import plugins
from redrive.app.import_report import (
    FileReport,
    ImportReport,
    Refused,
    SessionReport,
    check_any,
    refused_entry,
    report_of,
)
from redrive.app.sources import FileSource, Found, check_encoding, find_files
from redrive.errors import RecordError, UnreadableError
from redrive.importers.draft import Draft, FileTally, Importer, SourceFile, event_of
from redrive.record.event import (
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
# Any line of any file can be kept as a note, and a session can be opened for it.
_NO_FACTS = frozenset({Kind.DAMAGE, Kind.NOTE, Kind.SESSION_STARTED})
_MAX_HELD = 4096


def import_paths(
    store: Store,
    paths: Sequence[str],
    *,
    format_name: str | None = None,
    progress: Progress,
) -> ImportReport:
    """Import files and folders; see `find_files`, `import_each` and `report_of`.

    Raises:
        UsageError: a path does not exist, the format is unknown, or nothing importable was found
            in the folders.
    """
    found = find_files(paths)
    entries = list(import_each(store, found, format_name=format_name, progress=progress))
    report = report_of(found, entries)
    check_any(report, paths)
    return report


def import_each(
    store: Store, found: Found, *, format_name: str | None = None, progress: Progress
) -> Iterator[FileReport | Refused]:
    """Import files one after the other; each is stored when its report is given.

    Args:
        store: where sessions go.
        found: the files.
        format_name: the importer to use; detected by content if absent.
        progress: told (files done, files in all, path) before each file.

    Raises:
        UsageError: the format is unknown.
        StoreError: the store cannot be used; what was given before is stored.
    """
    known = (
        {format_name: plugins.load(plugins.IMPORTERS, format_name)}
        if format_name
        else plugins.load_all(plugins.IMPORTERS)
    )
    for number, (path, is_named) in enumerate(found.files):
        progress(number, len(found.files), str(path))
        try:
            entry: FileReport | Refused = _import_file(
                store, path, known, is_forced=format_name is not None
            )
        except RecordError as error:
            entry = refused_entry(path, error, is_named=is_named)
        yield entry
    progress(len(found.files), len(found.files), "")


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
    check_encoding(source)
    importer = next(iter(known.values())) if is_forced else detect(source, known)
    if importer is None:
        raise RecordError(
            f"{path}: no importer knows this content",
            where=str(path),
            hint=f"formats: {', '.join(known)}",
        )
    known_sizes = store.artefact_sizes()
    _, prefixes = source.hash_prefixes(known_sizes)
    with store.transaction():
        sizes = store.artefact_sizes()
        if sizes.keys() - known_sizes.keys():  # another process stored something meanwhile
            _, prefixes = source.hash_prefixes(sizes)
        ancestors = {d for size, d in prefixes.items() if d in sizes[size]}
        return _FileImport(store, source, importer, ancestors, is_forced=is_forced).run()


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
        self,
        store: Store,
        source: FileSource,
        importer: Importer,
        ancestors: set[str],
        *,
        is_forced: bool,
    ) -> None:
        self.store = store
        self.source = source
        self.importer = importer
        self.ancestors = ancestors
        self.is_forced = is_forced
        self.role = importer.role(source)
        self.tally = FileTally()
        self.targets: dict[str, _Target] = {}
        self.held: dict[str, list[Draft]] = {}
        self.is_recording = False

    def run(self) -> FileReport:
        """Store the source, then its events."""
        stored = self._stored_report()
        if stored is not None:
            return stored
        self._store_source()  # first, since compression and look-up tables are both large
        for draft in self.importer.project(self.source, self.tally):
            self.is_recording = self.is_recording or draft.kind not in _NO_FACTS
            target = self.targets.get(draft.session) or self._hold(draft)
            if target is not None and target.writer is not None:
                self._take(target, draft)
        self._settle_held()
        if not self.is_recording:
            raise self._nothing()
        sessions = tuple(self._close(target) for target in self.targets.values())
        report = self._report(sessions)
        self._note_source(report)
        return report

    def _nothing(self) -> RecordError:
        """Give the error for a file of which the importer understood nothing."""
        path, damage = self.source.path, self.tally.damage
        why = damage[0].reason if damage else "no message, call or result in it"
        may_be_one = bool(damage) and not self.is_forced
        kind = UnreadableError if may_be_one else RecordError
        return kind(f"{path}: nothing readable as {self.importer.name}: {why}", where=path)

    def _stored_report(self) -> FileReport | None:
        """Give the stored report where these bytes were read by this importer version before."""
        rows = [
            row
            for row in self.store.sources_of(self.source.sha256)
            if row.importer == self.importer.name and row.importer_version >= self.importer.version
        ]
        stored = next((row.report for row in rows if row.report), None)
        if stored is None:
            return None
        unchanged = tuple(_unchanged(self.store.get_row(row.session_id)) for row in rows)
        report = msgspec.convert(stored, FileReport)
        return msgspec.structs.replace(report, path=self.source.path, sessions=unchanged)

    def _hold(self, draft: Draft) -> _Target | None:
        """Open a session at its first fact; what came before waits for it."""
        held = self.held.setdefault(draft.session, [])
        if draft.kind in _NO_FACTS and len(held) < _MAX_HELD:
            held.append(draft)
            return None
        return self._release(draft.session)

    def _release(self, native_id: str) -> _Target:
        target = self._open(native_id)
        for draft in self.held.pop(native_id):
            if target.writer is not None:
                self._take(target, draft)
        return target

    def _settle_held(self) -> None:
        """Store what has no facts where it belongs to a session, and count it where it is none."""
        for native_id in list(self.held):
            if self.tally.has_opening or self.store.revisions(self._base_id(native_id)):
                self._release(native_id)
                self.is_recording = True
        if self.held:
            self.tally.extra["sessions_of_notes_alone"] = len(self.held)

    def _base_id(self, native_id: str) -> str:
        return f"{self.importer.name}:{native_id}"

    def _open(self, native_id: str) -> _Target:
        """Decide which stored session this part of the file belongs to."""
        base_id = self._base_id(native_id)
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
                _unchanged(self.store.get_row(target.session_id)), change=target.change
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

    def _note_source(self, report: FileReport) -> None:
        """Note the source with each session; the file's own counts once, with the first of them."""
        counts = msgspec.to_builtins(msgspec.structs.replace(report, sessions=()))
        for target in self.targets.values():
            if target.writer is None:
                continue
            self.store.add_source(
                SourceRow(
                    session_id=target.session_id,
                    role=self.role,
                    sha256=self.source.sha256,
                    size=self.source.size,
                    importer=self.importer.name,
                    importer_version=self.importer.version,
                    report=counts,
                )
            )
            counts = {}


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
