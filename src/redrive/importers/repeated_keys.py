"""Finds keys that stand twice in a JSON line, where every decoder keeps one and says nothing.

Knows structs and JSON text. Must not know any recorded format.

Evidence (`Raw` fields) is left out: it is kept as it was written, so nothing is lost there.

Source: DESIGN.md §10.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from redrive.audit.duplicates import has_duplicate_keys
from redrive.importers.typed_lines import fields_of, is_struct, item_of

_LONG_BYTES = 1024 * 1024
_ESCAPED_QUOTE = b"\\u0022"
_REFUSED = (msgspec.MsgspecError, UnicodeError, RecursionError)
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def find_repeated_keys(line: msgspec.Struct, data: bytes, *, is_usual: bool) -> Sequence[str]:
    """Find the keys that stand twice in an object of a line that the line's struct describes.

    What is written again holds as many quotes as the line did, unless a key was lost or an escape
    hides a quote. The struct is written first, which is enough where the line has no other keys
    and says nothing that is a default; then the whole line; then each object is looked at.

    Args:
        line: what the line was decoded to; its struct omits defaults.
        data: the JSON text of the line.
        is_usual: whether the typed decoder made `line`, so that it holds nothing but what `data`
            does.

    Returns:
        The dotted path of each, a list's items by their number.

    Cost: one encode of the struct for a usual line; the last resort costs about ten times that. Of
    a line of more than 1 MiB no value is built, unless a key stands twice in it.
    """
    if len(data) > _LONG_BYTES and not has_duplicate_keys(data.decode()):
        return ()
    if _ESCAPED_QUOTE not in data:
        n_quotes = data.count(b'"')
        try:
            if is_usual and _encode(line).count(b'"') == n_quotes:
                return ()
            if _encode(_decode(data)).count(b'"') == n_quotes:
                return ()
        except _REFUSED:
            pass
    try:
        root = json.loads(data, object_pairs_hook=_collect, parse_int=str, parse_float=str)
        return tuple(_find(type(line), root, ""))
    except RecursionError:
        return ("(nested too deeply to be looked at)",)


class _Object(dict[str, Any]):
    """A JSON object, and which of its keys stood twice."""

    repeated: Sequence[str] = ()


def _collect(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        found.repeated = tuple(key for key, count in counts.items() if count > 1)
    return found


def _find(shape: type[msgspec.Struct], value: Any, path: str) -> Iterator[str]:
    """Yield the keys that stand twice where a struct describes the object."""
    if not isinstance(value, _Object):
        return
    yield from (path + key for key in value.repeated)
    for _, key, kinds in fields_of(shape):
        inner, first = value.get(key), kinds[0]
        item = item_of(first)
        if is_struct(first):
            yield from _find(first, inner, f"{path}{key}.")
        elif item is not None:
            for number, one in enumerate(inner if isinstance(inner, list) else ()):
                yield from _find(item, one, f"{path}{key}[{number}].")
        elif first is not Raw:
            yield from _find_anywhere(inner, path + key)


def _find_anywhere(value: Any, path: str) -> Iterator[str]:
    """Yield the keys that stand twice at any depth of a value."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _find_anywhere(item, f"{path}[{number}]")
    elif isinstance(value, _Object):
        yield from (f"{path}.{key}" for key in value.repeated)
        for key, item in value.items():
            yield from _find_anywhere(item, f"{path}.{key}")
