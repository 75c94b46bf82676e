from typing import Any

import pytest

from redrive.audit.references import (
    CLIENT_TOOL_PREFIXES,
    PART_REFERENCES,
    Reference,
    field_references,
    is_tool_list,
    may_hold_parts,
    part_references,
    tool_references,
)


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id resp_1"),
        ({"conversation": {"id": "conv_1"}}, "conversation conv_1"),
        ({"prompt": {"id": "pmpt_1", "version": "2"}}, "prompt template pmpt_1"),
        ({"container": "c_1"}, "container c_1"),
    ],
)
def test_a_field_that_names_stored_state_is_a_reference(fields: dict[str, Any], what: str) -> None:
    assert list(field_references(fields)) == [Reference(what)]


def test_a_null_or_empty_field_points_at_nothing() -> None:
    empty = {"previous_response_id": None, "conversation": "", "mcp_servers": []}
    assert list(field_references(empty)) == []


def test_fields_that_let_the_provider_run_something_are_provider_side() -> None:
    given = {"mcp_servers": [{"url": "https://mcp.example"}], "web_search_options": {}}
    assert all(found.is_provider_side for found in field_references(given))
    assert [found.what for found in field_references(given)] == ["mcp_servers", "web_search"]


def test_a_tool_that_the_provider_runs_is_named_by_its_type() -> None:
    tools = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"type": "function", "function": {"name": "web_search"}},
        {"name": "untyped", "input_schema": {}},
        {"type": 3},
        "hostile",
    ]
    assert list(tool_references(tools)) == [Reference("web_search_20250305", is_provider_side=True)]
    assert list(tool_references({"type": "web_search"})) == []


@pytest.mark.parametrize("prefix", CLIENT_TOOL_PREFIXES)
def test_a_tool_of_the_agent_is_no_reference(prefix: str) -> None:
    assert list(tool_references([{"type": prefix + "20250124"}])) == []


PARTS = [
    {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
    {"type": "input_image", "image_url": "https://example.org/cat.png"},
    {"type": "input_image", "file_id": "file_1"},
    {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}},
    {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
    {"type": "file", "file": {"file_id": "file_1"}},
    {"type": "input_file", "file_url": "https://example.org/a.pdf"},
    {"type": "container_upload", "file_id": "file_1"},
    {"type": "item_reference", "id": "msg_1"},
    {"type": "image_url", "image_url": "https://example.org/cat.png"},
    {"type": "input_image", "image_url": {"url": "https://example.org/cat.png"}},
    {"type": "input_audio", "audio": {"id": "audio_1"}},
    {"type": "input_audio", "input_audio": {"id": "audio_1"}},
    {"type": "audio_url", "audio_url": "https://example.org/a.wav"},
    {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4"}},
]


@pytest.mark.parametrize("part", PARTS)
def test_a_content_part_by_reference_is_found_inside_messages(part: dict[str, Any]) -> None:
    nested = [{"role": "user", "content": [{"type": "text", "text": "see"}, part]}]
    assert len(list(part_references(nested))) == 1


def test_an_earlier_answer_in_sound_by_its_id_is_found() -> None:
    message = {"role": "assistant", "audio": {"id": "audio_1"}}
    assert list(part_references([message])) == [Reference("audio audio_1")]
    assert list(part_references([{"role": "assistant", "audio": None}])) == []


@pytest.mark.parametrize("tools", [None, [], [{"name": "t"}], [{"type": None}]])
def test_nothing_or_a_list_of_objects_is_a_list_of_tools(tools: object) -> None:
    assert is_tool_list(tools)


@pytest.mark.parametrize("tools", [{}, {"type": "web_search"}, "t", 0, [1], [{"type": ["x"]}]])
def test_anything_else_is_no_list_of_tools(tools: object) -> None:
    assert not is_tool_list(tools)


def test_a_part_inside_a_tool_result_of_the_api_is_found() -> None:
    result = {"type": "tool_result", "tool_use_id": "t", "content": [PARTS[3]]}
    assert len(list(part_references([{"role": "user", "content": [result]}]))) == 1


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "file", "file": "hostile"},
        {"type": "tool_use", "input": {"file_id": "file_1", "type": "file"}},
        {"type": ["image_url"], "image_url": "https://example.org"},
        {"type": "text", "text": "https://example.org/cat.png"},
        {"type": "text", "audio": {"id": "audio_1"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ],
)
def test_inline_bytes_and_data_of_tools_are_no_references(part: dict[str, Any]) -> None:
    assert list(part_references([{"role": "user", "content": [part]}])) == []


def test_the_prefilter_lets_every_known_part_pass() -> None:
    for kind, paths in PART_REFERENCES.items():
        for path in paths:
            assert may_hold_parts(f'{{"type":"{kind}","{path[-1]}":"x"}}')
    assert may_hold_parts('{"type":"input_file","file_\\u0069d":"x"}')
    assert not may_hold_parts('{"role":"user","content":"hi"}')
