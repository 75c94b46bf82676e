"""Gives recorded values as texts that a report can show, cut where they are long.

Knows JSON values and payloads. Must not know sessions.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.app.beginnings import cut_json
from redrive.record.event import Payload, ToolCall
from redrive.reports.views import Excerpt

EXCERPT_CHARS = 2000
EXAMINED_BYTES = 1024 * 1024


def excerpt(text: str, limit: int = EXCERPT_CHARS) -> Excerpt:
    """Cut a text; a cut one carries the length and the digest of the whole."""
    if len(text) <= limit:
        return Excerpt(text)
    return Excerpt(text[:limit], len(text), canonical.text_digest(text))


def texts_in(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (place, text) for every leaf of a JSON value, such as `result[0].text`.

    Numbers and the three constants are given as JSON writes them; keys are part of the place.
    """
    stack: list[tuple[str, Any]] = [(name, value)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, str):
            yield place, item
        elif isinstance(item, dict):
            stack.extend((f"{place}.{key}", item[key]) for key in reversed(item))
        elif isinstance(item, list):
            stack.extend((f"{place}[{n}]", item[n]) for n in range(len(item) - 1, -1, -1))
        else:
            yield place, canonical.encode(item).decode()


def texts_of_raw(value: Raw | UnsetType, name: str) -> Iterator[tuple[str, str]]:
    """Yield the texts of a recorded value, of its first MiB; none where it was not recorded."""
    if not isinstance(value, UnsetType):
        data = memoryview(value)
        if len(data) <= EXAMINED_BYTES:
            yield from texts_in(canonical.decode_value(bytes(data)), name)
        else:
            beginning = bytes(data[:EXAMINED_BYTES]).decode("utf-8", "ignore")
            yield from texts_in(canonical.decode_value(cut_json(beginning)), name)


def is_examined_whole(payload: Payload) -> bool:
    """Say whether every recorded value of a payload is short enough to give all its texts."""
    values = msgspec.structs.astuple(payload)
    return all(len(memoryview(v)) <= EXAMINED_BYTES for v in values if isinstance(v, Raw))


def texts_of_arguments(call: ToolCall) -> Iterator[tuple[str, str]]:
    """Yield the texts of a call's arguments: of their JSON, or as the text that they are."""
    yield from texts_of_raw(call.arguments, "arguments")
    text = call.arguments_text
    if text is not None and len(text) > EXAMINED_BYTES:
        yield "arguments", text
    elif text is not None:
        try:
            value = canonical.decode_value(text)
        except ValueError:
            value = text
        yield from texts_in(value, "arguments")
