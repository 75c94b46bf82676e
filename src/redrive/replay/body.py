"""Changes one value of a recorded request body, or adds to a list, and leaves every other byte.

Knows JSON text. Must not know what the value means to a model.

Source: DESIGN.md §5 "Run": an override replaces the bytes of that one value, or appends the key.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from redrive import canonical

_SPACE = " \t\r\n"
_decoder = json.JSONDecoder(parse_int=str, parse_float=str)


def replace_value(body: str, key: str, value: str | float | list[Any]) -> str:
    """Set a top-level value of a JSON object.

    Args:
        body: the text of one JSON object. Of a key that stands twice the last counts, as in most
            decoders, and is the one replaced.
        key: a top-level key; where it is absent, it is appended.
        value: its new value; an integer stays one.

    Raises:
        ValueError: the body is not the text of one JSON object.

    Cost: one decoding walk over the body.
    """
    written = canonical.encode(value).decode()
    members = list(_members(body))
    spans = [(start, end) for name, start, end in members if name == key]
    if spans:
        start, end = spans[-1]
        return body[:start] + written + body[end:]
    close = body.rindex("}")
    comma = "," if members else ""
    return f"{body[:close]}{comma}{canonical.encode(key).decode()}:{written}{body[close:]}"


def has_member(body: str, key: str) -> bool:
    """Tell whether the text of one JSON object has a top-level key, whatever its value.

    Raises:
        ValueError: the body is not the text of one JSON object.
    """
    return any([name == key for name, _, _ in _members(body)])  # noqa: C419 - the whole is checked


def remove_values(body: str, keys: Sequence[str]) -> str:
    """Take top-level members out of a JSON object; every other byte stays.

    Args:
        body: the text of one JSON object.
        keys: top-level keys; one that is absent changes nothing. Of the two commas beside a member
            the one before it goes, so that this undoes `replace_value` where that appended.

    Raises:
        ValueError: the body is not the text of one JSON object.
    """
    for key in keys:
        members = list(_members(body))
        for number in reversed(range(len(members))):
            name, _, end = members[number]
            if name == key:
                before = members[number - 1][2] if number else 0
                start = body.index(",", before) if number else body.index("{") + 1
                if not number and len(members) > 1:
                    end = body.index(",", end) + 1
                body = body[:start] + body[end:]
                break
    return body


def append_items(body: str, key: str, items: Sequence[Any]) -> str:
    """Add items at the end of a top-level list of a JSON object.

    Args:
        body: the text of one JSON object.
        key: a top-level key that holds a list; of a key that stands twice the last counts.
        items: JSON values; none leave the body as it is.

    Raises:
        ValueError: the body is not the text of one JSON object, or `key` holds no list.
    """
    spans = [(start, end) for name, start, end in _members(body) if name == key]
    if not spans or body[spans[-1][0]] != "[":
        raise ValueError(f"the body has no list {key!r}")
    if not items:
        return body
    start, end = spans[-1]
    written = ",".join(canonical.encode(item).decode() for item in items)
    comma = "," if body[start + 1 : end - 1].strip(_SPACE) else ""
    return f"{body[: end - 1]}{comma}{written}{body[end - 1 :]}"


def _members(body: str) -> Iterator[tuple[str, int, int]]:
    """Yield each top-level member: key, and where its value starts and ends."""
    at = _expect(body, 0, "{")
    if body[at : at + 1] == "}":
        _expect_end(body, at + 1)
        return
    while True:
        if body[at : at + 1] != '"':
            raise ValueError(f"a key that is no string at character {at}")
        key, at = _scan(body, at)
        start = _expect(body, _skip(body, at), ":")
        _, end = _scan(body, start)
        yield str(key), start, end
        at = _skip(body, end)
        if body[at : at + 1] != ",":
            _expect_end(body, _expect(body, at, "}"))
            return
        at = _skip(body, at + 1)


def _scan(body: str, at: int) -> tuple[object, int]:
    try:
        return _decoder.raw_decode(body, at)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _skip(body: str, at: int) -> int:
    while body[at : at + 1] and body[at] in _SPACE:
        at += 1
    return at


def _expect(body: str, at: int, char: str) -> int:
    """Skip one character, and the white space on both sides of it."""
    at = _skip(body, at)
    if body[at : at + 1] != char:
        raise ValueError(f"no {char!r} at character {at}: the body is no JSON object")
    return _skip(body, at + 1)


def _expect_end(body: str, at: int) -> None:
    if _skip(body, at) != len(body):
        raise ValueError(f"more than one JSON value, from character {at}")
