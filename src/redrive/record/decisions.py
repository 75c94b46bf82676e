"""Reads a decision that a model wrote as JSON in its answer text.

Where a session declares `decisions: json_content`, a text that parses to `{tool, arguments}` is a
tool call, alike for the record and for a replay.

Source: DESIGN.md §5 "Decisions".
"""

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical

TOOL_CALLS = "tool_calls"
JSON_CONTENT = "json_content"


class JsonDecision(msgspec.Struct, frozen=True):
    """A tool and its arguments, as JSON; `UNSET` where the text gave none."""

    tool: str
    arguments: Raw | UnsetType = UNSET


def parse_json_decision(text: str) -> JsonDecision | None:
    """Parse an answer text; `None` for anything but an object with a string `tool`."""
    try:
        value = canonical.decode_value(text)
    except ValueError:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("tool"), str):
        return None
    arguments = value.get("arguments", UNSET)
    if isinstance(arguments, UnsetType):
        return JsonDecision(value["tool"])
    return JsonDecision(value["tool"], Raw(canonical.encode(arguments)))
