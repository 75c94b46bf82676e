"""The protocol of Claude Code's hooks, in both directions, as values and bytes.

Pure: it neither runs a hook nor reads a file. What an exit code or a field means lies in the tables
here; what is done about it is the caller's business.

Source: the public "Hooks reference" of Claude Code, as of version 2.1.218: sections "Common input
fields", "Exit code output", "JSON output", "PreToolUse decision control".
"""

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from redrive import canonical
from redrive.errors import UsageError, quote

EXIT_DONE = 0
EXIT_BLOCK = 2
# A hook's input holds at most one call and its result; nothing larger is read.
MAX_BYTES = 64 * 1024 * 1024


class Action(StrEnum):
    """What a hook asks for.

    `deny` stops a tool call or permission before it happens. `block` is the answer of events after
    the fact: on `PostToolUse` nothing is undone and the model is told the reason, on `Stop` the
    model goes on. `stop` ends the session's turn (`continue: false`) whatever else is asked.
    """

    ALLOW = "allow"
    DENY = "deny"
    ASK = "ask"
    DEFER = "defer"
    BLOCK = "block"
    STOP = "stop"
    NONE = "none"


# What exit code 2 does, by event; events that are not named cannot block, and tell the user alone.
EXIT_BLOCK_ACTIONS: Mapping[str, Action] = {
    "PreToolUse": Action.DENY,
    "PermissionRequest": Action.DENY,
    **dict.fromkeys(
        (
            *("PostToolUse", "PostToolUseFailure", "PostToolBatch", "Stop", "SubagentStop"),
            *("UserPromptSubmit", "UserPromptExpansion", "ConfigChange", "PreCompact"),
            *("TeammateIdle", "TaskCreated", "TaskCompleted", "Elicitation", "ElicitationResult"),
        ),
        Action.BLOCK,
    ),
}
# Where plain output of a hook that exits 0 is added to what the model sees.
PLAIN_CONTEXT_EVENTS = frozenset({"UserPromptSubmit", "UserPromptExpansion", "SessionStart"})
# What our own hook command can answer, by event, and what each answer is called in JSON.
_PERMISSIONS = (Action.ALLOW, Action.DENY, Action.ASK, Action.DEFER)
ANSWERS: Mapping[str, tuple[Action, ...]] = {
    "PreToolUse": (*_PERMISSIONS, Action.STOP, Action.NONE),
    "PostToolUse": (Action.BLOCK, Action.STOP, Action.NONE),
    "Stop": (Action.BLOCK, Action.STOP, Action.NONE),
}
# Deprecated top-level decisions of PreToolUse.
_LEGACY_PERMISSIONS: Mapping[str, Action] = {
    "approve": Action.ALLOW,
    "allow": Action.ALLOW,
    "block": Action.DENY,
    "deny": Action.DENY,
}
_HINT = "Claude Code gives a hook one JSON object on standard input"


class HookInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hook is told about one event; fields that are absent are left out, not `null`.

    Args:
        hook_event_name: `PreToolUse`, `PostToolUse`, `Stop` or another event.
        session_id: the session's id.
        transcript_path: where the conversation lies.
        cwd: working folder at the time of the event.
        permission_mode: such as `default` or `acceptEdits`.
        tool_name: of tool events.
        tool_input: the call's arguments.
        tool_response: the call's result; of `PostToolUse`.
        tool_use_id: the call's id.
        stop_hook_active: of `Stop`: the model already goes on because a hook asked for it.
        last_assistant_message: of `Stop`: the text that the model ends with.
    """

    hook_event_name: str
    session_id: str | msgspec.UnsetType = msgspec.UNSET
    transcript_path: str | msgspec.UnsetType = msgspec.UNSET
    cwd: str | msgspec.UnsetType = msgspec.UNSET
    permission_mode: str | msgspec.UnsetType = msgspec.UNSET
    tool_name: str | msgspec.UnsetType = msgspec.UNSET
    tool_input: Any = msgspec.UNSET
    tool_response: Any = msgspec.UNSET
    tool_use_id: str | msgspec.UnsetType = msgspec.UNSET
    stop_hook_active: bool | msgspec.UnsetType = msgspec.UNSET
    last_assistant_message: str | msgspec.UnsetType = msgspec.UNSET


class HookDecision(msgspec.Struct, frozen=True):
    """What a hook answered.

    Args:
        action: see `Action`.
        reason: why; shown to the model for `deny` and `block`, to the user otherwise.
        context: text added to what the model sees.
        system_message: text shown to the user.
        suppress_output: the hook's output is kept out of the transcript.
        continue_: `False` stops the model whatever else is asked; `action` is then `stop`.
        stop_reason: shown to the user with it.
        updated_input: arguments that replace the call's; `None` if they stay.
        fault: why the hook gave no decision (another exit code, an invalid answer, a timeout);
            Claude Code then goes on as if it had not run. Empty if there is no fault.
    """

    action: Action = Action.NONE
    reason: str = ""
    context: str = ""
    system_message: str = ""
    suppress_output: bool = False
    continue_: bool = True
    stop_reason: str = ""
    updated_input: Mapping[str, Any] | None = None
    fault: str = ""


class _Specific(msgspec.Struct, frozen=True, rename="camel"):
    hook_event_name: str
    permission_decision: Action | None = None
    permission_decision_reason: str | None = None
    additional_context: str | None = None
    updated_input: dict[str, Any] | None = None
    decision: dict[str, Any] | None = None


class _Output(msgspec.Struct, frozen=True, rename="camel"):
    continue_: bool | None = msgspec.field(default=None, name="continue")
    stop_reason: str | None = None
    suppress_output: bool | None = None
    system_message: str | None = None
    decision: str | None = None
    reason: str | None = None
    hook_specific_output: _Specific | None = None


# --- input -------------------------------------------------------------------------------------
def dump_input(hook_input: HookInput) -> bytes:
    """Write a hook's input as Claude Code does: one JSON object."""
    try:
        return msgspec.json.encode(hook_input)
    except UnicodeEncodeError:
        # Half a surrogate pair has no UTF-8 form; as an escape it is valid JSON.
        return json.dumps(msgspec.to_builtins(hook_input), separators=(",", ":")).encode()


def parse_input(data: bytes) -> HookInput:
    """Read what Claude Code gives a hook; fields that are not known are ignored.

    Raises:
        UsageError: it is not such an object, or has no `hook_event_name`; or it is about a tool and
            names none, or not what the tool is given.
    """
    told = _decode_input(data)
    is_about_tool = told.hook_event_name in ("PreToolUse", "PostToolUse")
    if is_about_tool and msgspec.UNSET in (told.tool_name, told.tool_input):
        lacking = "tool_name" if told.tool_name is msgspec.UNSET else "tool_input"
        raise UsageError(
            f"a hook input for {told.hook_event_name} without {lacking}", where="stdin", hint=_HINT
        )
    return told


def _decode_input(data: bytes) -> HookInput:
    if len(data) > MAX_BYTES:
        raise UsageError(f"a hook's input of {len(data)} bytes", where="stdin", hint=_HINT)
    try:
        if canonical.is_strict(data):
            return msgspec.json.decode(data, type=HookInput)
        return msgspec.convert(canonical.decode_value(data), HookInput)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        start = data[:40].decode("utf-8", "replace")
        raise UsageError(
            f"no hook input: {error}; it starts with {quote(start)}", where="stdin", hint=_HINT
        ) from error


# --- decision ----------------------------------------------------------------------------------
def parse_decision(event_name: str, exit_code: int, stdout: bytes, stderr: bytes) -> HookDecision:
    """Read a hook's answer as Claude Code does.

    Exit 0: JSON on standard output is the decision; other text is none, and context where the event
    says so. Exit 2: standard error is the reason, standard output is ignored. Any other code: a
    fault that stops nothing.
    """
    if exit_code == EXIT_DONE:
        return _parse_output(event_name, stdout)
    told = stderr.decode("utf-8", "replace").strip()
    if exit_code != EXIT_BLOCK:
        first = told.split("\n", 1)[0]
        return HookDecision(fault=f"exit {exit_code}{': ' if first else ''}{first}")
    action = EXIT_BLOCK_ACTIONS.get(event_name, Action.NONE)
    if action is Action.NONE:
        return HookDecision(fault=f"exit 2 cannot block on {event_name}: {told}")
    return HookDecision(action=action, reason=told)


def _parse_output(event_name: str, stdout: bytes) -> HookDecision:
    text = stdout.decode("utf-8", "replace").strip()
    try:
        if not text.startswith("{"):
            raise ValueError("no object")
        fields = json.loads(text)
    except (ValueError, RecursionError):
        is_context = event_name in PLAIN_CONTEXT_EVENTS
        return HookDecision(context=text if is_context else "")
    try:
        return _decide(event_name, msgspec.convert(fields, _Output))
    except (msgspec.ValidationError, ValueError) as error:
        return HookDecision(fault=f"an answer that Claude Code does not accept: {error}")


def _decide(event_name: str, output: _Output) -> HookDecision:
    specific = output.hook_specific_output
    if specific is not None and specific.hook_event_name != event_name:
        raise ValueError(f"hookEventName is {specific.hook_event_name!r}, not {event_name!r}")
    action, reason, updated = _action_of(event_name, output)
    continues = output.continue_ is not False
    deferred = action is Action.DEFER
    context = (specific.additional_context if specific else None) or ""
    return HookDecision(
        action=action if continues else Action.STOP,
        reason="" if deferred else reason,
        context="" if deferred else context,
        system_message=output.system_message or "",
        suppress_output=bool(output.suppress_output),
        continue_=continues,
        stop_reason=output.stop_reason or "",
        updated_input=None if deferred else updated,
    )


def _action_of(event_name: str, output: _Output) -> tuple[Action, str, Mapping[str, Any] | None]:
    specific = output.hook_specific_output
    if event_name == "PreToolUse":
        updated = specific.updated_input if specific else None
        if specific is None or specific.permission_decision is None:
            return _legacy_permission(output), output.reason or "", updated
        if specific.permission_decision not in _PERMISSIONS:
            raise ValueError(f"permissionDecision is {specific.permission_decision.value!r}")
        return specific.permission_decision, specific.permission_decision_reason or "", updated
    if event_name == "PermissionRequest":
        return _permission_request((specific.decision if specific else None) or {})
    can_block = EXIT_BLOCK_ACTIONS.get(event_name) is Action.BLOCK
    if output.decision == "block" and can_block:
        return Action.BLOCK, output.reason or "", None
    if output.decision not in (None, "approve", "block"):
        raise ValueError(f"decision is {output.decision!r}")
    return Action.NONE, "", None


def _legacy_permission(output: _Output) -> Action:
    if output.decision is None:
        return Action.NONE
    if output.decision not in _LEGACY_PERMISSIONS:
        raise ValueError(f"decision is {output.decision!r}")
    return _LEGACY_PERMISSIONS[output.decision]


def _permission_request(
    decision: Mapping[str, Any],
) -> tuple[Action, str, Mapping[str, Any] | None]:
    behaviours = {None: Action.NONE, "allow": Action.ALLOW, "deny": Action.DENY}
    behaviour = decision.get("behavior")
    if behaviour not in behaviours:
        raise ValueError(f"decision.behavior is {behaviour!r}")
    updated = decision.get("updatedInput")
    return (
        behaviours[behaviour],
        str(decision.get("message") or ""),
        updated if isinstance(updated, dict) else None,
    )


def dump_decision(
    event_name: str, action: Action, reason: str = "", context: str = ""
) -> tuple[bytes, int]:
    """Write the answer of our own hook command.

    Args:
        event_name: one of `ANSWERS`.
        action: one that `ANSWERS` allows for the event.
        reason: why; see `HookDecision`.
        context: text for the model to see.

    Returns:
        Standard output and exit code; `parse_decision` gives the same answer back.

    Raises:
        UsageError: the event or the action cannot be answered.
    """
    if action not in ANSWERS.get(event_name, ()):
        known = ", ".join(ANSWERS.get(event_name, ())) or f"only {', '.join(ANSWERS)} are answered"
        raise UsageError(f"a hook on {event_name} cannot answer {action.value!r}", hint=known)
    fields: dict[str, Any] = {}
    specific: dict[str, str] = {"additionalContext": context} if context else {}
    if action in _PERMISSIONS:
        specific |= {"permissionDecision": action.value, "permissionDecisionReason": reason}
    elif action is Action.BLOCK:
        fields = {"decision": "block", "reason": reason}
    elif action is Action.STOP:
        fields = {"continue": False, "stopReason": reason}
    if specific:
        fields["hookSpecificOutput"] = {"hookEventName": event_name, **specific}
    # Escapes alone: the answer may quote a recording, and half a surrogate pair has no UTF-8 form.
    return (json.dumps(fields).encode() if fields else b"", EXIT_DONE)
