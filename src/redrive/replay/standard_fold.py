"""The standard reducers: what each kind of event adds to the standard state.

Knows kinds and facts. Must not know policies, paths, nor files beyond their names. A call counts
when its result is there: one that was denied, or that failed, changed and verified nothing.

Source: DESIGN.md §7 "L0 mechanical, L1 heuristic".
"""

from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.audit.changes import changed_paths, inside, module_of
from redrive.audit.deeds import exit_code_of, is_denial, is_in_background, told_of
from redrive.audit.tools import Category, judge_tool
from redrive.audit.verification import Check, find_check, has_passed, is_source_file, is_test_file
from redrive.record.event import (
    Event,
    Kind,
    ModelResponse,
    PolicyAction,
    SessionStarted,
    StateInferred,
    ToolCall,
    ToolPermission,
    ToolResult,
    UserMessage,
    payload_of,
    raw_value,
)
from redrive.record.session import FLAG_META
from redrive.replay.persistent import Table
from redrive.replay.policy_event import freeze, thaw
from redrive.replay.policy_state import (
    Changes,
    Framework,
    OpenCall,
    StandardState,
    ToolRecord,
    Turn,
    Verification,
)

FOLDED = frozenset(
    {
        Kind.SESSION_STARTED,
        Kind.USER_MESSAGE,
        Kind.MODEL_RESPONSE,
        Kind.TOOL_CALL,
        Kind.TOOL_PERMISSION,
        Kind.TOOL_RESULT,
        Kind.STATE_INFERRED,
        Kind.POLICY_ACTION,
    }
)
DENIED, ALLOWED = "denied", "allowed"
MUTE, UNMUTE = "mute", "unmute"
_MAX_OPEN = 256
_TEXT_CHARS, _LAST_CHARS, _COMMAND_CHARS = 2000, 4000, 200
_OUTPUT_CHARS = 16_000


def fold_standard(state: StandardState, event: Event) -> StandardState:
    """Give the state after an event; the same object where the event says nothing new.

    Raises:
        ValueError: the stored payload does not have the shape of its kind.
    """
    if event.kind not in FOLDED:
        return state
    payload = payload_of(event)
    state = replace(state, moment=state.moment + 1)
    match payload:
        case UserMessage():
            return _user_message(state, event, payload)
        case ModelResponse():
            return _model_response(state, event, payload)
        case ToolCall():
            return _tool_call(state, event, payload)
        case ToolPermission():
            return _permission(state, event, payload)
        case ToolResult():
            return _tool_result(state, event, payload)
        case StateInferred():
            value = raw_value(payload.value)
            if isinstance(value, UnsetType):  # not recorded: that is no inference
                return state
            return replace(state, inferred=state.inferred.set(payload.name, freeze(value)))
        case PolicyAction():
            return replace(state, framework=_policy_action(state.framework, payload.action))
        case _:
            return replace(state, session=_read_only(payload))


def _read_only(started: SessionStarted) -> SessionStarted:
    """Give what is known of the session so that no policy can change it."""
    tools: Any = MappingProxyType(started.tools)
    captures: Any = MappingProxyType(started.captures)
    return replace(started, tools=tools, captures=captures)


def _user_message(state: StandardState, event: Event, message: UserMessage) -> StandardState:
    if FLAG_META in event.flags:
        return state
    turn = Turn(state.turn.number + 1, event.id, event.ts_ns, message.text[:_TEXT_CHARS])
    framework = Framework(0, state.framework.is_muted)
    return replace(state, turn=turn, framework=framework, inferred=Table())


def _decision_of(event: Event) -> str:
    """Name the decision that an answer or a call is a piece of."""
    return event.group or event.node_id


def _model_response(state: StandardState, event: Event, response: ModelResponse) -> StandardState:
    decision, turn = _decision_of(event), state.turn
    if decision != state.decision or not turn.decisions:
        turn = replace(turn, decisions=turn.decisions + 1, is_over=True)
    text = response.text[-_LAST_CHARS:] or state.last_text
    return replace(state, decision=decision, turn=turn, last_text=text)


def _tool_call(state: StandardState, event: Event, call: ToolCall) -> StandardState:
    turn = replace(state.turn, calls=state.turn.calls + 1, is_over=False)
    if event.call_id is None or call.is_provider_side:
        return replace(state, turn=turn)
    rule, decision = judge_tool(call.tool, {}).rule, _decision_of(event)
    command = told_of(call, rule) if rule.category is Category.COMMAND else ""
    opened = OpenCall(
        call_id=event.call_id,
        tool=call.tool,
        decision=decision,
        paths=changed_paths(call),
        check=find_check(command) if command and not is_in_background(call) else None,
        command=command[:_COMMAND_CHARS],
    )
    # An id that comes again is the newest decision's from here on.
    others = [c for c in state.open_calls if c.call_id != event.call_id or c.decision == decision]
    return replace(state, turn=turn, open_calls=(*others, opened)[-_MAX_OPEN:])


def _permission(state: StandardState, event: Event, permission: ToolPermission) -> StandardState:
    known, opened = state.permissions, _find_open(state, event.call_id)
    is_denied = permission.decision == DENIED
    if is_denied:
        tool = permission.tool or (opened.tool if opened else "")
        denied = known.denied_tools.set(tool, state.moment)
        known = replace(known, denied=known.denied + 1, denied_tools=denied)
    elif permission.decision == ALLOWED:
        known = replace(known, allowed=known.allowed + 1)
    else:
        known = replace(known, asked=known.asked + 1)
    if opened is not None and opened.is_denied != is_denied:
        told = replace(opened, is_denied=is_denied)
        calls = tuple([told if call is opened else call for call in state.open_calls])
        return replace(state, permissions=known, open_calls=calls)
    return replace(state, permissions=known)


def _find_open(state: StandardState, call_id: str | None) -> OpenCall | None:
    """Find the first open call with an id; all with one id are of one decision."""
    return next((call for call in state.open_calls if call.call_id == call_id), None)


def _tool_result(state: StandardState, event: Event, result: ToolResult) -> StandardState:
    opened = _find_open(state, event.call_id)
    if opened is None:
        return state
    is_denied = opened.is_denied or is_denial(result)
    is_ok = result.status != "error" and not is_denied
    changes, checks = state.changes, state.verification
    if is_ok and opened.paths:
        changes = _changed(changes, opened.paths, state)
    if opened.check is not None and not is_denied:
        checks = _checked(checks, opened, result, state.moment, is_ok=is_ok)
    return replace(
        state,
        open_calls=tuple([call for call in state.open_calls if call is not opened]),
        tools=_recorded(state.tools, opened.tool, is_ok=is_ok, is_denied=is_denied),
        changes=changes,
        verification=checks,
    )


def _recorded(
    tools: Table[str, ToolRecord], tool: str, *, is_ok: bool, is_denied: bool
) -> Table[str, ToolRecord]:
    known = tools.find(tool) or ToolRecord()
    record = ToolRecord(
        known.calls + 1,
        known.errors + (not is_ok and not is_denied),
        0 if is_ok else known.errors_in_row + (not is_denied),
        known.denied + is_denied,
    )
    return tools.set(tool, record)


def _changed(changes: Changes, paths: tuple[str, ...], state: StandardState) -> Changes:
    cwd = None if state.session is None else state.session.cwd
    files, modules, moment = changes.files, changes.modules, state.moment
    source_at, test_at = changes.source_at, changes.test_at
    for path in paths:
        files, modules = files.set(path, moment), modules.set(module_of(path, cwd), moment)
        if is_test_file(inside(path, cwd)):
            test_at = moment
        elif is_source_file(path):
            source_at = moment
    return Changes(files, modules, changes.n_edits + 1, source_at, test_at)


def _checked(
    checks: Verification, call: OpenCall, result: ToolResult, moment: int, *, is_ok: bool
) -> Verification:
    passed = has_passed(_output_of(result), is_ok=is_ok, exit_code=exit_code_of(result))
    is_test = call.check == Check.TEST
    return Verification(
        ran_at=moment,
        passed_at=moment if passed else checks.passed_at,
        failed_at=checks.failed_at if passed else moment,
        test_ran_at=moment if is_test else checks.test_ran_at,
        test_passed_at=moment if is_test and passed else checks.test_passed_at,
        command=call.command,
        passed=passed,
    )


def _output_of(result: ToolResult) -> str:
    """Give the end of what a tool printed; of a structured result, of its JSON."""
    if isinstance(result.result, UnsetType):
        return ""
    value: Any = raw_value(result.result)
    if isinstance(value, list):
        value = "\n".join(str(p.get("text", "")) if isinstance(p, dict) else str(p) for p in value)
    if isinstance(value, dict):
        known = [value.get(name) for name in ("stdout", "stderr", "output", "content")]
        texts = [text for text in known if isinstance(text, str)]
        value = "\n".join(texts) if texts else canonical.encode(value).decode()
    return str(value)[-_OUTPUT_CHARS:]


def _policy_action(framework: Framework, action: str) -> Framework:
    if action in (MUTE, UNMUTE):
        return Framework(framework.depth, action == MUTE)
    return Framework(framework.depth + 1, framework.is_muted)


def snapshot(standard: StandardState) -> dict[str, Any]:
    """Give the standard state as plain JSON, bounded: the newest 20 files and modules."""
    changes = standard.changes
    plain: dict[str, Any] = msgspec.to_builtins(
        {
            "turn": standard.turn,
            "verification": standard.verification,
            "framework": standard.framework,
        }
    )
    files, modules = changes.files.merged(), changes.modules.merged()
    denied = standard.permissions.denied_tools.merged()
    return plain | {
        "actor": standard.actor,
        "moment": standard.moment,
        "changes": {
            "n_edits": changes.n_edits,
            "n_files": len(files),
            "files": _newest(files),
            "modules": _newest(modules),
            "source_at": changes.source_at,
            "test_at": changes.test_at,
        },
        "permissions": {
            "asked": standard.permissions.asked,
            "allowed": standard.permissions.allowed,
            "denied": standard.permissions.denied,
            "denied_tools": _newest(denied),
        },
        "tools": {
            name: msgspec.to_builtins(record) for name, record in standard.tools.merged().items()
        },
        "inferred": thaw(standard.inferred.merged()),
        "open_calls": [call.tool for call in standard.open_calls],
    }


def _newest(moments: dict[str, int], limit: int = 20) -> list[str]:
    return sorted(moments, key=lambda name: (-moments[name], name))[:limit]
