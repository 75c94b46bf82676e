"""Answers of model APIs: what their bytes say, whatever the API.

Knows JSON, server-sent events and the parts that every answer has. Must not know one vendor's
answer from another's (`openai_answers`, `anthropic_answers`), nor who asked: a re-send and the
recorder read answers alike.

Source: DESIGN.md §3, §5 "Decisions".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from redrive import canonical
from redrive.canonical import get_field
from redrive.replay.ports import CallAsked

DONE = "[DONE]"


class Answer(msgspec.Struct, frozen=True):
    """The parts of one answer.

    Attributes:
        text: empty where it said nothing.
        calls: in the order the model gave them.
        served: name of the model that served.
        fingerprint: of the engine, as the API states it.
        usage: token counts by the API's own names.
        stop_reason: the API's own word.
        reasoning: what it thought aloud.
        chosen_tokens: the sampled token ids, where the API states each of them.
    """

    text: str
    calls: tuple[CallAsked, ...]
    served: str | None = None
    fingerprint: str | None = None
    usage: dict[str, int] = {}
    stop_reason: str | None = None
    reasoning: str | None = None
    chosen_tokens: tuple[int, ...] | None = None


def decode_answer(data: bytes) -> dict[str, Any]:
    """Decode a JSON answer.

    Raises:
        ValueError: it is not one JSON object, such as half of one.
    """
    value = canonical.decode_value(data)
    if not isinstance(value, dict):
        raise ValueError("the answer is no JSON object")
    return value


def error_reason(data: bytes) -> str:
    """Find the provider's own words in an error body; empty where there are none."""
    try:
        value = canonical.decode_value(data)
    except ValueError:
        return ""
    error = value.get("error", value) if isinstance(value, dict) else None
    if isinstance(error, str):
        return error
    if not isinstance(error, dict):
        return ""
    words = (error.get(key) for key in ("type", "code", "message"))
    return ": ".join(dict.fromkeys(str(word) for word in words if isinstance(word, str | int)))


def is_stream(data: bytes) -> bool:
    """Say whether an answer is a stream of server-sent events rather than one JSON object."""
    return not data.lstrip().startswith(b"{")


def parse_sse(data: bytes) -> Iterator[str]:
    """Give the `data` of each whole event; one that was cut before its empty line is dropped.

    Raises:
        ValueError: the stream is not UTF-8.

    Source: the WHATWG HTML standard, "Server-sent events".
    """
    text = re.sub(r"\r\n|\r", "\n", data.decode("utf-8"))
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("data:"):
            lines.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and lines:
            yield "\n".join(lines)
            lines = []


def count_tokens(usage: object) -> dict[str, int]:
    """Flatten a usage object to counts by the API's own names, nested ones joined by a dot."""
    counts: dict[str, int] = {}
    stack: list[tuple[str, object]] = [("", usage)]
    while stack:
        prefix, value = stack.pop()
        if isinstance(value, dict):
            stack.extend(
                (f"{prefix}.{key}" if prefix else key, item) for key, item in value.items()
            )
        elif isinstance(value, int) and not isinstance(value, bool):
            counts[prefix] = value
    return dict(sorted(counts.items()))


def get_required(fields: Mapping[str, Any], key: str, kind: type) -> Any:
    """Give `fields[key]`.

    Raises:
        ValueError: it is absent or of another type than the API documents.
    """
    value = get_field(fields, key, kind)
    if value is None:
        raise ValueError(f"no {key} ({kind.__name__}) in the answer")
    return value


def objects_in(values: object) -> tuple[dict[str, Any], ...]:
    """Give the objects of a list; nothing for what is no list."""
    if not isinstance(values, list):
        return ()
    return tuple(value for value in values if isinstance(value, dict))
