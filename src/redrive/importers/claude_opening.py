"""Says what a Claude Code file is before it is projected: which session, which part, which task.

Knows file names and the first lines. Must not know events beyond `session.started`.

Source: docs/claude-code.md "Files".
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from redrive import canonical
from redrive.importers.claude_drafts import task_of
from redrive.importers.claude_lines import Line, read_claude_lines
from redrive.importers.draft import SourceFile
from redrive.importers.lines import is_json_like, read_head
from redrive.importers.timestamps import parse_rfc3339
from redrive.importers.typed_lines import Placed
from redrive.record.event import SessionStarted

AGENT = "claude-code"
_OPENING_LINES = 64
_CHUNK_BYTES = 1024 * 1024
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AGENT_STEM = re.compile(r"agent-(.+)")
_COMPANION_FOLDER = "subagents"
_NODE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})
_SIDECAR_TYPES = frozenset(
    {
        "agent-name",
        "ai-title",
        "bridge-session",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        "summary",
    }
)
_SIDECAR_KEYS = ("sessionId", "leafUuid", "messageId")
_ENVELOPE_KEYS = (b'"sessionId"', b'"parentUuid"')


class Opening(msgspec.Struct, frozen=True):
    """What must be known before the first draft.

    Attributes:
        session: the session's own id.
        started: what the first lines tell of the session.
        offset: where the first record begins.
        length: its length in bytes.
        ts_ns: the first time that is recorded, UTC nanoseconds.
    """

    session: str
    started: SessionStarted
    offset: int
    length: int
    ts_ns: int | None


def sniff(source: SourceFile) -> int:
    """Say how sure it is: 95 for the envelope of a message, 60 for a sidecar line alone."""
    head = source.head()
    if b"\n" not in head and all(key in head for key in _ENVELOPE_KEYS) and is_json_like(head):
        return 80 if b'"payload"' not in head else 0  # one line, longer than the head
    return max(map(_sniff_object, read_head(source)), default=0)


def _sniff_object(value: Mapping[str, Any]) -> int:
    if "payload" in value:
        return 0
    kind = canonical.get_field(value, "type", str)
    if kind in _NODE_TYPES:
        return 95 if isinstance(value.get("uuid"), str) and "sessionId" in value else 0
    return 60 if kind in _SIDECAR_TYPES and any(key in value for key in _SIDECAR_KEYS) else 0


def companion_agent(source: SourceFile) -> str | None:
    """Give the id of the sub-agent whose own file this is, told by its name and its lines."""
    path = PurePath(source.path)
    match = _AGENT_STEM.fullmatch(path.stem)
    if match is None:
        return None
    is_companion = path.parent.name == _COMPANION_FOLDER or _is_sidechain(source)
    return canonical.safe_text(match[1]) if is_companion else None


def _is_sidechain(source: SourceFile) -> bool:
    return b'"isSidechain":true' in source.head().replace(b": ", b":")


def read_opening(source: SourceFile) -> Opening | None:
    """Read ahead until the session and its task are known, at most 64 lines for the task.

    Returns:
        `None` for a file without a record.
    """
    first: Placed[Line] | None = None
    session: str | None = None
    task: str | None = None
    facts = _Facts()
    for number, placed in enumerate(_read_lines(source)):
        first = first or placed
        facts.add(placed.line)
        session = session or placed.line.session_id
        task = task or task_of(placed.line)
        if session is not None and (task is not None or number >= _OPENING_LINES):
            break
    if first is None:
        return None
    return Opening(
        session=_own_session(source, session) or _digest_of(source, first),
        started=facts.started(task),
        offset=first.offset,
        length=first.length,
        ts_ns=parse_rfc3339(facts.timestamp),
    )


def _read_lines(source: SourceFile) -> Iterator[Placed[Line]]:
    with source.open() as file:
        for item in read_claude_lines(file):
            if isinstance(item, Placed):
                yield item


class _Facts:
    """The first value of each session-wide field that the lines carry."""

    def __init__(self) -> None:
        self.version: str | None = None
        self.cwd: str | None = None
        self.branch: str | None = None
        self.timestamp: str | None = None
        self.parent: str | None = None

    def add(self, line: Line) -> None:
        self.version = self.version or line.version
        self.cwd = self.cwd or line.cwd
        self.branch = self.branch or line.git_branch
        self.timestamp = self.timestamp or line.timestamp
        if isinstance(line.forked_from, dict):
            self.parent = self.parent or canonical.get_field(line.forked_from, "sessionId", str)

    def started(self, task: str | None) -> SessionStarted:
        return SessionStarted(
            task=task,
            agent=AGENT,
            agent_version=self.version,
            cwd=self.cwd,
            git=self.branch,
            parent_session=self.parent,
            thread=self.parent,
        )


def _own_session(source: SourceFile, session: str | None) -> str | None:
    """Choose the id: the file's name if lines carry it, a companion's parent, else the first one.

    A file that resumes a session begins with lines of the older one, so the first id need not be
    its own. A companion may carry an id of its own (`agent-…`); then the folder names the parent.
    """
    path = PurePath(source.path)
    if path.parent.name == _COMPANION_FOLDER and session in (None, path.stem):
        return canonical.safe_text(path.parent.parent.name) or session
    is_other = session is not None and session != path.stem
    if is_other and _UUID.fullmatch(path.stem) and _occurs(source, path.stem):
        return path.stem
    return session


def _occurs(source: SourceFile, session: str) -> bool:
    """Say whether some line carries this session id. Cost: one search through the file."""
    wanted = [f'"sessionId":{gap}"{session}"'.encode() for gap in ("", " ")]
    keep = len(wanted[1])
    window = b""
    with source.open() as file:
        while chunk := file.read(_CHUNK_BYTES):
            window = window[-keep:] + chunk
            if any(text in window for text in wanted):
                return True
    return False


def _digest_of(source: SourceFile, first: Placed[Line]) -> str:
    """Name a session without an id: the first 16 hex digits of its first record's sha256."""
    with source.open() as file:
        file.read(first.offset)
        return canonical.digest(file.read(first.length))[:16]
