"""Duplicate keys in JSON texts: every decoder keeps the last one and says nothing.

Knows JSON text. Must not know where a text stands.

Source: docs/performance.md; DESIGN.md §10.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_OPENERS = ("{", "[")
_ESCAPED_QUOTE = "\\u0022"


class _DuplicateKeyError(Exception):
    """Ends a scan at the first duplicate."""


def has_duplicate_keys(text: str) -> bool:
    """Say whether an object in a JSON text names a key twice; false for what is no JSON.

    A decoded value written again holds as many quotes as the text did, unless a key was lost; the
    exact scan runs only where the counts differ, or where an escape hides a quote from the count.

    Cost: one decode and one encode; the exact scan costs about ten times that.
    """
    if not text.startswith(_OPENERS) and not text.lstrip().startswith(_OPENERS):
        return False
    try:
        value = _decode(text)
    except (ValueError, RecursionError):
        return _scan(text)
    return lost_keys(text, value)


def lost_keys(text: str, value: Any) -> bool:
    """Say the same of a text and the value that a strict decoder made of it."""
    written = _encode(value)
    if written.count(b'"') == text.count('"') and not ("\\" in text and _ESCAPED_QUOTE in text):
        return False
    return _scan(text)


def _scan(text: str) -> bool:
    try:
        _exact.decode(text)
    except _DuplicateKeyError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _DuplicateKeyError


_exact = json.JSONDecoder(object_pairs_hook=_refuse_duplicates, parse_int=str, parse_float=str)
