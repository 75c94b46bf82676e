"""A hook of Claude Code as a policy: what it would be told, and what its answer means here.

Knows the hook protocol and policies. Must not know how a hook is run (`hook_running`): the answer
comes from outside, as an inference does.

Source: DESIGN.md §7; the public "Hooks reference" of Claude Code.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.policies.hook_protocol import HookInput, dump_input
from redrive.policies.hook_settings import matches
from redrive.policy import (
    Action,
    Allow,
    Ask,
    Deny,
    Inject,
    Lane,
    Notify,
    Policy,
    PolicyEvent,
    Reducer,
    State,
    Table,
)
from redrive.record.event import Kind, ToolCall, ToolResult, payload_of, raw_value
from redrive.replay.policy_state import InferenceMissing

HOOK = "hook"
EVENTS = {
    "PreToolUse": (Lane.GATE, Kind.TOOL_CALL),
    "PostToolUse": (Lane.OBSERVER, Kind.TOOL_RESULT),
    "Stop": (Lane.OBSERVER, Kind.MODEL_RESPONSE),
}


class HookCode(msgspec.Struct, frozen=True):
    """A foreign hook as its replay needs it.

    Attributes:
        name: what the report calls it.
        event: `PreToolUse`, `PostToolUse` or `Stop`.
        matcher: which tools; absent takes every tool.
        command: for `sh -c`, or a program and its arguments.
        project_folder: shown to it read-only.
        timeout_s: after which it has decided nothing.
        version: digest of the command and the script that it names.
        unenforced: what cannot be held for it.
    """

    name: str
    event: str
    matcher: str | None
    command: str | tuple[str, ...]
    project_folder: str
    timeout_s: float
    version: str
    unenforced: tuple[str, ...] = ()


class HookAnswer(msgspec.Struct, frozen=True):
    """What a hook answered; `fault` says why it gave no decision."""

    action: str
    reason: str = ""
    context: str = ""
    fault: str = ""


class HookFailedError(Exception):
    """The hook gave no decision."""


class _Asked(msgspec.Struct, frozen=True):
    """A call whose result has not come: its tool and its arguments, as recorded."""

    tool: str
    arguments: bytes


class _OpenCalls(Reducer):
    """Keeps the arguments of calls, which `PostToolUse` is told again."""

    on = ("tool.call",)
    initial: ClassVar[Table[str, _Asked]] = Table()

    def fold(self, value: Table[str, _Asked], event: PolicyEvent) -> Table[str, _Asked]:
        """Note a call."""
        if event.call_id is None:
            return value
        return value.set(event.call_id, _Asked(event.tool or "", _arguments(event)))


class HookPolicy(Policy):
    """The adapter; one instance per hook."""

    def __init__(self, code: HookCode) -> None:
        lane, kind = EVENTS[code.event]
        self._code = code
        # What other policies declare on their class is known here only when a hook is named.
        vars(self).update(
            name=code.name,
            version=code.version.removeprefix("sha256:")[:12],
            lane=lane,
            on=(kind.value,),
            reducers={"calls": _OpenCalls()} if code.event == "PostToolUse" else {},
            unenforced=code.unenforced,
        )

    def evaluate(self, event: PolicyEvent, state: State) -> Action | None:
        """Give what the hook answered, once it did.

        Raises:
            InferenceMissing: it was not asked yet.
            HookFailedError: it gave no decision.
        """
        if self.input(event, state) is None:
            return None
        if HOOK not in state.inferences:
            raise InferenceMissing(HOOK)
        answer = msgspec.convert(dict(state.inferences[HOOK]), HookAnswer)
        if answer.fault:
            raise HookFailedError(answer.fault)
        return _action(answer, self._code.event)

    def request(self, event: PolicyEvent, state: State) -> bytes:
        """Write what the hook is told."""
        told = self.input(event, state)
        assert told is not None  # noqa: S101 - asked only where evaluate asked
        return dump_input(told)

    def input(self, event: PolicyEvent, state: State) -> HookInput | None:
        """Give what the hook is told of an event; `None` where it would not be called."""
        code = self._code
        told = HookInput(
            hook_event_name=code.event,
            session_id=event.session_id.partition(":")[2] or event.session_id,
            cwd=state.cwd if state.cwd is not None else UNSET,
            permission_mode="default",
        )
        if code.event == "Stop":
            if not event.ends_turn:
                return None
            text = event.text or ""
            return replace(told, stop_hook_active=False, last_assistant_message=text)
        call = self._call(event, state)
        if call is None or not matches(code.matcher, str(call["tool_name"])):
            return None
        return replace(told, **call, tool_use_id=event.call_id or UNSET)

    def _call(self, event: PolicyEvent, state: State) -> dict[str, Any] | None:
        payload = payload_of(event)
        if isinstance(payload, ToolCall):
            return {"tool_name": payload.tool, "tool_input": _decoded(_arguments(event))}
        if isinstance(payload, ToolResult):
            asked = state["calls"].find(event.call_id or "")
            if asked is None:
                return None
            value = raw_value(payload.result)
            return {
                "tool_name": asked.tool,
                "tool_input": _decoded(asked.arguments),
                "tool_response": None if isinstance(value, UnsetType) else value,
            }
        return None


def _arguments(event: PolicyEvent) -> bytes:
    return canonical.encode({key: _thaw(item) for key, item in event.arguments.items()})


def _decoded(data: bytes) -> Any:
    return canonical.decode_value(data)


def _thaw(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thaw(item) for key, item in value.items()}
    return [_thaw(item) for item in value] if isinstance(value, tuple) else value


def _action(answer: HookAnswer, event: str) -> Action | None:
    match answer.action:
        case "deny":
            return Deny(answer.reason)
        case "ask":
            return Ask(answer.reason)
        case "allow":
            return Allow(answer.reason)
        case "stop":
            is_gate = EVENTS[event][0] is Lane.GATE
            return Deny(answer.reason) if is_gate else Notify(answer.reason)
        case "block":
            return Inject(answer.reason, text=answer.reason)
        case _:
            is_told = bool(answer.context) and EVENTS[event][0] is Lane.OBSERVER
            return Inject("adds context", text=answer.context) if is_told else None
