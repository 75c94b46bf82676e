import json
from typing import Any

import pytest
from msgspec import Raw

from redrive import canonical
from redrive.capture import mcp_listing
from redrive.capture.mcp_listing import describe, describe_listing


def listing(*tools: Any, **fields: Any) -> Raw:
    return Raw(json.dumps({"tools": tools} | fields).encode())


def test_each_tool_is_described_by_digests_and_its_hints():
    schema = {"type": "object", "b": 1, "a": 2}
    tool = {
        "name": "read",
        "description": "Reads.",
        "inputSchema": schema,
        "outputSchema": {},
        "annotations": {"readOnlyHint": True},
    }
    (told,) = describe_listing(listing(tool), None)["tools"]
    assert json.loads(bytes(told.pop("hints"))) == {"readOnlyHint": True}
    assert told == {
        "name": "read",
        "description_sha256": canonical.text_digest("Reads."),
        "input_schema_sha256": canonical.value_digest(schema),
        "output_schema_sha256": canonical.value_digest({}),
    }


def test_the_digest_of_a_schema_does_not_depend_on_the_order_of_its_keys():
    one = describe_listing(listing({"name": "a", "inputSchema": {"x": 1, "y": 2}}), None)
    other = describe_listing(listing({"name": "a", "inputSchema": {"y": 2, "x": 1}}), None)
    assert one["tools"] == other["tools"]
    assert one["listing_sha256"] != other["listing_sha256"]


def test_the_page_is_kept_as_it_came_with_digest_and_size():
    raw = Raw(b'{ "tools" : [] , "nextCursor":"c" }')
    told = describe_listing(raw, "before")
    assert bytes(told["listing"]) == bytes(raw)
    assert told["listing_sha256"] == canonical.digest(bytes(raw))
    assert told["listing_bytes"] == len(bytes(raw))
    assert (told["cursor"], told["has_more"]) == ("before", True)


def test_a_page_beyond_the_bound_is_kept_by_digest_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mcp_listing, "MAX_HELD_BYTES", 10)
    told = describe(Raw(b'"0123456789"'), "page")
    assert told == {"page_sha256": canonical.digest(b'"0123456789"'), "page_bytes": 12}


def test_what_is_no_tool_is_counted():
    broken = {"name": "c", "inputSchema": json.loads("1")}
    told = describe_listing(listing(5, {"title": "nameless"}, {"name": "a"}, broken), None)
    assert [tool["name"] for tool in told["tools"]] == ["a", "c"]
    assert told["n_malformed"] == 2


def test_a_listing_without_tools_is_none():
    with pytest.raises(ValueError, match="without tools"):
        describe_listing(Raw(b"{}"), None)
