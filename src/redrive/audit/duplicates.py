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
# A key written in one of these ways is not counted by `":`, so a count proves nothing.
_ODD_KEYS = ("\\u0022", '" :', '"\t:', '"\n:', '"\r:')


class _DuplicateKeyError(Exception):
    """Ends a scan at the first duplicate."""


def has_duplicate_keys(text: str) -> bool:
    """Say whether an object in a JSON text names a key twice; false for what is no JSON.

    A decoded value written again holds as many `":` as the text did, unless a key was lost; the
    exact scan runs only where the two counts differ or cannot be compared.

    Cost: one decode and one encode; the exact scan costs about ten times that.
    """
    if text.count(":") < 2 or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        written = _encode(_decode(text))
    except (ValueError, RecursionError):
        return _scan(text)
    if written.count(b'":') == text.count('":') and not any(odd in text for odd in _ODD_KEYS):
        return False
    return _scan(text)


def _scan(text: str) -> bool:
    try:
        json.loads(text, object_pairs_hook=_refuse_duplicates, parse_int=str, parse_float=str)
    except _DuplicateKeyError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _refuse_duplicates(pairs: Sequence[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _DuplicateKeyError
