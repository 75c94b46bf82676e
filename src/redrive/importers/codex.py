"""Reads Codex rollout files: JSON lines of `{timestamp, type, payload}`, one file per session.

Knows how a rollout is recognised, named and found on disk. What a line becomes is in
`codex_items`, what a file counts in `codex_counts`, the shape of a line in `codex_lines`.

A rollout has no ids of its own for most items and no parent links: its order is its history, so
every draft that takes part in the conversation hangs off the one before it.
"""

from collections.abc import Iterator
from pathlib import Path, PurePath

from redrive import canonical
from redrive.importers.codex_counts import RolloutCounts
from redrive.importers.codex_items import RolloutReading
from redrive.importers.codex_lines import (
    CopiedPrefix,
    is_torn_rollout_line,
    parse_line,
    rollout_confidence,
)
from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.lines import read_head, read_records
from redrive.record.event import Damage

_NAME_RECORDS = 100
_FOLDERS = ("sessions", "archived_sessions")


class CodexImporter:
    """Projects Codex rollouts to drafts."""

    name = "codex"
    version = 1

    def sniff(self, source: SourceFile) -> int:
        """Judge the first lines that are JSON objects; a `rollout-` name only tips the scale."""
        head = source.head()
        is_torn = b"\n" not in head and is_torn_rollout_line(head)
        found = (rollout_confidence(value) for value in read_head(source))
        best = max(found, default=85 if is_torn else 0)
        is_named = PurePath(source.path).name.startswith("rollout-")
        return min(best + 5, 100) if best and is_named else best

    def role(self, source: SourceFile) -> str:  # noqa: ARG002 - the protocol's signature
        """Give `main`: a sub-agent's rollout is a session of its own."""
        return "main"

    def discover_roots(self, home: Path) -> tuple[Path, ...]:
        """List the folders below a home folder in which Codex keeps rollouts, where they exist."""
        return tuple(folder for name in _FOLDERS if (folder := home / ".codex" / name).is_dir())

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        """Yield the drafts of one rollout, in file order."""
        prefix = CopiedPrefix()
        counts = RolloutCounts(tally)
        reading = RolloutReading(_session_name(source), prefix)
        with source.open() as file:
            for item in read_records(file):
                if isinstance(item, Damage):
                    counts.add_damage(item)
                    yield reading.damage(item)
                    continue
                line = parse_line(item.value)
                prefix.see(line)
                if item.is_strict:
                    counts.add(line, is_own=prefix.has_own_turn)
                else:
                    counts.add_recovered(line)
                yield from reading.record(item, line)
        counts.close()


def _session_name(source: SourceFile) -> str:
    """Find the id of the first `session_meta` near the top, else name the first record's bytes."""
    first: tuple[int, int] | None = None
    with source.open() as file:
        n_records = 0
        for item in read_records(file):
            if isinstance(item, Damage):
                continue
            line = parse_line(item.value)
            if line.kind == "session_meta" and isinstance(line.payload.get("id"), str):
                return canonical.safe_text(line.payload["id"])
            first = first or (item.offset, item.length)
            n_records += 1
            if n_records == _NAME_RECORDS:
                break
    if first is None:
        return source.sha256[:16]
    with source.open() as file:
        file.seek(first[0])
        return canonical.digest(file.read(first[1]))[:16]


IMPORTER = CodexImporter()
