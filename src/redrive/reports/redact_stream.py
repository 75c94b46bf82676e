"""Redacts a recorded file as it lies, line by line, and tells where its bytes stand afterwards.

Knows lines of JSON and of text, and private keys that span lines. Must not know formats.

What holds no secret comes out byte for byte. Memory: a block of 1 MiB, or the longest line.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from redrive.record.texts import common_ends
from redrive.reports.redact import Redactor

__all__ = ["Places", "redact_stream"]

_BLOCK_BYTES = 1024 * 1024


class _Edit(NamedTuple):
    """Bytes that were replaced: where they stood, and where what replaced them stands."""

    start: int
    end: int
    new_start: int
    new_end: int


def _start_of(edit: _Edit) -> int:
    return edit.start


def redact_stream(parts: Iterable[bytes], redactor: Redactor) -> Iterator[tuple[bytes, bytes]]:
    """Yield a stream in pieces of whole lines, each as it was and redacted.

    A line that begins like JSON is read by its structure; what stands between such lines is a text.
    """
    for block in _blocks(parts):
        yield from _redact_block(block, redactor)


def _blocks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Cut a stream at line ends only, and not within a private key."""
    waiting = bytearray()
    for part in parts:
        waiting += part
        end = waiting.rfind(b"\n") + 1
        key = waiting.rfind(b"-BEGIN ", 0, end)
        if key >= 0 and len(waiting) < 4 * _BLOCK_BYTES and waiting.find(b"-END ", key) < 0:
            end = waiting.rfind(b"\n", 0, key) + 1
        yield bytes(waiting[:end])
        del waiting[:end]
    yield bytes(waiting)


def _redact_block(block: bytes, redactor: Redactor) -> Iterator[tuple[bytes, bytes]]:
    lines = block.splitlines(keepends=True)
    for is_json, members in groupby(lines, key=lambda line: line.lstrip()[:1] in (b"{", b"[")):
        if is_json:
            own = list(members)
            yield from zip(own, redactor.json_lines(own), strict=True)
        else:
            data = b"".join(members)
            text = data.decode("utf-8", "surrogateescape")
            redacted = redactor.text(text)
            if redacted == text:
                yield data, data
            else:
                yield data, redacted.encode("utf-8", "surrogateescape")


class Places:
    """Where bytes of a redacted stream stand that stood elsewhere before; see `follow`."""

    def __init__(self) -> None:
        self._edits: list[_Edit] = []
        self._size = self._new_size = 0

    @property
    def first_edit(self) -> int | None:
        """Where the first replaced byte stood; `None` where all is as it was."""
        return self._edits[0].start if self._edits else None

    def follow(self, pieces: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
        """Pass on what `redact_stream` made, and remember where it was changed."""
        for old, new in pieces:
            if old is not new and old != new:
                prefix, suffix = common_ends(old, new)
                self._edits.append(
                    _Edit(
                        self._size + prefix,
                        self._size + len(old) - suffix,
                        self._new_size + prefix,
                        self._new_size + len(new) - suffix,
                    )
                )
            self._size += len(old)
            self._new_size += len(new)
            yield new

    def touches(self, offset: int, length: int) -> bool:
        """Say whether anything of these bytes was replaced."""
        number = bisect_right(self._edits, offset + length, key=_start_of) - 1
        return number >= 0 and self._edits[number].end > offset

    def move(self, offset: int, length: int) -> tuple[int, int]:
        """Give offset and length of bytes afterwards; of a replaced stretch, all or nothing."""
        start, end = self._at(offset, is_end=False), self._at(offset + length, is_end=True)
        return start, max(0, end - start)

    def _at(self, place: int, *, is_end: bool) -> int:
        number = bisect_right(self._edits, place, key=_start_of) - 1
        if number < 0:
            return place
        edit = self._edits[number]
        if place >= edit.end:
            return place - edit.end + edit.new_end
        return edit.new_end if is_end and place > edit.start else edit.new_start
