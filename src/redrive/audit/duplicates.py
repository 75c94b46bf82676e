"""Duplicate keys in JSON texts: every decoder keeps the last one and says nothing.

Knows JSON text. Must not know where a text stands.

Source: docs/performance.md; DESIGN.md §10.
"""

import hashlib
import json
import re
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec

from redrive import canonical

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_OPENERS = ("{", "[")
_LONG_CHARS = 2**20
_SHARE = 250_000
# A key with its colon, a text that is none, or the beginning or end of an object.
_KEY_OR_BRACE = re.compile(r'("(?:[^"\\]|\\.)*+")\s*+:|"(?:[^"\\]|\\.)*+"|[{}]', re.DOTALL)
_ESCAPED_QUOTE = "\\u0022"


class _DuplicateKeyError(Exception):
    """Ends a scan at the first duplicate."""


def has_duplicate_keys(text: str) -> bool:
    """Say whether an object in a JSON text names a key twice; false for what is no JSON.

    A decoded value written again holds as many quotes as the text did, unless a key was lost; the
    exact scan runs only where the counts differ, or where an escape hides a quote from the count.

    Cost: one decode and one encode; the exact scan costs about ten times that. Of a text of more
    than 2^20 characters no value is built, unless two keys are seen that may be one.
    """
    if not text.startswith(_OPENERS) and not text.lstrip().startswith(_OPENERS):
        return False
    if len(text) > _LONG_CHARS and not _may_repeat(text):
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


def _may_repeat(text: str) -> bool:
    """Say whether an object of a JSON text could name a key twice; false is certain."""
    open_objects: list[array[int]] = []
    for token in _KEY_OR_BRACE.finditer(text):
        sign = token[0]
        if sign == "{":
            open_objects.append(array("q"))
        elif sign == "}":
            if not open_objects or _has_equal(open_objects.pop()):
                return True
        elif token[1] is not None and open_objects:
            if "\\" in token[1]:
                return True  # an escape may spell another key
            open_objects[-1].append(_number_of(token[1]))
    return False


def _number_of(key: str) -> int:
    """Give 64 bits that stand for a key."""
    head = hashlib.sha256(canonical.text_bytes(key)).digest()[:8]
    return int.from_bytes(head, "big", signed=True)


def _has_equal(hashes: "array[int]") -> bool:
    """Say whether two of many numbers are equal, a share of them at a time."""
    if len(hashes) < 2:
        return False
    n_shares = len(hashes) // _SHARE + 1
    distinct = (len({h for h in hashes if h % n_shares == share}) for share in range(n_shares))
    return sum(distinct) < len(hashes)


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
