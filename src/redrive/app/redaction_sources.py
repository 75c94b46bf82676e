"""Rewrites stored sources, the recorded files of imported sessions, with marks.

Knows lines and where events stand in them. Must not know what a session is.

A line of which an event was redacted, and in which no secret is found as it lies, is replaced as a
whole: an importer may have put together what the line holds in pieces.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, NamedTuple

from redrive.reports.redact import Redactor
from redrive.reports.redact_stream import Places, redact_stream
from redrive.reports.scrub_body import mark_body
from redrive.stores.port import Store

_READ_BYTES = 1024 * 1024


class Stretch(NamedTuple):
    """Bytes of a source, with the marks of the event that was read from them."""

    offset: int
    length: int
    marks: tuple[str, ...]


class Rewritten(NamedTuple):
    """A source with marks.

    Attributes:
        digest, size: of what it becomes.
        places: where its bytes stand then.
        forced: stretches whose lines are replaced as a whole.
        earlier: sha256 of known artefacts that it begins with, and their sizes.
    """

    digest: str
    size: int
    places: Places
    forced: tuple[Stretch, ...]
    earlier: Mapping[str, int]


class Beginnings:
    """Hashes the beginnings of a stream: finds which of them are known artefacts."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self._wanted = sorted(set(sizes), reverse=True)
        self._state = hashlib.sha256()
        self._size = 0
        self.digests: dict[str, int] = {}

    def follow(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Pass a stream on; `digests` maps the sha256 of each beginning asked for to its size."""
        for part in parts:
            rest = part
            while self._wanted and self._wanted[-1] <= self._size + len(rest):
                cut = self._wanted.pop() - self._size
                self._take(rest[:cut])
                self.digests[self._state.hexdigest()] = self._size
                rest = rest[cut:]
            self._take(rest)
            yield part

    def _take(self, data: bytes) -> None:
        self._state.update(data)
        self._size += len(data)


def rewrite_source(
    store: Store,
    digest: str,
    redactor: Redactor,
    told: Mapping[str, Sequence[Stretch]],
    known: Mapping[str, int],
) -> Rewritten:
    """Read a source and say what it becomes; nothing is held or written.

    Args:
        store: where it lies.
        digest: its sha256, hex.
        redactor: what finds secrets.
        told: artefact → where events stand in it that were redacted.
        known: artefacts that may be earlier states of it, with their sizes.
    """
    beginnings = Beginnings(known.values())
    found = _measure(beginnings.follow(_read(store, digest)), redactor, ())
    earlier = {name: size for name, size in beginnings.digests.items() if known.get(name) == size}
    forced = tuple(
        one
        for name in (digest, *earlier)
        for one in told.get(name, ())
        if not found.places.touches(one.offset, one.length)
    )
    if forced:
        found = _measure(_read(store, digest), redactor, forced)
    return found._replace(forced=forced, earlier=earlier)


def _measure(parts: Iterable[bytes], redactor: Redactor, forced: Sequence[Stretch]) -> Rewritten:
    places, state, size = Places(), hashlib.sha256(), 0
    for new in places.follow(_force(redact_stream(parts, redactor), forced)):
        state.update(new)
        size += len(new)
    return Rewritten(state.hexdigest(), size, places, (), {})


def open_rewritten(store: Store, digest: str, redactor: Redactor, made: Rewritten) -> BinaryIO:
    """Open a source as `rewrite_source` found that it becomes."""
    pieces = _force(redact_stream(_read(store, digest), redactor), made.forced)
    return io.BufferedReader(_Stream(new for _, new in pieces), _READ_BYTES)


def _read(store: Store, digest: str) -> Iterator[bytes]:
    with store.open_artefact(digest) as file:
        while part := file.read(_READ_BYTES):
            yield part


def _force(
    pieces: Iterable[tuple[bytes, bytes]], forced: Sequence[Stretch]
) -> Iterator[tuple[bytes, bytes]]:
    """Replace the pieces in which these stretches lie."""
    waiting = sorted(forced, reverse=True)
    place = 0
    for old, new in pieces:
        place += len(old)
        marks: list[str] = []
        while waiting and waiting[-1].offset < place:
            marks += waiting.pop().marks
        if marks:
            end = b"\n" if old.endswith(b"\n") else b""
            new = mark_body(marks, len(old)) + end
        yield old, new


class _Stream(io.RawIOBase):
    """Bytes from an iterator."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray") -> int:  # type: ignore[override]
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = part
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count
