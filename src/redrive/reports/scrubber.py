"""Redacts what is about to be stored, batch by batch: events and the bytes that they point at.

Knows which bytes belong to which event. Must not know stores or recorders: the app hands a
`Scrubber` to them as a plain callable.

Source: docs/redaction.md; DESIGN.md §10.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence

import msgspec
from msgspec import Raw

from redrive import canonical
from redrive.record.event import Event, Kind, Redaction
from redrive.reports.redact import Redactor
from redrive.reports.redact_known import KnownSecrets
from redrive.reports.scrub import Moved, redact_event, settle
from redrive.reports.scrub_body import find_marks_in_body, is_mark_body, mark_body
from redrive.reports.scrub_paths import marks_in, rule_of

__all__ = ["Decode", "Scrubber", "list_encodings", "search_body"]

Decode = Callable[[bytes, Sequence[str]], bytes]
"""Undoes content encodings, named first applied first; `ValueError` where it cannot."""

UNREADABLE = "unreadable"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class _Wire(msgspec.Struct, frozen=True, gc=False):
    encoding: tuple[str, ...] = ()


class _Told(msgspec.Struct, frozen=True, gc=False):
    """The fields of a payload, or of the data of a `custom` one, that tell of bodies."""

    wire: _Wire | None = None
    request_sha256: str | None = None
    headers: dict[str, str] = {}
    data: Raw = Raw(b"{}")


_decode_told = msgspec.json.Decoder(_Told).decode


def list_encodings(events: Iterable[Event]) -> dict[str, tuple[str, ...]]:
    """Map the sha256 of a body to its content encodings, where events tell of any."""
    found: dict[str, tuple[str, ...]] = {}
    for event in events:
        if not event.source.artefact and event.kind is not Kind.CUSTOM:
            continue
        try:
            told = _decode_told(event.payload)
            told = _decode_told(told.data) if event.kind is Kind.CUSTOM else told
        except msgspec.DecodeError:  # another's custom event
            continue
        if told.wire is not None and told.wire.encoding:
            found[event.source.artefact] = told.wire.encoding
        words = told.headers.get("content-encoding", "").lower().split(",")
        sent = tuple(word.strip() for word in words if word.strip() not in ("", "identity"))
        if told.request_sha256 is not None and sent:
            found[told.request_sha256] = sent
    return found


def search_body(
    data: bytes, encodings: Sequence[str], redactor: Redactor, decode: Decode
) -> tuple[str, ...]:
    """Give a mark for each secret in a body; one of its own for a body that cannot be read."""
    if is_mark_body(data):  # in place of bytes that had an encoding
        return ()
    if not encodings and data.startswith((_GZIP, _ZSTD)):
        encodings = ("gzip",) if data.startswith(_GZIP) else ("zstd",)
    try:
        plain = decode(data, encodings) if encodings else data
    except (ValueError, zlib.error):
        return (redactor.mark(UNREADABLE, data),)
    return find_marks_in_body(plain, redactor)


class Scrubber:
    """Redacts the batches of one session, in order.

    A secret that was found once is found again wherever it stands later, and in its own batch. What
    was stored before that stays as it is: only `redact` afterwards knows the whole session.

    Args:
        key: what marks are made with.
        decode: undoes content encodings.

    Attributes:
        known: the secrets found so far.
    """

    def __init__(self, key: bytes, decode: Decode) -> None:
        self.known = KnownSecrets()
        self._redactor = Redactor(key, self.known)
        self._decode = decode
        self._moved: dict[str, Moved] = {}
        self._marks: dict[str, bytes] = {}

    def __call__(
        self, events: Sequence[Event], artefacts: Sequence[bytes]
    ) -> tuple[Sequence[Event], Sequence[bytes]]:
        """Redact events and the bytes that they point at.

        Args:
            events: of one session, in order.
            artefacts: bytes whose sha256 some of the events name.

        Returns:
            As many of both; what holds no secret is the same object. A body that held one, or whose
            events did, is a mark, and all that named it names the mark.
        """
        digests = [canonical.digest(data) for data in artefacts]
        encodings = list_encodings(events) if artefacts else {}
        while True:
            n_known = len(self.known.secrets)
            pairs = [redact_event(event, self._redactor) for event in events]
            marks = [
                search_body(data, encodings.get(digest, ()), self._redactor, self._decode)
                for data, digest in zip(artefacts, digests, strict=True)
            ]
            if len(self.known.secrets) == n_known:
                break
        stored = [
            self._place(data, digest, (*own, *_marks_of(digest, pairs)))
            for data, digest, own in zip(artefacts, digests, marks, strict=True)
        ]
        masked = {
            event.node_id for event, found in pairs if found or event.source.artefact in self._moved
        }
        return [settle(event, self._moved, masked) for event, _ in pairs], stored

    def _place(self, data: bytes, digest: str, marks: Sequence[str]) -> bytes:
        """Give what is stored of a body whose secrets have these marks."""
        if digest in self._marks:  # the same bytes again
            return self._marks[digest]
        if not marks:
            return data
        stored = self._marks[digest] = mark_body(marks, len(data))
        self._moved[digest] = Moved(canonical.digest(stored), len(stored), rule_of(marks[0]))
        return stored


def _marks_of(digest: str, pairs: Iterable[tuple[Event, tuple[Redaction, ...]]]) -> tuple[str, ...]:
    """List the marks of the events that point at a body."""
    return tuple(
        mark
        for event, found in pairs
        if found and event.source.artefact == digest
        for mark in marks_in(bytes(event.payload).decode())
    )
