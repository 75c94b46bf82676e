"""An event as a policy sees it: the envelope, and its payload by the words a policy needs.

Knows the payload of every kind. Must not know policies or state. Nothing here can be changed: the
envelope is frozen, payloads are decoded anew each time they are asked for, and their lists and
mappings are read-only.

Source: DESIGN.md §7.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import UNSET, UnsetType

from redrive.audit.arguments import arguments_of
from redrive.audit.deeds import exit_code_of, is_denial, told_of
from redrive.audit.tools import Category, judge_tool
from redrive.record.event import Event, Kind, payload_of, raw_value
from redrive.record.session import FLAG_META

NS_PER_S = 10**9


class PolicyEvent(Event, frozen=True, gc=False, omit_defaults=True):
    """One event, offered to policies; see `redrive.record.event.Event` for its fields.

    Every property is absent (`None`) where the event's kind has no such thing, or where it was
    not recorded.

    Attributes:
        ends_turn: whether the agent stopped here: of the last piece of an answer that made no call
            and that no further decision followed before the user's next message. What was said may
            stand in an earlier piece: `text`, else `state.last_text`.
    """

    ends_turn: bool = False

    @property
    def details(self) -> Any:
        """The payload: the frozen struct of its kind, from `redrive.record.event`."""
        return payload_of(self)

    @property
    def now_s(self) -> float | None:
        """The event's own time in seconds since 1970, UTC: the only clock that there is."""
        return None if self.ts_ns is None else self.ts_ns / NS_PER_S

    @property
    def name(self) -> str | None:
        """Of a custom event, its own kind; of a read, a derived value or an inference, its name."""
        return getattr(payload_of(self), "name", None)

    @property
    def tool(self) -> str | None:
        """Name of the tool: of a call, a result or a permission."""
        return getattr(payload_of(self), "tool", None)

    @property
    def arguments(self) -> Mapping[str, Any]:
        """A call's arguments by name, read-only; empty for other kinds."""
        if self.kind is not Kind.TOOL_CALL:
            return MappingProxyType({})
        return MappingProxyType({k: freeze(v) for k, v in arguments_of(payload_of(self)).items()})

    @property
    def command(self) -> str | None:
        """The shell command, or the code, that a call runs; absent for calls of other tools."""
        if self.kind is not Kind.TOOL_CALL:
            return None
        call = payload_of(self)
        rule = judge_tool(call.tool, {}).rule
        return told_of(call, rule) if rule.category is Category.COMMAND else None

    @property
    def text(self) -> str | None:
        """What was said: of a user message, an answer, an inference's or a note's text."""
        return getattr(payload_of(self), "text", None)

    @property
    def status(self) -> str | None:
        """Of a result `ok` or `error`; of a session's end its word; of a model error its code."""
        status = getattr(payload_of(self), "status", None)
        return None if status is None else str(status)

    @property
    def decision(self) -> str | None:
        """Of a permission: `asked`, `allowed` or `denied`."""
        return getattr(payload_of(self), "decision", None)

    @property
    def result(self) -> Any:
        """A result's value, read-only; `None` where it is null or was not recorded."""
        value = raw_value(getattr(payload_of(self), "result", UNSET))
        return None if isinstance(value, UnsetType) else freeze(value)

    @property
    def exit_code(self) -> int | None:
        """A command's exit code: recorded, or stated in its output."""
        return exit_code_of(payload_of(self)) if self.kind is Kind.TOOL_RESULT else None

    @property
    def was_denied(self) -> bool:
        """Whether a result says that its call was not let through."""
        return self.kind is Kind.TOOL_RESULT and is_denial(payload_of(self))

    @property
    def is_from_user(self) -> bool:
        """Whether a person said it: a user message that no harness wrote."""
        return self.kind is Kind.USER_MESSAGE and FLAG_META not in self.flags

    @property
    def data(self) -> Mapping[str, Any]:
        """The fields of a custom event, read-only; empty for other kinds and other values."""
        value = raw_value(getattr(payload_of(self), "data", UNSET))
        return freeze(value) if isinstance(value, dict) else MappingProxyType({})


def freeze(value: Any) -> Any:
    """Make a decoded JSON value read-only, all the way down: tuples and mapping proxies."""
    if isinstance(value, dict):
        return MappingProxyType({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list):
        return tuple([freeze(item) for item in value])
    return value


def thaw(value: Any) -> Any:
    """Make a frozen JSON value one that can be written again."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [thaw(item) for item in value]
    return value


def view(event: Event, *, ends_turn: bool = False) -> PolicyEvent:
    """Give an event as policies see it."""
    fields = {name: getattr(event, name) for name in Event.__struct_fields__}
    return PolicyEvent(**fields, ends_turn=ends_turn)
