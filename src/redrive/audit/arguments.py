"""Reads the arguments of a tool call: as they were recorded, and by name.

Knows payloads. Must not know what a tool does with them.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import UnsetType

from redrive import canonical
from redrive.record.event import ToolCall


def arguments_text(call: ToolCall) -> str | None:
    """Give a call's arguments as they were recorded: text, or compact JSON; `None` for none."""
    if call.arguments_text is not None:
        return call.arguments_text
    if isinstance(call.arguments, UnsetType):
        return None
    return bytes(call.arguments).decode("utf-8", "replace")


def arguments_of(call: ToolCall) -> Mapping[str, Any]:
    """Give a call's arguments by name; argument text that is no JSON object is `{"input": text}`.

    A list, and any other value without names, is `{"command": value}`.
    """
    if call.arguments_text is not None:
        try:
            value = canonical.decode_value(call.arguments_text)
        except ValueError:
            return {"input": call.arguments_text}
        return value if isinstance(value, dict) else {"input": call.arguments_text}
    if isinstance(call.arguments, UnsetType):
        return {}
    value = canonical.decode_value(bytes(call.arguments))
    return value if isinstance(value, dict) else {"command": value}
