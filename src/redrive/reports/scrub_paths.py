"""Names where a redacted JSON text differs from what it was: paths and rules.

Knows JSON values and marks. Must not know events, nor how secrets are found.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from redrive import canonical
from redrive.record.event import Redaction
from redrive.reports.redact import MARK

__all__ = ["MAX_LISTED", "find_redactions", "marks_in", "rule_of"]

MAX_LISTED = 16
"""How many redactions of one event are listed; one is enough to open its step."""


def rule_of(mark: str) -> str:
    """Give the rule that a mark of ours names."""
    return mark[len("[redacted:") :].rpartition(":")[0]


def marks_in(text: str) -> tuple[str, ...]:
    """List the marks of ours in a text, each once, in order of appearance."""
    return tuple(dict.fromkeys(found[0] for found in MARK.finditer(text)))


def find_redactions(old: bytes, new: bytes) -> tuple[Redaction, ...]:
    """Find what was masked on the way from one JSON text to another of the same shape.

    A string that is JSON itself is looked into: `body.messages[2].content` is a place in the text
    `body`.

    Returns:
        At most `MAX_LISTED`, each once, in order; one without a path where the texts cannot be
        compared.
    """
    try:
        pairs = _differences(canonical.decode_value(old), canonical.decode_value(new))
        found = tuple(islice(dict.fromkeys(pairs), MAX_LISTED))
    except (ValueError, RecursionError):  # nested too deeply
        found = ()
    if not found:
        marks = marks_in(new.decode("utf-8", "replace"))
        found = tuple(dict.fromkeys(("", rule_of(mark)) for mark in marks))[:MAX_LISTED]
    return tuple(Redaction(path, rule) for path, rule in found)


def _differences(old: Any, new: Any) -> Iterator[tuple[str, str]]:
    stack = [(old, new, "")]
    while stack:
        before, after, path = stack.pop()
        below = _pairs(before, after, path)
        if below is None:
            yield from ((path, rule) for rule in _new_rules(before, after))
            continue
        for key, renamed in _renamed_keys(before, after):
            name = f"{path}.{renamed}" if path else renamed
            yield from ((name, rule) for rule in _new_rules(key, renamed))
        stack += reversed(below)


def _pairs(before: Any, after: Any, path: str) -> list[tuple[Any, Any, str]] | None:
    """List the parts of two values that differ; `None` where they are no containers of a kind."""
    if isinstance(before, str) and isinstance(after, str):
        parsed = _parse_nested(before), _parse_nested(after)
        return None if None in parsed else _pairs(*parsed, path)
    if isinstance(before, dict) and isinstance(after, dict) and len(before) == len(after):
        named = zip(before.values(), after.items(), strict=True)
        return [
            (value, other, f"{path}.{key}" if path else key)
            for value, (key, other) in named
            if value != other
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        items = enumerate(zip(before, after, strict=True))
        return [(v, other, f"{path}[{number}]") for number, (v, other) in items if v != other]
    return None


def _parse_nested(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return canonical.decode_value(text)
    except ValueError:
        return None


def _renamed_keys(before: Any, after: Any) -> Iterator[tuple[str, str]]:
    if isinstance(before, str):
        before, after = _parse_nested(before), _parse_nested(after)
    if isinstance(before, dict):
        yield from (pair for pair in zip(before, after, strict=True) if pair[0] != pair[1])


def _new_rules(before: Any, after: Any) -> Iterator[str]:
    """Yield the rules of the marks that a value has and its older form has not."""
    old = before if isinstance(before, str) else canonical.encode(before).decode()
    new = after if isinstance(after, str) else canonical.encode(after).decode()
    yield from dict.fromkeys(rule_of(mark) for mark in marks_in(new) if mark not in old)
