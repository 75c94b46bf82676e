"""Says what one Claude Code line means: the events that it holds.

Knows the line types and content blocks of the format. Must not know other lines of the file: what
needs two lines (copies, compaction, sub-agents inside `progress`) is in `claude_code`.

Source: docs/claude-code.md.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.claude_lines import Line, Message, Tokens
from redrive.importers.claude_tally import SYNTHETIC_MODEL
from redrive.record.event import (
    ContextReplaced,
    Kind,
    ModelError,
    ModelResponse,
    Note,
    Payload,
    ToolCall,
    ToolPermission,
    ToolResult,
    Usage,
    UserMessage,
    raw_of,
)
from redrive.record.session import FLAG_META

_NO_MESSAGE = Message()
_UNTYPED = "untyped"
CONTENT_LIMIT_BYTES = 64 * 1024
_BOUNDARIES = ("compact_boundary", "microcompact_boundary")
_WORDS = ("text", "thinking")
_PROVIDER_CALLS = ("server_tool_use", "mcp_tool_use")
_CALLS = ("tool_use", *_PROVIDER_CALLS)
_ERROR_PREFIXES = ("<tool_use_error>", "[Request interrupted by user")
_HARNESS_PREFIXES = ("<command-", "<local-command-", "Caveat: The messages below", "[Request inter")
_API_STATUS = re.compile(r"API Error: (\d{3})\b")
# What a result says when its call was not let through: (beginning, decision, by whom).
_PERMISSIONS = (
    ("The user doesn't want to proceed with this tool use", "denied", "user"),
    ("The user doesn't want to take this action right now", "denied", "user"),
    ("Permission to use ", "denied", "rule"),
    ("Claude requested permissions to ", "asked", None),
)


class Part(NamedTuple):
    """One event of a line: its kind, its payload, and the call it belongs to."""

    kind: Kind
    payload: Payload
    call_id: str | None = None
    group: str | None = None
    flags: tuple[str, ...] = ()


def parts_of(line: Line) -> list[Part]:
    """Give the events of a line, in the order of its blocks; at least one."""
    read = _READERS.get(line.type or "", _read_other)
    return read(line) or _read_other(line)


def text_of(line: Line) -> str:
    """Join the text blocks of a line's message; empty if it has none."""
    return _join_texts(line.blocks)


def _join_texts(blocks: list[dict[str, Any]]) -> str:
    texts: list[str] = []
    for block in blocks:
        if block.get("type") == "text":
            _add_words(texts, block.get("text"))
    return "\n".join(texts)


def _add_words(texts: list[str], value: object) -> None:
    if isinstance(value, str) and value:
        texts.append(value)


def task_of(line: Line) -> str | None:
    """Give what a person asked on this line, if a person did."""
    if line.type != "user" or line.is_meta or line.is_sidechain or line.is_compact_summary:
        return None
    text = text_of(line)
    return None if not text.strip() or text.startswith(_HARNESS_PREFIXES) else text


def _read_assistant(line: Line) -> list[Part]:
    message = line.message or _NO_MESSAGE
    if line.is_api_error_message or message.model == SYNTHETIC_MODEL:
        return [_read_local(line)]
    group = message.id
    words: dict[str, list[str]] = {"text": [], "thinking": []}
    used: list[Part] = []
    for block in line.blocks:
        kind = block.get("type")
        if kind in _WORDS:
            _add_words(words[kind], block.get(kind))
        elif kind in _CALLS:
            used.append(_read_call(block, group))
        elif isinstance(kind, str) and kind.endswith("_tool_result"):
            used.extend(_read_result(block))
    response = ModelResponse(
        text="\n".join(words["text"]),
        reasoning="\n".join(words["thinking"]) or None,
        model=message.model,
        stop_reason=message.stop_reason,
        usage=_usage(message.usage),
    )
    return [Part(Kind.MODEL_RESPONSE, response, None, group), *used]


def _read_local(line: Line) -> Part:
    """Read an answer that the program wrote in the model's place: an error, or filler."""
    text = text_of(line)
    if not line.is_api_error_message and not text.startswith("API Error"):
        return Part(Kind.NOTE, Note("synthetic", text=text or None))
    status = _API_STATUS.search(text)
    error = ModelError(status=int(status[1]) if status else None, message=text or None)
    return Part(Kind.MODEL_ERROR, error)


def _usage(tokens: Tokens | None) -> Usage | None:
    if tokens is None:
        return None
    return Usage(
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        cache_read_tokens=tokens.cache_read_input_tokens,
        cache_write_tokens=tokens.cache_creation_input_tokens,
    )


def _read_call(block: Mapping[str, Any], group: str | None) -> Part:
    given = block.get("input", UNSET)
    is_text = isinstance(given, str)
    call = ToolCall(
        tool=get_field(block, "name", str) or "",
        arguments=UNSET if is_text or given is UNSET else raw_of(given),
        arguments_text=given if is_text else None,
        is_provider_side=block.get("type") in _PROVIDER_CALLS,
    )
    return Part(Kind.TOOL_CALL, call, _id_of(block, "id"), group)


def _read_user(line: Line) -> list[Part]:
    parts: list[Part] = []
    said: list[dict[str, Any]] = []
    for block in line.blocks:
        if block.get("type") == "tool_result":
            parts.extend(_read_result(block))
        else:
            said.append(block)
    if said:
        parts.extend(_read_message(line, said))
    return parts


def _read_result(block: Mapping[str, Any]) -> Iterator[Part]:
    """Read a result, and before it the permission decision that it tells of."""
    call_id = _id_of(block, "tool_use_id")
    content = block.get("content", UNSET)
    text = content if isinstance(content, str) else ""
    is_error = block.get("is_error") is True or text.startswith(_ERROR_PREFIXES)
    if is_error:
        for beginning, decision, by in _PERMISSIONS:
            if text.startswith(beginning):
                yield Part(Kind.TOOL_PERMISSION, ToolPermission(decision, by=by), call_id)
    result = ToolResult(
        status="error" if is_error else "ok",
        result=UNSET if content is UNSET else raw_of(content),
    )
    yield Part(Kind.TOOL_RESULT, result, call_id)


def _read_message(line: Line, said: list[dict[str, Any]]) -> list[Part]:
    content, omitted = _extra_content(said)
    text = _join_texts(said)
    if line.is_meta or line.is_compact_summary:
        message = UserMessage(text=text, content=content, role="meta")
        parts = [Part(Kind.USER_MESSAGE, message, flags=(FLAG_META,))]
    else:
        parts = [Part(Kind.USER_MESSAGE, UserMessage(text=text, content=content))]
    if omitted:
        note = Note("content omitted", text=f"{omitted} bytes, see the source")
        parts.append(Part(Kind.NOTE, note))
    return parts


def _extra_content(said: list[dict[str, Any]]) -> tuple[Raw | UnsetType, int]:
    """Keep blocks that are not all text; give their size instead where they are large."""
    if not [block for block in said if block.get("type") != "text"]:
        return UNSET, 0
    encoded = raw_of(said)
    size = len(bytes(encoded))
    return (UNSET, size) if size > CONTENT_LIMIT_BYTES else (encoded, 0)


def _read_system(line: Line) -> list[Part]:
    if line.subtype in _BOUNDARIES:
        metadata = line.compact_metadata or line.microcompact_metadata
        trigger = get_field(metadata, "trigger", str) if isinstance(metadata, dict) else None
        return [Part(Kind.CONTEXT_REPLACED, ContextReplaced(trigger=trigger))]
    if line.subtype == "api_error":
        return [_read_api_error(line)]
    return [Part(Kind.NOTE, Note(f"system/{line.subtype}"))]


def _read_api_error(line: Line) -> Part:
    error = line.error if isinstance(line.error, dict) else {}
    delay_ms = line.retry_in_ms
    has_delay = isinstance(delay_ms, (int, float)) and not isinstance(delay_ms, bool)
    return Part(
        Kind.MODEL_ERROR,
        ModelError(
            status=get_field(error, "status", int),
            attempt=get_field({"attempt": line.retry_attempt}, "attempt", int),
            delay_s=delay_ms / 1000 if has_delay else None,
            message=get_field(error, "message", str),
        ),
    )


def _read_progress(line: Line) -> list[Part]:
    kind = None if line.data is None else line.data.type
    return [Part(Kind.NOTE, Note(f"progress/{kind}"))]


def _read_other(line: Line) -> list[Part]:
    texts = {"summary": line.summary, "permission-mode": line.permission_mode}
    data = UNSET if line.leaf_uuid is None else raw_of({"leafUuid": line.leaf_uuid})
    label = line.type or _UNTYPED
    return [Part(Kind.NOTE, Note(label, text=texts.get(label), data=data))]


def _id_of(block: Mapping[str, Any], key: str) -> str | None:
    value = get_field(block, key, str)
    return None if value is None else canonical.safe_text(value)


_READERS: dict[str, Callable[[Line], list[Part]]] = {
    "assistant": _read_assistant,
    "user": _read_user,
    "system": _read_system,
    "progress": _read_progress,
}
