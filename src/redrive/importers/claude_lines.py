"""Reads the lines of a Claude Code file, typed where they have the usual shape.

Knows the envelope of a line. Must not know what a line means; that is `claude_drafts`.

A line is decoded once, straight to `Line` (see `typed_lines`): what no rule needs, the structured
twins of results, snapshots, hook output, is skipped without being built.

Source: docs/claude-code.md; seen in CLI versions 1.0.24 to 2.1.207.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from redrive.importers.lines import LINE_CAP_BYTES
from redrive.importers.typed_lines import Placed, Shapes, read_typed_lines
from redrive.record.event import Damage


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The token counts of an answer; lines of one answer repeat them."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


class Message(msgspec.Struct, frozen=True, gc=False):
    """The API message of a `user` or `assistant` line; `content` is a text or a list of blocks."""

    id: str | None = None
    model: str | None = None
    content: Any = None
    stop_reason: str | None = None
    usage: Tokens | None = None


class Line(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The envelope of a line, as far as some rule reads it."""

    type: str | None = None
    subtype: str | None = None
    uuid: str | None = None
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    message: Message | None = None
    is_sidechain: bool | None = None
    agent_id: str | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    forked_from: Any = None
    version: str | None = None
    cwd: str | None = None
    git_branch: str | None = None
    parent_tool_use_id: str | None = msgspec.field(default=None, name="parentToolUseID")
    leaf_uuid: str | None = None
    permission_mode: str | None = None
    summary: str | None = None
    compact_metadata: Any = None
    microcompact_metadata: Any = None
    retry_attempt: Any = None
    retry_in_ms: Any = None
    error: Any = None
    data: "Progress | None" = None

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """List the message's content blocks; a plain text is one text block."""
        content = None if self.message is None else self.message.content
        if isinstance(content, list):
            return [block for block in content if type(block) is dict]
        return [{"type": "text", "text": content}] if isinstance(content, str) else []


class Progress(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What a `progress` line carries; `message` is a sub-agent's line, embedded whole."""

    type: str | None = None
    agent_id: str | None = None
    message: Line | None = None


_IDS = frozenset({"uuid", "parentUuid", "logicalParentUuid", "sessionId", "agentId"})
_SHAPES = Shapes(Line, ids=_IDS)


def read_claude_lines(
    file: BinaryIO, *, cap_bytes: int = LINE_CAP_BYTES
) -> Iterator[Placed[Line] | Damage]:
    """Yield the lines and the damage of a file, in file order; empty lines yield nothing."""
    return read_typed_lines(file, _SHAPES, cap_bytes=cap_bytes)
