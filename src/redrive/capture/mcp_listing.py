"""Says what a server's listing of tools told the client, as the fields of one note.

Pure. A listing is what a model is shown of a server, and a server may change it at any time: the
note holds each tool's digests, so that a changed description or schema can be found, and the page
itself while it is small.

Hints (`readOnlyHint`, `destructiveHint` …) are the server's word on itself. They are recorded as
hints and never taken for an effect.

Source: Model Context Protocol, "Tools"; DESIGN.md §1 "Effect".
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw

from redrive import canonical
from redrive.capture.json_members import list_items, members, text_in

MAX_HELD_BYTES = 1024 * 1024
MAX_TOOLS = 10_000


def describe_listing(result: Raw, cursor: str | None) -> dict[str, Any]:
    """Describe one page of a listing.

    Args:
        result: the whole `result` of `tools/list`.
        cursor: the page that was asked for; absent for the first.

    Returns:
        `tools` ({name, hints, description_sha256, input_schema_sha256, output_schema_sha256} each;
        an absent field was not listed), `n_malformed`, `cursor`, `has_more`, and what `describe`
        says of the page. Digests of schemas are of their canonical form.

    Raises:
        ValueError: the result holds no list of tools.
    """
    fields = members(result)
    if "tools" not in fields:
        raise ValueError("a listing without tools")
    items = list_items(fields["tools"])
    tools = [tool for item in items[:MAX_TOOLS] if (tool := _describe_tool(item))]
    return {
        "tools": tools,
        "n_malformed": len(items) - len(tools),
        "cursor": cursor,
        "has_more": text_in(fields, "nextCursor") is not None,
    } | describe(result, "listing")


def _describe_tool(item: Raw) -> dict[str, Any] | None:
    try:
        fields = members(item)
        name = text_in(fields, "name")
        return None if name is None else {"name": name} | _digests(fields)
    except ValueError:
        return None


def _digests(fields: Mapping[str, Raw]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "annotations" in fields:
        found["hints"] = fields["annotations"]
    description = text_in(fields, "description")
    if description is not None:
        found["description_sha256"] = canonical.text_digest(description)
    for key, name in (("inputSchema", "input_schema"), ("outputSchema", "output_schema")):
        if key in fields:
            schema = canonical.decode_value(bytes(fields[key]))
            found[f"{name}_sha256"] = canonical.value_digest(schema)
    return found


def describe(raw: Raw, name: str) -> dict[str, Any]:
    """Give digest and size of JSON as it came, and under `name` the JSON itself while it is small.

    Cost: O(n), and one copy.
    """
    data = bytes(raw)
    held = {name: raw} if len(data) <= MAX_HELD_BYTES else {}
    return held | {f"{name}_sha256": canonical.digest(data), f"{name}_bytes": len(data)}
