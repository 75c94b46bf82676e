"""Translates what a hook of Claude Code is told into what a recorder keeps.

Pure but for whom it tells. Knows the hooks' input. Must not know how it came, nor who keeps it.

What each event becomes is the table `_TRANSLATIONS`; every other event becomes a note
`hook.EVENT` with its input as it came. A hook sees tools run and does not run them, so its seam is
`hook`: evidence of what a tool answered to Claude Code, and no place where a rerun can serve it.

Source: the public "Hooks reference" of Claude Code, as of version 2.1.218.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Raw

from redrive import canonical
from redrive.capture.json_members import members, text_in
from redrive.capture.tool_recording import TOOL_INTENT, ReportedResult
from redrive.errors import UsageError
from redrive.record.event import Kind, Payload, ToolPermission, raw_of

SEAM = "hook"
MAX_BYTES = 64 * 1024 * 1024
Fields = Mapping[str, Raw]


class HookReporter(Protocol):
    """Is told what a hook saw; `RecordingBackend` and its remote form are such."""

    def report_result(self, reported: ReportedResult, seam: str) -> None:
        """Take the result of a call that ran."""
        ...

    def add_event(self, kind: Kind, payload: Payload, call_id: str | None = None) -> None:
        """Take an event."""
        ...

    def note(
        self,
        name: str,
        fields: Mapping[str, Any],
        call_id: str | None = None,
        *,
        is_durable: bool = False,
    ) -> None:
        """Take a fact of a kind of its own; with `is_durable`, durable on return."""
        ...


def report_hook(data: bytes, reporter: HookReporter) -> None:
    """Report one call of a hook.

    Args:
        data: what Claude Code wrote to the hook's standard input.
        reporter: who is told.

    Raises:
        UsageError: it is no JSON object, names no event, is about a tool and does not say which, or
            is longer than 64 MiB.
    """
    if len(data) > MAX_BYTES:
        raise UsageError(f"a hook's input of {len(data)} bytes")
    try:
        if not canonical.is_utf8(data):
            raise ValueError("not UTF-8")
        fields = members(data)
        event = text_in(fields, "hook_event_name")
    except ValueError as error:
        raise UsageError(f"no hook input: {error}") from error
    if event is None:
        raise UsageError("a hook input without hook_event_name")
    translate = _TRANSLATIONS.get(event)
    if translate is None:
        reporter.note(f"hook.{event}", {"input": Raw(data.strip())})
    else:
        translate(fields, reporter)


def _intend(fields: Fields, reporter: HookReporter) -> None:
    """Write down a call before it runs; whether it may run is not decided yet."""
    call_id = text_in(fields, "tool_use_id")
    intent = {"call_id": call_id, "tool": _tool(fields), "arguments": _arguments(fields)}
    reporter.note(TOOL_INTENT, intent | _where(fields), call_id, is_durable=True)


def _ask(fields: Fields, reporter: HookReporter) -> None:
    _permit("asked", "user", fields, reporter)


def _deny(fields: Fields, reporter: HookReporter) -> None:
    _permit("denied", None, fields, reporter)


def _permit(decision: str, by: str | None, fields: Fields, reporter: HookReporter) -> None:
    reason = text_in(fields, "reason")
    payload = ToolPermission(decision=decision, by=by, tool=_tool(fields), reason=reason)
    reporter.add_event(Kind.TOOL_PERMISSION, payload, text_in(fields, "tool_use_id"))


def _succeed(fields: Fields, reporter: HookReporter) -> None:
    _end("ok", fields.get("tool_response", Raw(b"null")), fields, reporter)


def _fail(fields: Fields, reporter: HookReporter) -> None:
    known = {name: fields[name] for name in ("error", "is_interrupt") if name in fields}
    _end("error", raw_of(known), fields, reporter)


def _end(status: str, result: Raw, fields: Fields, reporter: HookReporter) -> None:
    call_id = text_in(fields, "tool_use_id")
    reported = ReportedResult(call_id, _tool(fields), _arguments(fields), result, status)
    reporter.report_result(reported, SEAM)


def _tool(fields: Fields) -> str:
    tool = text_in(fields, "tool_name")
    if tool is None:
        raise UsageError("a hook input about a tool without tool_name")
    return tool


def _arguments(fields: Fields) -> Raw:
    return fields.get("tool_input", Raw(b"{}"))


def _where(fields: Fields) -> dict[str, Raw]:
    """Keep who was about to run it: the session of Claude Code, the mode, the sub-agent."""
    named = ("session_id", "agent_id", "agent_type", "permission_mode", "cwd")
    return {name: fields[name] for name in named if name in fields}


_TRANSLATIONS: Mapping[str, Callable[[Fields, HookReporter], None]] = {
    "PreToolUse": _intend,
    "PermissionRequest": _ask,
    "PermissionDenied": _deny,
    "PostToolUse": _succeed,
    "PostToolUseFailure": _fail,
}
