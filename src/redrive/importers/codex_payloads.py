"""Reads the payloads of a Codex rollout: items and messages to the payloads of events.

Knows fields. Must not know order, nodes or decisions. A field of another type than documented
counts as not recorded.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from redrive import canonical
from redrive.canonical import get_field
from redrive.importers.codex_lines import CALL_ITEMS
from redrive.record.event import (
    ModelError,
    Note,
    SessionStarted,
    ToolCall,
    ToolPermission,
    ToolResult,
    Usage,
    UserMessage,
    raw_of,
)

Fields = Mapping[str, Any]

_MAX_COUNT = 2**53
_TURN_FIELDS = (
    "turn_id",
    "model",
    "effort",
    "approval_policy",
    "cwd",
    "current_date",
    "timezone",
)
_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "cached_input_tokens": "cache_read_tokens",
    "cache_write_input_tokens": "cache_write_tokens",
    "output_tokens": "output_tokens",
    "reasoning_output_tokens": "reasoning_tokens",
    "total_tokens": "total_tokens",
}
_PERMISSIONS = {
    "exec_approval_request": "asked",
    "apply_patch_approval_request": "asked",
    "request_permissions": "asked",
    "elicitation_request": "asked",
}
_DECISIONS = {
    "in_progress": "asked",
    "approved": "allowed",
    "approved_for_session": "allowed",
    "denied": "denied",
    "abort": "denied",
    "aborted": "denied",
    "timed_out": "denied",
}
_DECISION_MESSAGES = {
    "guardian_assessment": ("status", "guardian"),
    "exec_approval": ("decision", None),
    "exec_approval_response": ("decision", None),
    "apply_patch_approval": ("decision", None),
    "apply_patch_approval_response": ("decision", None),
    "patch_approval": ("decision", None),
}
# The head that the harness itself writes before a command's output.
_HEAD_CHARS = 8192
_EXIT_CODE = re.compile(
    r"(?:Command: .*?\n)?(?:Chunk ID: \w+\nWall time: [\d.]+ seconds\nProcess exited with code "
    r"|Exit code: )(-?\d{1,10})\n",
    re.DOTALL,
)


def read_session(meta: Fields) -> SessionStarted:
    """Read the session's own `session_meta`."""
    source = get_field(meta, "source", dict) or {}
    subagent = source.get("subagent")
    spawn = get_field(subagent, "thread_spawn", dict) if isinstance(subagent, dict) else None
    own_id = get_field(meta, "id", str)
    parent = (
        get_field(meta, "forked_from_id", str)
        or get_field(meta, "parent_thread_id", str)
        or get_field(spawn or {}, "parent_thread_id", str)
    )
    thread = get_field(meta, "session_id", str) or parent or own_id
    return SessionStarted(
        format_id=own_id,
        agent=_agent_name(meta, subagent),
        agent_version=get_field(meta, "cli_version", str),
        cwd=get_field(meta, "cwd", str),
        git=_git_name(get_field(meta, "git", dict) or {}),
        parent_session=None if parent is None else canonical.safe_text(parent),
        thread=None if thread is None else canonical.safe_text(thread),
    )


def _agent_name(meta: Fields, subagent: object) -> str:
    """Give `codex`, or `codex/ROLE` for a sub-agent whose role is recorded."""
    role = get_field(meta, "agent_role", str)
    if role is None and isinstance(subagent, str):
        role = subagent
    if role is None and isinstance(subagent, dict):
        kind = next(iter(subagent), "")
        inner = subagent.get(kind)
        nested = get_field(inner, "agent_role", str) if isinstance(inner, dict) else None
        role = nested or (inner if isinstance(inner, str) else kind)
    return f"codex/{role}" if role else "codex"


def _git_name(git: Fields) -> str | None:
    names = (get_field(git, "branch", str), get_field(git, "commit_hash", str))
    return "@".join(filter(None, names)) or None


def read_turn(context: Fields) -> Note:
    """Keep a turn's model and surroundings; its instructions stay in the source."""
    kept = {
        name: value for name in _TURN_FIELDS if (value := get_field(context, name, str)) is not None
    }
    sandbox = get_field(get_field(context, "sandbox_policy", dict) or {}, "type", str)
    if sandbox is not None:
        kept["sandbox"] = sandbox
    return Note(label="turn_context", data=raw_of(kept))


def read_texts(content: object) -> str:
    """Join the texts of a content list; parts of other kinds give nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(_texts(content))


def _texts(content: list[object]) -> Iterator[str]:
    for part in content:
        if isinstance(part, str):
            yield part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def read_user(payload: Fields) -> UserMessage:
    """Read what entered the model's context: user, developer, system, or another agent."""
    content = payload.get("content")
    is_text = isinstance(content, str) or (
        isinstance(content, list)
        and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content)
    )
    return UserMessage(
        text=read_texts(content),
        content=UNSET if is_text or content is None else raw_of(content),
        role=get_field(payload, "role", str) or get_field(payload, "author", str) or "agent",
    )


def read_call(item: str, payload: Fields) -> ToolCall:
    """Read a call; the argument text of function and custom calls is kept as it was written."""
    name = get_field(payload, "name", str)
    tool = (get_field(payload, "namespace", str) or "") + (name or item.removesuffix("_call"))
    text = payload.get("input" if item == "custom_tool_call" else "arguments")
    if isinstance(text, str):
        return ToolCall(tool=tool, arguments_text=text, is_provider_side=item not in CALL_ITEMS)
    value = text if text is not None else payload.get("action")
    return ToolCall(
        tool=tool,
        arguments=UNSET if value is None else raw_of(value),
        is_not_recorded=value is None and item not in CALL_ITEMS,
        is_provider_side=item not in CALL_ITEMS,
    )


class Ending(msgspec.Struct, frozen=True, gc=False):
    """How a call ended, as a screen message before its output states it."""

    exit_code: int | None = None
    is_failure: bool = False


def read_ending(item: str, payload: Fields) -> Ending | None:
    """Read how a call ended from its `…_end` message; `None` where it does not say."""
    match item:
        case "exec_command_end":
            code = _small_int(payload.get("exit_code"))
            return None if code is None else Ending(code)
        case "patch_apply_end" | "dynamic_tool_call_response":
            return Ending(is_failure=payload.get("success") is False)
        case "mcp_tool_call_end":
            result = get_field(payload, "result", dict) or {}
            answer = get_field(result, "Ok", dict) or {}
            return Ending(is_failure="Err" in result or answer.get("isError") is True)
        case _:
            return None


def read_result(payload: Fields, ending: Ending | None) -> ToolResult:
    """Read an output item; an exit code other than 0, or a stated failure, makes it an error."""
    output = payload.get("output", UNSET)
    code = None if ending is None else ending.exit_code
    if code is None and isinstance(output, str):
        code = _stated_exit_code(output)
    is_failure = (
        (ending is not None and ending.is_failure)
        or payload.get("success") is False
        or (isinstance(output, dict) and output.get("success") is False)
    )
    return ToolResult(
        status="error" if is_failure or code else "ok",
        result=UNSET if output is UNSET else raw_of(output),
        exit_code=code,
    )


def _stated_exit_code(output: str) -> int | None:
    """Find the exit code in an output's metadata, or in the head that the harness writes."""
    if output.startswith("{") and '"exit_code"' in output[-200:]:
        try:
            value = canonical.decode_value(output)
        except ValueError:
            return None
        metadata = value.get("metadata") if isinstance(value, dict) else None
        return _small_int(metadata.get("exit_code")) if isinstance(metadata, dict) else None
    match = _EXIT_CODE.match(output[:_HEAD_CHARS])
    return None if match is None else int(match[1])


def _small_int(value: object) -> int | None:
    is_small = type(value) is int and abs(value) < _MAX_COUNT
    return value if is_small else None  # type: ignore[return-value]


def read_usage(payload: Fields) -> Usage | None:
    """Read the last call's tokens from a `token_count` message; input includes cached tokens."""
    info = get_field(payload, "info", dict) or {}
    last = get_field(info, "last_token_usage", dict)
    if last is None:
        return None
    counts = {
        target: count
        for name, target in _USAGE_FIELDS.items()
        if (count := _small_int(last.get(name))) is not None
    }
    return msgspec.convert(counts, Usage) if counts else None


def read_error(payload: Fields) -> ModelError:
    """Read an `error` message: its text, and the HTTP status where one is stated."""
    inner = get_field(payload, "error", dict) or {}
    message = get_field(payload, "message", str) or get_field(inner, "message", str)
    info = get_field(payload, "codex_error_info", dict) or {}
    details = [entry for entry in info.values() if isinstance(entry, dict)]
    codes = (_small_int(entry.get("http_status_code")) for entry in details)
    return ModelError(status=next((c for c in codes if c is not None), None), message=message)


def read_permission(item: str, payload: Fields) -> tuple[str | None, ToolPermission] | None:
    """Read an approval that was asked for or decided: the call's id and the decision."""
    call_id = get_field(payload, "call_id", str) or get_field(payload, "target_item_id", str)
    reason = get_field(payload, "reason", str) or get_field(payload, "rationale", str)
    if item in _PERMISSIONS:
        return call_id, ToolPermission(decision=_PERMISSIONS[item], reason=reason)
    if item not in _DECISION_MESSAGES:
        return None
    name, by = _DECISION_MESSAGES[item]
    decision = _DECISIONS.get(get_field(payload, name, str) or "")
    if decision is None:
        return None
    return call_id, ToolPermission(decision=decision, by=by, reason=reason)
