"""Compares the environment that a session recorded with one that is offered.

Knows two JSON objects. Must not know sessions, nor what a field means.

Source: DESIGN.md §4 "environment".
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from redrive import canonical

ABSENT = "(absent)"
_SHOWN_CHARS = 200


class FieldDifference(msgspec.Struct, frozen=True):
    """One field that differs: its dotted path, and both values as canonical JSON, cut to 200."""

    field: str
    recorded: str
    given: str


def compare_environment(
    recorded: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[FieldDifference, ...]:
    """Name each field of two environments that differs.

    Args:
        recorded: as the session holds it.
        given: as it is offered for a re-execution.

    Returns:
        Differences by dotted path, sorted; lists are compared whole, order included.
    """
    return tuple(sorted(_differences(recorded, given, ""), key=lambda found: found.field))


def _differences(
    recorded: Mapping[str, Any], given: Mapping[str, Any], prefix: str
) -> Iterator[FieldDifference]:
    for name in recorded.keys() | given.keys():
        one, other = recorded.get(name, msgspec.UNSET), given.get(name, msgspec.UNSET)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _differences(one, other, f"{prefix}{name}.")
            continue
        shown, offered = _show(one), _show(other)
        if shown != offered:
            yield FieldDifference(prefix + name, shown[:_SHOWN_CHARS], offered[:_SHOWN_CHARS])


def _show(value: object) -> str:
    if value is msgspec.UNSET:
        return ABSENT
    return canonical.canonical(value).decode()
