"""Projects Claude Code session files to drafts of events.

Knows what needs more than one line: copies of one uuid, compaction, and sub-agents that write into
`progress` lines. What one line means is in `claude_drafts`, which session a file belongs to in
`claude_opening`, how it is counted in `claude_tally`.

Memory: about 200 bytes a line for ids, beside the longest line. Source: docs/claude-code.md.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from redrive import canonical
from redrive.importers import claude_opening
from redrive.importers.claude_drafts import Part, parts_of, text_of
from redrive.importers.claude_lines import Line, read_claude_lines
from redrive.importers.claude_opening import Opening
from redrive.importers.claude_tally import FileCounter
from redrive.importers.draft import Draft, FileTally, SourceFile
from redrive.importers.timestamps import parse_rfc3339
from redrive.importers.typed_lines import Placed
from redrive.record.event import (
    FLAG_INHERITED,
    MAIN_ACTOR,
    ContextReplaced,
    Damage,
    Kind,
    Note,
    raw_of,
)

_SIDECHAIN = "sidechain"
_STARTED_ID = "session:started"
_MESSAGE_TYPES = ("user", "assistant")
_SUPERSEDED = Part(Kind.NOTE, Note("superseded"))
_IS_SEEN, _IS_UNDERSTOOD, _IS_LINKED = 1, 2, 4


class ClaudeCodeImporter:
    """Projects one session file, or one sub-agent's companion file, to drafts."""

    name = "claude_code"
    version = 1

    def sniff(self, source: SourceFile) -> int:
        """Say how sure it is, 0 (no) to 95, from the envelope of the first lines."""
        return claude_opening.sniff(source)

    def discover_roots(self, home: Path) -> tuple[Path, ...]:
        """List the folders below a home folder in which this agent keeps sessions."""
        folders = (home / ".claude" / "projects", home / ".config" / "claude" / "projects")
        return tuple(folder for folder in folders if folder.is_dir())

    def role(self, source: SourceFile) -> str:
        """Say `main`, or `agent:ID` for a sub-agent's own file."""
        agent = claude_opening.companion_agent(source)
        return MAIN_ACTOR if agent is None else f"agent:{agent}"

    def project(self, source: SourceFile, tally: FileTally) -> Iterator[Draft]:
        """Yield the drafts in source order and fill the tally on the way.

        `session.started` comes first, from the session's main file only. A file without a single
        record gives damage alone.
        """
        agent = claude_opening.companion_agent(source)
        opening = claude_opening.read_opening(source)
        if opening is not None and agent is None:
            yield _started(opening)
        session = source.sha256[:16] if opening is None else opening.session
        counter = FileCounter(tally)
        projection = _Projection(session, counter, agent)
        with source.open() as file:
            for item in read_claude_lines(file):
                if isinstance(item, Damage):
                    counter.add_damage(item)
                    yield from projection.damage(item)
                else:
                    if not item.flags or item.is_strict:
                        counter.add(item.line)
                    else:
                        counter.add_recovered()
                    yield from projection.add(item)
        yield from projection.finish()
        counter.finish()


def _started(opening: Opening) -> Draft:
    return Draft(
        session=opening.session,
        id=_STARTED_ID,
        kind=Kind.SESSION_STARTED,
        payload=opening.started,
        offset=opening.offset,
        length=opening.length,
        ts_ns=opening.ts_ns,
    )


@dataclass(slots=True)
class _Projection:
    """What is remembered from line to line of one file.

    Per uuid: a rank and a number of events, by the number that the counter gave it. Per sub-agent
    in `progress` lines: the last node of its chain. And at most one compaction that waits for its
    summary, which is the next line.
    """

    session: str
    counter: FileCounter
    agent: str | None
    ranks: bytearray = field(default_factory=bytearray)
    sizes: "array[int]" = field(default_factory=lambda: array("I"))
    chains: dict[str, str] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    boundary: list[Draft] | None = None

    def damage(self, damage: Damage) -> Iterator[Draft]:
        """Give the draft of a stretch that could not be read."""
        yield from self.finish()
        yield Draft(
            session=self.session,
            id=self._place_id("damage", damage.offset),
            kind=Kind.DAMAGE,
            payload=damage,
            offset=damage.offset,
            length=damage.bytes,
        )

    def finish(self) -> Iterator[Draft]:
        """Give a compaction that still waits for its summary."""
        if self.boundary is not None:
            yield from self.boundary
            self.boundary = None

    def add(self, placed: Placed[Line]) -> list[Draft]:
        """Give the drafts of the next line, and of a compaction that waited for it."""
        line = placed.line
        parts = parts_of(line)
        if line.is_compact_summary:
            parts = self._settle_summary(line, parts)
        node = _Node(placed, line, self._actor(line), _parent_of(line))
        drafts = self._drafts(node, parts)
        if line.data is not None and line.data.message is not None:
            drafts.extend(self._add_embedded(placed, line, line.data.message))
        if line.subtype == "compact_boundary":
            waiting, drafts = drafts, []
        else:
            waiting = None
        if self.boundary is not None:
            drafts = self.boundary + drafts
        self.boundary = waiting
        return drafts

    def _settle_summary(self, line: Line, parts: list[Part]) -> list[Part]:
        """Put a summary into the compaction above it; without one, it is the compaction."""
        after = raw_of(text_of(line))
        for place, draft in enumerate(self.boundary or ()):
            if draft.node_id == line.parent_uuid and isinstance(draft.payload, ContextReplaced):
                payload = replace(draft.payload, after=after)
                self.boundary[place] = replace(draft, payload=payload)  # type: ignore[index]
                return parts
        return [Part(Kind.CONTEXT_REPLACED, ContextReplaced(after=after))]

    def _add_embedded(self, placed: Placed[Line], line: Line, inner: Line) -> list[Draft]:
        """Give the events of a sub-agent's message that a `progress` line carries."""
        if line.type != "progress" or inner.type not in _MESSAGE_TYPES:
            return []
        agent = line.data.agent_id if line.data is not None else None
        actor = agent or f"agent:{line.parent_tool_use_id or line.uuid or ''}"
        node = _Node(placed, inner, actor, self.chains.get(actor, line.parent_uuid), "agent")
        drafts = self._drafts(node, parts_of(inner))
        if drafts:
            self.chains[actor] = drafts[0].node_id
        return drafts

    def _actor(self, line: Line) -> str:
        if line.agent_id:
            return line.agent_id
        return self.agent or (_SIDECHAIN if line.is_sidechain else MAIN_ACTOR)

    def _drafts(self, node: "_Node", parts: list[Part]) -> list[Draft]:
        """Give the drafts of one node; a copy of a known one gives none unless it knows more."""
        placed, line = node.placed, node.line
        old_ids: list[str] = []
        if line.uuid is not None:
            known = self._rank_copy(line.uuid, node, parts)
            if known is None:
                return []
            base, old_ids = known
            node_id = line.uuid
        else:
            base = self._place_id(node.word, placed.offset)
            node_id = base if line.type in _MESSAGE_TYPES else ""
        flags = placed.flags
        if isinstance(line.forked_from, dict):
            flags = (*flags, FLAG_INHERITED)
        if len(old_ids) > len(parts):
            parts = parts + [_SUPERSEDED] * (len(old_ids) - len(parts))
        ts_ns = parse_rfc3339(line.timestamp or placed.line.timestamp)
        return [
            Draft(
                session=self.session,
                id=f"{base}/{place + 1}" if place else base,
                kind=part.kind,
                payload=part.payload,
                offset=placed.offset,
                length=placed.length,
                node_id=node_id,
                parent_id=node.parent_id if node_id else None,
                actor=node.actor,
                ts_ns=ts_ns,
                call_id=part.call_id,
                group=part.group,
                supersedes=old_ids[place] if place < len(old_ids) else None,
                flags=flags + part.flags,
            )
            for place, part in enumerate(parts)
        ]

    def _place_id(self, word: str, offset: int) -> str:
        """Name what has no uuid by its place; a companion's names never meet the main file's."""
        prefix = "" if self.agent is None else f"agent-{self.agent}:"
        return f"{prefix}{word}:{offset}"

    def _rank_copy(
        self, uuid: str, node: "_Node", parts: list[Part]
    ) -> tuple[str, list[str]] | None:
        """Decide whether a line counts: the first of its uuid, or a copy that knows more.

        Returns:
            The id to build event ids from and the ids that it replaces; `None` for a spare copy.
        """
        number = self.counter.number(uuid)
        while number >= len(self.ranks):
            self.ranks.append(0)
            self.sizes.append(0)
        rank = _IS_SEEN
        if parts[0].kind is not Kind.NOTE:
            rank |= _IS_UNDERSTOOD
        if node.parent_id is not None or isinstance(node.line.forked_from, dict):
            rank |= _IS_LINKED
        old_rank, old_size = self.ranks[number], self.sizes[number]
        if rank <= old_rank:
            self.counter.count("duplicates")
            return None
        self.ranks[number], self.sizes[number] = rank, max(len(parts), old_size)
        name = uuid
        if "/" in uuid or "~" in uuid or ":" in uuid:  # what our own ids are made with
            name = f"uuid:{canonical.text_digest(uuid)[:16]}"
        if not old_rank:
            return name, []
        version = self.versions.get(number, 1)
        self.versions[number] = version + 1
        old_name = name if version == 1 else f"{name}~{version}"
        old_ids = [f"{old_name}/{place + 1}" if place else old_name for place in range(old_size)]
        return f"{name}~{version + 1}", old_ids


class _Node(NamedTuple):
    """A line on its way to drafts: where it lies, whose it is, what it hangs off."""

    placed: Placed[Line]
    line: Line
    actor: str
    parent_id: str | None
    word: str = "line"


def _parent_of(line: Line) -> str | None:
    """Give the parent node; a compaction hangs off the message that it follows logically."""
    if line.subtype == "compact_boundary" and line.logical_parent_uuid is not None:
        return line.logical_parent_uuid
    return line.parent_uuid


IMPORTER = ClaudeCodeImporter()
