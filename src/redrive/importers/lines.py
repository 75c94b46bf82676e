"""Reads JSON-lines files that were damaged, torn or grown, without losing a byte or a line.

Knows bytes, lines and JSON objects. Must not know any recorded format.

A *strict* record is a line that is exactly one JSON object. Anything else is damage with a place
and a reason; objects that can still be found on such a line are given too, marked `recovered`.

Source: DESIGN.md §3; `docs/write-an-importer.md`.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from redrive import canonical
from redrive.importers.draft import SourceFile
from redrive.record.event import FLAG_RECOVERED, FLAG_UNREPRESENTABLE, Damage

LINE_CAP_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_MAX_ATTEMPTS = 256
_BOM = b"\xef\xbb\xbf"
_BOM_REASON = "byte order mark"
_SNIFFED_LINES = 40
_LONG_HEAD_BYTES = 1024 * 1024
_JSON_START = re.compile(rb"\s*(?:\{|\[\s*[{\[])")
_decode_any = msgspec.json.Decoder().decode


class Record(msgspec.Struct, frozen=True, gc=False):
    """One JSON object of a file.

    Attributes:
        value: the decoded object.
        line: 1-based line number.
        offset: first byte in the file.
        length: bytes, without the line end.
        flags: `recovered`, `unrepresentable number`; empty for a strict, exact record.
    """

    value: dict[str, Any]
    line: int
    offset: int
    length: int
    flags: tuple[str, ...] = ()

    @property
    def is_strict(self) -> bool:
        """Whether its line was exactly this one object."""
        return FLAG_RECOVERED not in self.flags


def read_records(file: BinaryIO, *, cap_bytes: int = LINE_CAP_BYTES) -> Iterator[Record | Damage]:
    """Yield the objects and the damage of a JSON-lines file, in file order.

    A damaged line yields its `Damage` first and then what could be recovered from it. Empty lines
    yield nothing. Memory: twice the longest line, at most `cap_bytes` of it.
    """
    for line in read_lines(file, cap_bytes):
        if line.data is None:
            yield damage_of_long_line(line, cap_bytes)
        else:
            yield from parse_line(line.number, line.offset, line.data)


class Line(msgspec.Struct, frozen=True, gc=False):
    """One physical line: its bytes without the line end; no bytes where it is beyond the cap."""

    number: int
    offset: int
    size: int
    data: bytes | None


def read_lines(file: BinaryIO, cap_bytes: int = LINE_CAP_BYTES) -> Iterator[Line]:
    """Yield the physical lines of a file; only LF ends a line."""
    number, offset = 0, 0
    while line := file.readline(cap_bytes + 1):
        number += 1
        size, is_whole = len(line), len(line) <= cap_bytes or line.endswith(b"\n")
        if not is_whole:
            size += _skip_line(file)
            yield Line(number, offset, size, None)
        else:
            line = line.rstrip(b"\r\n")  # held once
            yield Line(number, offset, size, line)
        offset += size


def _skip_line(file: BinaryIO) -> int:
    skipped = 0
    while part := file.readline(_CHUNK_BYTES):
        skipped += len(part)
        if part.endswith(b"\n"):
            break
    return skipped


def damage_of_long_line(line: Line, cap_bytes: int = LINE_CAP_BYTES) -> Damage:
    """Name a line that was skipped since it is beyond the cap."""
    return Damage(line.number, line.offset, line.size, f"longer than {cap_bytes} bytes")


def parse_line(number: int, offset: int, data: bytes) -> Iterator[Record | Damage]:
    """Yield the objects and the damage of one line.

    Args:
        number: 1-based line number.
        offset: where the line begins in the file, in bytes.
        data: the line without its line end.
    """
    try:
        value = _decode_any(data)
        if type(value) is dict:
            yield Record(value, number, offset, len(data))
            return
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        pass
    if number == 1 and data.startswith(_BOM):
        yield Damage(number, offset, len(_BOM), _BOM_REASON)
        for item in parse_line(0, offset + len(_BOM), data[len(_BOM) :]):
            yield msgspec.structs.replace(item, line=number)
        return
    if not data.strip():
        return
    yield from _parse_odd_line(number, offset, data)


def _parse_odd_line(number: int, offset: int, data: bytes) -> Iterator[Record | Damage]:
    """Parse a line that the strict decoder refused."""
    try:
        decoded = canonical.decode(data)
    except (ValueError, RecursionError) as error:
        reason = _reason(data, error)
    else:
        if isinstance(decoded.value, dict):
            flags = () if decoded.is_exact else (FLAG_UNREPRESENTABLE,)
            if flags:
                yield Damage(number, offset, len(data), FLAG_UNREPRESENTABLE)
            yield Record(decoded.value, number, offset, len(data), flags)
            return
        reason = f"a JSON {type(decoded.value).__name__}, not an object"
    yield Damage(number, offset, len(data), reason)
    yield from _recover(number, offset, data)


def _reason(data: bytes, error: Exception) -> str:
    """Say in a few words why a line is no JSON object."""
    if b"\x00" in data:
        return f"{data.count(0)} NUL bytes"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return str(error) or type(error).__name__


def is_bad_line(damage: Damage) -> bool:
    """Say whether damage is a line that is not exactly one JSON object; not a mark, or a number."""
    return damage.reason not in (_BOM_REASON, FLAG_UNREPRESENTABLE)


def _recover(number: int, offset: int, data: bytes) -> Iterator[Record]:
    """Find whole JSON objects that stand one after the other on a line, or behind a torn one.

    Behind a torn record only what ends the line counts, so that its inner objects are no records.
    """
    text = data.decode("utf-8", "surrogateescape").replace("\x00", " ").rstrip()
    decoder = json.JSONDecoder(parse_constant=str, parse_float=_finite_or_text)
    position = text.find("{")
    attempts = measured = 0
    while position != -1 and attempts < _MAX_ATTEMPTS:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            attempts += 1
            position = text.find('{"', position + 1)
            continue
        if attempts and (end != len(text) or _is_member(text, position)):
            position = text.find('{"', position + 1)
            attempts += 1
            continue
        if isinstance(value, dict) and _is_clean(text[position:end]):
            offset += _size_of(text[measured:position])
            size = _size_of(text[position:end])
            yield Record(value, number, offset, size, (FLAG_RECOVERED,))
            offset, measured = offset + size, end
        position = text.find("{", end)


def _size_of(text: str) -> int:
    """Count the bytes of a stretch as they stand in the file."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _is_member(text: str, position: int) -> bool:
    """Say whether an object stands where a torn record has a value: a part of it is no record."""
    return text[max(position - 2, 0) : position].strip()[-1:] in (":", ",", "[")


def _finite_or_text(source: str) -> float | str:
    """Keep a number that no float can hold as its text, as `canonical.decode` does."""
    number = float(source)
    return number if math.isfinite(number) else source


def _is_clean(text: str) -> bool:
    """Say whether a stretch held no byte that is not UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def read_head(source: SourceFile) -> list[dict[str, Any]]:
    """List the objects on the first 40 lines that are not empty, if these are JSON lines.

    Returns:
        None where fewer than half of the lines are objects, or the first is neither one nor what
        damage left of one: then it is prose that shows objects, such as a page of documentation.
    """
    head = source.head()
    if b"\n" not in head and len(head) < source.size and is_json_like(head):
        head = source.head(_LONG_HEAD_BYTES)
    lines = [line for line in _undamaged(head).split(b"\n") if line.strip()]
    if len(lines) > 1 and len(head) < source.size:
        del lines[-1]  # the head cuts it off
    objects = list(filter(None, map(_object_of, lines[:_SNIFFED_LINES])))
    is_mostly_json = 2 * len(objects) >= min(len(lines), _SNIFFED_LINES)
    return objects if is_mostly_json and is_json_like(head) else []


def is_json_like(head: bytes) -> bool:
    """Say whether a file begins with JSON, or with what NUL bytes or a torn start left of it."""
    first = _undamaged(head).lstrip().partition(b"\n")[0]
    return _JSON_START.match(_undamaged(head)) is not None or first.rstrip().endswith((b"}", b"]"))


def _undamaged(head: bytes) -> bytes:
    return head.removeprefix(_BOM).replace(b"\x00", b"")


def _object_of(line: bytes) -> dict[str, Any] | None:
    try:
        value = canonical.decode_value(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
