"""Parts of a request body that only point at what entered the model.

Knows the request bodies of `openai.chat`, `openai.responses` and `anthropic.messages`. Must not
know events or gaps.

A reference counts where an API reads it: a field of the body, a content part of a known type, a
tool that the provider runs. The same words inside a tool's arguments or result are data.

Source: DESIGN.md §4 "input".
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from redrive import canonical

APIS = frozenset({"anthropic.messages", "openai.chat", "openai.responses"})
# Fields of the body: what they name lies at the provider.
BODY_FIELDS: Mapping[str, str] = {
    "previous_response_id": "previous_response_id",
    "conversation": "conversation",
    "prompt": "prompt template",
    "container": "container",
}
# Fields of the body that let the provider run something.
PROVIDER_FIELDS: Mapping[str, str] = {
    "mcp_servers": "mcp_servers",
    "plugins": "plugins",
    "search_parameters": "web_search",
    "web_search_options": "web_search",
}
# Tool types that the agent runs itself; a type that begins otherwise is the provider's.
CLIENT_TOOL_PREFIXES = (
    "apply_patch",
    "bash_",
    "computer",
    "custom",
    "function",
    "local_shell",
    "memory_",
    "shell",
    "text_editor_",
)
# Content parts: type → where its reference stands, as paths through objects.
PART_REFERENCES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "audio_url": (("audio_url", "url"), ("audio_url",)),
    "computer_screenshot": (("file_id",), ("image_url",)),
    "container_upload": (("file_id",),),
    "document": (("source", "url"), ("source", "file_id")),
    "file": (("file", "file_id"), ("file_id",)),
    "image": (("source", "url"), ("source", "file_id")),
    "image_url": (("image_url", "url"), ("image_url",)),
    "input_audio": (("file_id",), ("audio", "id"), ("input_audio", "id")),
    "input_file": (("file_id",), ("file_url",)),
    "input_image": (("file_id",), ("image_url",), ("image_url", "url")),
    "item_reference": (("id",),),
    "video_url": (("video_url", "url"), ("video_url",)),
}
# A message of its own: an earlier answer in sound is given by its id.
_MESSAGE_REFERENCES = {"audio": ("audio", "id")}
_NEEDLES = (
    '"file_id"',
    '"file_url"',
    '"image_url"',
    '"audio_url"',
    '"video_url"',
    '"url"',
    '"audio"',
    '"input_audio"',
    '"item_reference"',
    "\\u00",  # an escape may spell any of them
)
_SHOWN_CHARS = 120
_NESTED = ("content", "output")


class Reference(NamedTuple):
    """What is pointed at, and whether the provider runs it."""

    what: str
    is_provider_side: bool = False


def field_references(fields: Mapping[str, Any]) -> Iterator[Reference]:
    """Yield the references among the decoded fields of a body; `null` points at nothing."""
    for name, what in BODY_FIELDS.items():
        value = fields.get(name)
        if value is not None and value != "":
            yield Reference(f"{what} {_target(value)}")
    for name, what in PROVIDER_FIELDS.items():
        if fields.get(name) not in (None, []):
            yield Reference(what, is_provider_side=True)


def _target(value: object) -> str:
    """Name what a field points at: the text itself, or the id of an object."""
    target = value.get("id", "") if isinstance(value, dict) else value
    return str(target)[:_SHOWN_CHARS]


def tool_references(tools: object) -> Iterator[Reference]:
    """Yield the tools of a body that the provider runs."""
    for tool in tools if isinstance(tools, list) else ():
        kind = canonical.get_field(tool, "type", str) if isinstance(tool, dict) else None
        if kind is not None and not kind.startswith(CLIENT_TOOL_PREFIXES):
            yield Reference(kind[:_SHOWN_CHARS], is_provider_side=True)


def is_tool_list(tools: object) -> bool:
    """Say whether the tools of a body are what each API takes: a list of objects, or nothing."""
    if tools is None:
        return True
    return isinstance(tools, list) and all(
        isinstance(tool, dict) and isinstance(tool.get("type", ""), str | None) for tool in tools
    )


def may_hold_parts(text: str) -> bool:
    """Say whether a body's text could hold a content part by reference; false is certain."""
    return any(needle in text for needle in _NEEDLES)


def part_references(messages: object) -> Iterator[Reference]:
    """Yield the content parts that point elsewhere; data URLs and inline bytes do not.

    Args:
        messages: a message list as the APIs take it, or any content below one.
    """
    stack = [messages]
    while stack:
        value = stack.pop()
        if isinstance(value, list):
            stack.extend(reversed(value))
        elif isinstance(value, dict):
            yield from _part(value)
            stack.extend(value[name] for name in reversed(_NESTED) if name in value)


def _part(part: Mapping[str, Any]) -> Iterator[Reference]:
    kind = canonical.get_field(part, "type", str) or ""
    for path in PART_REFERENCES.get(kind, ()):
        yield from _pointed_at(kind, part, path)
    if "role" in part:
        for name, path in _MESSAGE_REFERENCES.items():
            yield from _pointed_at(name, part, path)


def _pointed_at(kind: str, part: Mapping[str, Any], path: Iterable[str]) -> Iterator[Reference]:
    value: Any = part
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str) and value and not value.startswith("data:"):
        yield Reference(f"{kind} {value[:_SHOWN_CHARS]}")
