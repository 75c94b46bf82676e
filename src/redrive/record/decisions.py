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
    """A decision that a text holds.

    Attributes:
        tool: the tool's name.
        arguments: their JSON text, verbatim (half a character as its escape), so that a number
            that no float can hold, and a key that stands twice, are still there to be seen;
            `UNSET` where the text gave none.
        further: the other members, in order, each value verbatim.
    """

    tool: str
    arguments: Raw | UnsetType = UNSET
    further: tuple[tuple[str, str], ...] = ()


def parse_json_decision(text: str) -> JsonDecision | None:
    """Parse an answer text.

    Returns:
        `None` for anything but one JSON object with a text `tool`. A text that names `tool` or
        `arguments` twice does not say which one it means, and one with NaN is no JSON: neither is
        a decision, and both are compared as the texts that they are.
    """
    try:
        members = canonical.split_members(canonical.escape_surrogates(text))
    except ValueError:
        return None
    found = dict(members)
    further = tuple(member for member in members if member[0] not in _NAMED)
    tool = canonical.decode_value(found.get("tool", "null"))
    if not isinstance(tool, str) or len(found.keys() & _NAMED) + len(further) < len(members):
        return None
    if "arguments" not in found:
        return JsonDecision(tool, UNSET, further)
    return JsonDecision(tool, Raw(found["arguments"].encode()), further)


_NAMED = frozenset({"tool", "arguments"})
